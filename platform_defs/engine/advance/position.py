"""The position of an asset: everything from which its next step is planned, read from commits and the ledger without a Spark job."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from assets.contracts import DerivedAsset
from operators.changelog import STEP
from operators.engine_columns import EVENT_TIME
from platform_defs.engine.advance.step_size import can_change_rows
from platform_defs.engine.inputs.changelog_reader import APPLIED
from platform_defs.engine.inputs.progress import Progress, stored_progress
from platform_defs.engine.inputs.result_rows import watermark_without_waiting
from platform_defs.engine.inputs.retained import kept_days_of
from platform_defs.engine.inputs.timelines import input_timeline, operator_timeline
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.ledger.history import History

_FIRST_TIME, _LAST_TIME = -62_135_596_800_000, 253_402_300_799_999
"""The first and the last time of a Spark timestamp, in epoch ms."""


@dataclass(frozen=True)
class EventTimeRange:
    """Event times of an input's changed rows, both ends included, in epoch ms."""

    first: int
    last: int


@dataclass(frozen=True)
class CompleteUpTo:
    """The step and the batch up to which the rows of a table are complete.

    Args:
        step: the table's newest step whose rows can be read; for an upserted table, the last step of its changelog that was applied.
        seq: the last batch that this step handled.
    """

    step: int
    seq: int


@dataclass(frozen=True)
class Upstream:
    """A table that an asset reads.

    Args:
        asset: the asset that makes the table.
        complete: up to where the table's rows are complete; None if no step of it can be read yet.
        watermark: the watermark up to which the table's reader may close results; None while it is minus infinity.
        corrected: the event times of rows that were corrected, replaced or deleted since the reader's last step; for an upserted table,
            those of all changed rows.
    """

    asset: DerivedAsset
    complete: CompleteUpTo | None = None
    watermark: int | None = None
    corrected: tuple[EventTimeRange, ...] = ()

    @classmethod
    def of_results(cls, asset: DerivedAsset, now: Progress, read: int, watermark_without_waiting: int | None = None) -> "Upstream":
        """A table of final results.

        Args:
            asset: the asset that makes the table.
            now: that asset's progress.
            read: the last step that its reader has read.
            watermark_without_waiting: the watermark up to which the reader may close results even if the table lacks results, because
                these will be late for the reader; None if there is none.
        """
        delay = asset.operator.reads.watermark_delay
        corrected = tuple(EventTimeRange(first - delay, last) for step, first, last in now.corrected if step > read)
        own_watermark = None if now.closed_to is None else now.closed_to - delay
        watermark = max((bound for bound in (own_watermark, watermark_without_waiting) if bound is not None), default=None)
        return cls(asset, CompleteUpTo(now.step, now.seq) if now.step else None, watermark, corrected)


@dataclass(frozen=True)
class Position:
    """The position of an asset.

    Args:
        asset: the asset.
        progress: the asset's progress.
        ledger: the ledger's batches.
        head: the last batch that a step may handle.
        operator_watermark: the operator's watermark after batch `head`; None while it is minus infinity.
        tables: the tables among the inputs, by name.
        starts_after: the `final_at` after which a table without a step begins, because its inputs have lost older rows; None for the
            beginning.
    """

    asset: DerivedAsset
    progress: Progress
    ledger: History
    head: int
    operator_watermark: int | None = None
    tables: Mapping[str, Upstream] = field(default_factory=dict)
    starts_after: int | None = None

    @property
    def closed_to(self) -> int | None:
        """The watermark after which the next step closes; None for the beginning."""
        return self.starts_after if self.progress.closed_to is None else self.progress.closed_to

    @property
    def watermark(self) -> int | None:
        """The watermark up to which a step may close results: the least of the operator's and the input tables'; None if one is None."""
        watermarks = [self.operator_watermark, *[table.watermark for table in self.tables.values()]]
        return None if None in watermarks else min(watermark for watermark in watermarks if watermark is not None)

    @property
    def waits_for(self) -> list[str]:
        """The tables that must be advanced before a step can close results up to the operator's own watermark."""
        watermark = self.operator_watermark
        return (
            []
            if watermark is None
            else [name for name, table in self.tables.items() if table.watermark is None or table.watermark < watermark]
        )

    def read_of(self, table: str) -> int:
        """The last step of an input that the asset has read; 0 for none."""
        return self.progress.read.get(table, 0)


