"""Where an asset stands: everything that its next step is planned from, read from commits and the ledger without a Spark job."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from assets.contracts import DerivedAsset
from platform_defs.engine.inputs.changelog_reader import FOLDED
from platform_defs.engine.inputs.progress import Progress, stored_progress
from platform_defs.engine.inputs.reader import Reading
from platform_defs.engine.ledger.history import History


@dataclass(frozen=True)
class Stretch:
    """Event times of an input's changed rows, both ends included, in epoch ms."""

    first: int
    last: int


@dataclass(frozen=True)
class Applied:
    """How much of its changelog an upserted table holds.

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
        applied: of an upserted table, how much of its changelog it holds; None while it holds nothing.
    """

    asset: DerivedAsset
    progress: Progress
    applied: Applied | None = None

    @property
    def watermark(self) -> int | None:
        """The watermark that its readers may go up to; None while no result is final."""
        closed_to = self.progress.closed_to
        return None if closed_to is None else closed_to - self.asset.operator.reads.watermark_delay

    def corrected_since(self, step: int) -> Iterator[Stretch]:
        """The times of the results that it corrected after one of its steps, as its readers see them."""
        for of, first, last in self.progress.corrected:
            if of > step:
                yield Stretch(first - self.asset.operator.reads.watermark_delay, last)


@dataclass(frozen=True)
class Position:
    """Where an asset stands.

    Args:
        asset: the asset.
        progress: how far its own steps have come.
        ledger: the ledger's batches.
        head: the last batch that a step may handle.
        operator_watermark: the watermark by which its rows are late or not, after batch `head`; None while it is minus infinity.
        tables: the tables among its inputs, by name.
    """

    asset: DerivedAsset
    progress: Progress
    ledger: History
    head: int
    operator_watermark: int | None = None
    tables: Mapping[str, Upstream] = field(default_factory=dict)

    @property
    def watermark(self) -> int | None:
        """The watermark that a step may close up to: held back by tables that have not come so far, and never above the operator's."""
        marks = [self.operator_watermark, *[of.watermark for of in self.tables.values()]]
        return None if any(mark is None for mark in marks) else min(mark for mark in marks if mark is not None)

    def read_of(self, table: str) -> int:
        """The last step of an input that the asset has read; 0 for none."""
        return self.progress.read.get(table, 0)


def position_of(reading: Reading, asset: DerivedAsset, now: Progress, head: int | None = None) -> Position:
    """Where an asset stands.

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
    commit = reading.lake.newest(asset.name, FOLDED) if asset.operator.emits.upserts else None
    applied = None if commit is None else Applied(commit.value["step"], commit.value["seq"])
    return Upstream(asset, stored_progress(reading.lake, asset), applied)
