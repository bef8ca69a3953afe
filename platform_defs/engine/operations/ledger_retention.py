"""Retention of the ledger: replace its oldest batches by a summary.

A batch can be summarized only when its times and watermarks are no longer needed. They decide which rows of the batch are late, so the
batch's rows must have left the event logs of all sources. Each table must also have handled the batch, and have closed all results up to
the batch's watermark.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from deltalake.exceptions import DeltaError

from assets.contracts import DerivedAsset
from operators.contract import Early
from operators.errors import OperatorError
from operators.timing import DAY_MS
from platform_defs.engine.advance.corrections import unread_corrections
from platform_defs.engine.advance.early_results import SHOWN
from platform_defs.engine.advance.position import position_of
from platform_defs.engine.advance.step_size import can_change_rows
from platform_defs.engine.inputs.changelog_reader import APPLIED
from platform_defs.engine.inputs.handled_batches import tables_outside
from platform_defs.engine.inputs.progress import Progress, progress_at, stored_progress
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.result_rows import late_results
from platform_defs.engine.inputs.stored_rows import first_batch_in_log
from platform_defs.engine.inputs.timelines import operator_timeline
from platform_defs.engine.inputs.waited_for import late_key, watermark_key
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.errors import LakeError, store_reason
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.summarize import summary_of
from platform_defs.engine.ledger.summary import LateRange
from platform_defs.engine.ledger.watermarks import or_before_all
from platform_defs.engine.operations.retention import Removal


@dataclass(frozen=True)
class LedgerRetention:
    """Replaces the batches of whole days (UTC) of the ledger by a summary.

    Args:
        workspace: the session, the lake and its ledger.
        retention: how long batches are kept, in ms of the wall clock; None to replace no more batches.
    """

    workspace: Workspace
    retention: int | None

    def plan(self) -> Removal | None:
        """What is to be replaced; None if the ledger keeps its batches for ever and none was replaced before."""
        history = self.workspace.ledger.history
        kept_from = f"batch {history.summarized + 1}" if history.summarized else None
        if self.retention is None:
            return None if kept_from is None else Removal(kept_from=kept_from)
        last_old_batch = self._last_old_batch(self.retention)
        if last_old_batch <= history.summarized:
            return Removal(kept_from=kept_from)
        try:
            upto, reason = min([(last_old_batch, None), *self._limits(last_old_batch)], key=lambda limit: limit[0])
        except (ProgressError, LedgerError, OperatorError, LakeError, DeltaError) as error:
            return Removal(kept_from=kept_from, held_back=store_reason(error) if isinstance(error, DeltaError) else str(error))
        rows = history.rows_upto(upto) - sum(source_history.range(0, upto)[1] > 0 for source_history in history.sources.values())
        if upto <= history.summarized or not rows:
            return Removal(kept_from=kept_from, held_back=reason)
        return Removal(rows, f"batch {upto + 1}", reason, number=upto)

    def remove(self, planned: Removal) -> Removal:
        """Replace the planned batches. The caller holds the ledger's lock.

        The plan stays valid although it was made without the lock: a batch that all tables have handled, and whose rows were removed, is
        never read again.

        Raises:
            LakeError: another writer has committed to the ledger.
        """
        if planned.number is None:
            return planned
        ledger, upto = self.workspace.ledger, planned.number
        version, assets = ledger.version, self.workspace.assets.values()
        watermarks = {watermark_key(a, self.workspace.input_named): operator_timeline(self.workspace, a).after[upto] for a in assets}
        ledger.summarize(version, summary_of(ledger, upto, watermarks, dict(self._late(upto))))
        return planned

    def _late(self, upto: int) -> Iterator[tuple[str, tuple[LateRange, ...]]]:
        """The results of tables that became final up to a batch and may be late for a reader: they stay in the tables."""
        for asset in self.workspace.assets.values():
            for upstream_table in self.workspace.tables_of(asset):
                if late_ranges := late_results(self.workspace, asset, upstream_table, upto):
                    yield (
                        late_key(asset, upstream_table, self.workspace.input_named),
                        tuple((r.after, r.upto, r.watermark) for r in late_ranges),
                    )

    def _last_old_batch(self, retention: int) -> int:
        """The last batch of the days before those that are kept."""
        ledger = self.workspace.ledger
        first, times = ledger.processing_times(ledger.head)
        before = (ledger.wall_clock() - retention) // DAY_MS * DAY_MS
        return first + bisect_right(range(len(times)), before - 1, key=lambda n: times[n].as_py())

    def _limits(self, old: int) -> Iterator[tuple[int, str | None]]:
        """The limits: each is a batch up to which the ledger may be summarized, and what still needs the next one.

        Limits that are not below `old` may be missing, since the setting allows no more.
        """
        for table in tables_outside(self.workspace.lake, self.workspace.assets):
            yield 0, f"table {table} is in the lake but not in the pipeline"
        for source in self.workspace.ledger.history.sources:
            yield from self._of_source(source, old)
        for asset in self.workspace.assets.values():
            yield from self._of_table(asset, old)

    def _of_source(self, name: str, old: int) -> Iterator[tuple[int, str]]:
        """The limit of a source: the batch before the first one of which its log has rows."""
        contract = self.workspace.sources.get(name)
        if contract is None:
            if self.workspace.lake.exists(f"events/{name}"):
                yield 0, f"source {name} is in the lake but not in the pipeline"
            return
        first = first_batch_in_log(self.workspace, name, old)
        if first is not None:
            way_out = "; the source has no `retention`" if contract.retention is None else ""
            yield first - 1, f"{contract.log} has rows of batch {first}{way_out}"

    def _of_table(self, asset: DerivedAsset, old: int) -> Iterator[tuple[int, str]]:
        """The limits of a table: by the batches that it has handled, closed, read and applied, and by its early results."""
        lake, name, operator = self.workspace.lake, asset.name, asset.operator
        now = stored_progress(lake, asset)
        if not now.step:
            yield 0, f"{name} has no step yet"
            return
        if now.seq < old and can_change_rows(self.workspace.ledger.history, asset, now.seq, old):
            yield now.seq, f"{name} has not handled the batches after {now.seq} yet"
        if operator.reads.closes_ranges:
            after, closed_to = operator_timeline(self.workspace, asset).after, or_before_all(now.closed_to)
            closed = bisect_right(range(old + 1), closed_to, key=lambda seq: or_before_all(after[seq])) - 1
            yield closed, f"{name} has not closed the results of batch {closed + 1} yet"
        yield from self._unread_steps(asset, now)
        is_read = any(name in reader.inputs for reader in self.workspace.assets.values())
        if operator.emits.upserts and is_read and (applied := lake.newest_commit(name, APPLIED)) is not None:
            yield applied.value["seq"], f"{name}, which other tables read, has its last step at batch {applied.value['seq']}"
        if isinstance(operator, Early) and operator.early is not None and (shown := lake.newest_commit(asset.early, SHOWN)) is not None:
            yield shown.value["seq"], f"early results of {name} are those of batch {shown.value['seq']}"

    def _unread_steps(self, asset: DerivedAsset, now: Progress) -> Iterator[tuple[int, str]]:
        """The limits of steps that a table has to read: the ledger is kept from the batch of the first unread step on."""
        lake, reads = self.workspace.lake, asset.operator.reads
        if reads.closes_ranges and not unread_corrections(position_of(self.workspace, asset, now)):
            return
        for upstream_table in self.workspace.tables_of(asset):
            newest, step = stored_progress(lake, upstream_table), now.read.get(upstream_table.name, 0) + 1
            if newest.step >= step:
                first = progress_at(lake, upstream_table, step) or newest
                yield first.seq - 1, f"{asset.name} has not read all steps of {upstream_table.name} yet"