def position_of(workspace: Workspace, asset: DerivedAsset, now: Progress, head: int | None = None) -> Position:
    """The position of an asset.

    Args:
        workspace: the lake and its ledger; it needs no session.
        asset: the asset.
        now: its progress.
        head: the last batch that a step may handle; by default the ledger's newest.
    """
    ledger = workspace.ledger.history
    head = ledger.head if head is None else head
    read = {table.name: now.read.get(table.name, None if now.closed_to is None else 0) for table in workspace.tables_of(asset)}
    tables = {table.name: _upstream(workspace, asset, table, read[table.name], head) for table in workspace.tables_of(asset)}
    kept_days = kept_days_of(workspace, asset) if now.closed_to is None and asset.operator.reads.closes_ranges else None
    start = None if kept_days is None else kept_days.first - 1
    return Position(asset, now, ledger, head, operator_timeline(workspace, asset).after[head], tables, start)


def _upstream(workspace: Workspace, asset: DerivedAsset, table: DerivedAsset, read: int | None, head: int) -> Upstream:
    """A table that an asset reads.

    Args:
        workspace: the lake and its ledger.
        asset: the reader.
        table: the asset that makes the table.
        read: the last step of the table that the reader has read; None for a reader that has closed nothing yet.
        head: the last batch that the reader may handle.
    """
    if table.operator.emits.upserts:
        commit = workspace.lake.newest_commit(table.name, APPLIED)
        complete = None if commit is None else CompleteUpTo(commit.value["step"], commit.value["seq"])
        watermark = _watermark_of_upserted(workspace, asset, table, complete or CompleteUpTo(0, 0), head)
        changed = () if complete is None or read is None else _changed_times(workspace, table, read, complete.step)
        return Upstream(table, complete, watermark, changed)
    now = stored_progress(workspace.lake, table)
    return Upstream.of_results(table, now, read or 0, watermark_without_waiting(workspace, asset, table, now.closed_to, head))


def _watermark_of_upserted(workspace: Workspace, asset: DerivedAsset, table: DerivedAsset, complete: CompleteUpTo, head: int) -> int | None:
    """The watermark up to which an upserted table `table` has all rows. The table need not exist if it has no row yet.

    It is the watermark of the table's operator after the last batch that the table has handled; later batches that cannot change its rows
    count as handled. If the table reads another table, it is at most the watermark of that other table, and None while the table has not
    read the newest step of it. While the table has handled all batches and all of its sources are idle, it is the watermark of the reader:
    every later change of the table corrects the reader's results.
    """
    seq = head if not can_change_rows(workspace.ledger.history, table, complete.seq, head) else min(complete.seq, head)
    if input_timeline(workspace, table.name).idle[seq] and seq == head:
        return operator_timeline(workspace, asset).after[seq]
    watermarks = [operator_timeline(workspace, table).after[seq]]
    now = stored_progress(workspace.lake, table)
    for input_table in workspace.tables_of(table):
        upstream = _upstream(workspace, table, input_table, None, head)
        is_newest = upstream.complete is not None and upstream.complete.step == now.read.get(input_table.name, 0)
        watermarks.append(upstream.watermark if is_newest else None)
    return None if None in watermarks else min(watermark for watermark in watermarks if watermark is not None)


def _changed_times(workspace: Workspace, table: DerivedAsset, last_read: int, upto: int) -> tuple[EventTimeRange, ...]:
    """The event times of the changes of an upserted table in the steps `last_read < step <= upto`, from the statistics of its changelog."""
    ends = workspace.lake.time_extent(table.changelog, EVENT_TIME, {STEP: (last_read + 1, upto)}) if last_read < upto else None
    if ends is None:
        return ()
    first, last = ends
    return (EventTimeRange(_FIRST_TIME if first is None else first, _LAST_TIME if last is None else last),)
