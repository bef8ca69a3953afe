"""The position of an asset: everything from which its next step is planned, read from commits and the ledger without a Spark job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from assets.contracts import DerivedAsset
from platform_defs.engine.inputs.changelog_reader import APPLIED
from platform_defs.engine.inputs.progress import Progress, stored_progress
from platform_defs.engine.inputs.reader import Reading
from platform_defs.engine.ledger.history import History


@dataclass(frozen=True)
class EventTimeRange:
    """Event times of an input's changed rows, both ends included, in epoch ms."""

    first: int
    last: int


@dataclass(frozen=True)
class Applied:
    """Up to where a changelog was applied to its upserted table.

    Args:
        step: the last step of the changelog that was applied to the table.
        seq: the last batch that this step handled.
    """

    step: int
    seq: int


@dataclass(frozen=True)
class Upstream:
    """A table that an asset reads.

    Args:
        asset: the asset that makes the table.
        progress: that asset's progress.
        applied: for an upserted table, up to where its changelog was applied; None if nothing was applied yet.
    """

    asset: DerivedAsset
    progress: Progress
    applied: Applied | None = None

    @property
    def watermark(self) -> int | None:
        """The watermark up to which its readers may close results; None while no result of the table is final."""
        closed_to = self.progress.closed_to
        return None if closed_to is None else closed_to - self.asset.operator.reads.watermark_delay

    def corrected_since(self, step: int) -> Iterator[EventTimeRange]:
        """For each step after `step` that corrected results: the event times that these results have for the table's readers."""
        for corrected_in, first, last in self.progress.corrected:
            if corrected_in > step:
                yield EventTimeRange(first - self.asset.operator.reads.watermark_delay, last)


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
    """

    asset: DerivedAsset
    progress: Progress
    ledger: History
    head: int
    operator_watermark: int | None = None
    tables: Mapping[str, Upstream] = field(default_factory=dict)

    @property
    def watermark(self) -> int | None:
        """The watermark up to which a step may close results: the least of the operator's own and those of the input tables."""
        marks = [self.operator_watermark, *[of.watermark for of in self.tables.values()]]
        return None if any(mark is None for mark in marks) else min(mark for mark in marks if mark is not None)

    def read_of(self, table: str) -> int:
        """The last step of an input that the asset has read; 0 for none."""
        return self.progress.read.get(table, 0)


def position_of(reading: Reading, asset: DerivedAsset, now: Progress, head: int | None = None) -> Position:
    """The position of an asset.

    Args:
        reading: reads the lake and its ledger; it needs no session.
        asset: the asset.
        now: its progress.
        head: the last batch that a step may handle; by default the ledger's newest.
    """
    ledger = reading.ledger.history
    head = ledger.head if head is None else head
    tables = {of.name: _upstream(reading, of) for of in reading.tables_of(asset)}
    return Position(asset, now, ledger, head, reading.operator_timeline(asset).after[head], tables)


def _upstream(reading: Reading, asset: DerivedAsset) -> Upstream:
    commit = reading.lake.newest(asset.name, APPLIED) if asset.operator.emits.upserts else None
    applied = None if commit is None else Applied(commit.value["step"], commit.value["seq"])
    return Upstream(asset, stored_progress(reading.lake, asset), applied)
