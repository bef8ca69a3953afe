"""Determines the freshness of tables from the ledger and the commits, without Spark.

A table is stale if rows of its sources are in the ledger and it does not reflect them yet, for one of two reasons:

- it is *behind*: an advance would change it. It has waited since the first batch that an advance would reflect.
- it is *held back*: the watermark cannot pass these rows, because another source has sent nothing. It has waited since the first batch with
  rows after the newest batch that moved its watermark.

A table whose sources send nothing is not stale, however old its newest step is.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from assets.contracts import DerivedAsset
from platform_defs.engine.advance.corrections import unread_corrections
from platform_defs.engine.advance.held_back import find_holding_source
from platform_defs.engine.advance.position import position_of
from platform_defs.engine.advance.step_size import can_change_rows
from platform_defs.engine.inputs.progress import Progress, progress_at, stored_progress
from platform_defs.engine.inputs.timelines import operator_timeline
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.ledger.clocks import time_of_batch
from platform_defs.engine.ledger.watermarks import or_before_all


@dataclass(frozen=True)
class Staleness:
    """Rows that a table does not reflect yet.

    Args:
        since: the wall clock at the batch since which the table waits, in epoch ms.
        held_back_by: the source that holds back the watermark; None if an advance of the table, or of a table that it reads, is missing.
        behind: the table whose advance is missing: the table itself, or one that it reads.
    """

    since: int
    held_back_by: str | None = None
    behind: str | None = None


@dataclass(frozen=True)
class Freshness:
    """Reports since when tables wait.

    Args:
        workspace: the lake and its ledger; it needs no session.
    """

    workspace: Workspace
    _waits: dict[str, Staleness | None] = field(default_factory=dict, compare=False)

    def waiting(self, asset: str) -> Staleness | None:
        """Since when an asset's table waits, and the reason; None if it reflects all rows that it can, or if its sources send nothing."""
        if asset not in self._waits:
            self._waits[asset] = self._waiting(asset)
        return self._waits[asset]

    def unhandled_rows(self, asset: str) -> int:
        """The accepted rows of an asset's own sources in batches after the newest batch that its table has handled."""
        table, ledger = self.workspace.assets[asset], self.workspace.ledger
        seq = stored_progress(self.workspace.lake, table).seq
        sources = [name for name in dict.fromkeys(table.inputs) if name in self.workspace.sources]
        return sum(sum(ledger.source(name).table(["accepted"], seq, ledger.head)["accepted"].to_pylist()) for name in sources)

    def _waiting(self, asset: str) -> Staleness | None:
        if not self.workspace.ledger.head:
            return None
        table = self.workspace.assets[asset]
        now = stored_progress(self.workspace.lake, table)
        seq = self._seq_behind(table, now)
        waits = [] if seq is None else [Staleness(self._time(seq), behind=asset)]
        upstream = [
            upstream_wait
            for upstream_table in self.workspace.tables_of(table)
            if (upstream_wait := self.waiting(upstream_table.name)) is not None and upstream_wait.behind
        ]
        waits_held_back = [] if waits or upstream else self._waits_for_sources(table)
        return min([*upstream, *waits, *waits_held_back], key=lambda waiting: waiting.since, default=None)

    def _seq_behind(self, table: DerivedAsset, now: Progress) -> int | None:
        """The first batch that the table does not reflect but an advance of it would; None if there is none."""
        if table.operator.reads.closes_ranges:
            position = position_of(self.workspace, table, now)
            closed_to = or_before_all(position.closed_to)
            can_close = position.watermark is not None and position.watermark > closed_to
            seqs = [self._seq_above(table, closed_to)] if can_close else []
            unread = [self._seq_of_step(name, now.read) for name in position.tables] if unread_corrections(position) else []
        else:
            seqs = self._seqs_with_rows(table, now.seq)
            unread = [self._seq_of_step(upstream_table.name, now.read) for upstream_table in self.workspace.tables_of(table)]
        return min([seq for seq in [*seqs, *unread] if seq is not None], default=None)

    def _seq_above(self, table: DerivedAsset, closed_to: int) -> int:
        """The first batch after which the operator's watermark is above `closed_to`."""
        after = operator_timeline(self.workspace, table).after
        return bisect_right(range(len(after)), closed_to, key=lambda seq: or_before_all(after[seq]))

    def _seqs_with_rows(self, table: DerivedAsset, after: int) -> list[int]:
        """The first batches after a batch that change an upserted table: one of each source with new rows."""
        ledger = self.workspace.ledger
        if not can_change_rows(ledger.history, table, after, ledger.head):
            return []
        seqs_by_source = [ledger.source(name).batches_with_rows(after)["seq"] for name in table.inputs if name in self.workspace.sources]
        return [seqs[0].as_py() for seqs in seqs_by_source if len(seqs)] or [after + 1]  # a TTL can end without new rows

    def _seq_of_step(self, upstream: str, read: Mapping[str, int]) -> int | None:
        """The newest batch that the first unread step of an upstream table has handled, at least 1; None if all steps are read."""
        upstream_table, step = self.workspace.assets[upstream], read.get(upstream, 0) + 1
        newest = stored_progress(self.workspace.lake, upstream_table)
        if newest.step < step:
            return None
        progress_of_step = progress_at(self.workspace.lake, upstream_table, step) or newest
        return max(1, min(progress_of_step.seq, self.workspace.ledger.head))

    def _waits_for_sources(self, table: DerivedAsset) -> list[Staleness]:
        """The wait for another source: rows arrived after the watermark last moved, and a source without such rows holds it back."""
        holder = find_holding_source(self.workspace, table.name)
        if holder is None:
            return []
        after, ledger = operator_timeline(self.workspace, table).after, self.workspace.ledger
        moved_in = bisect_left(range(len(after)), or_before_all(after[-1]), key=lambda seq: or_before_all(after[seq]))
        sources = self.workspace.input_named(table.name).sources
        since = {name: ledger.source(name).batches_with_rows(moved_in)["seq"] for name in sources}
        firsts = [seqs[0].as_py() for seqs in since.values() if len(seqs)]
        if not firsts or len(since[holder.source]):
            return []
        return [Staleness(self._time(min(firsts)), held_back_by=holder.source)]

    def _time(self, seq: int) -> int:
        ledger = self.workspace.ledger
        return time_of_batch(ledger.history.clocks, seq, ledger.wall_clock())
