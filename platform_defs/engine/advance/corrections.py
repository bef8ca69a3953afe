"""Corrections: find the closed results that change because of rows within the allowed lateness, or because an input was corrected.

An asset's progress records the range of results that each step corrected, and for each input table the last step that was read. So a
correction propagates downstream: each asset reads the corrected ranges that its input tables recorded, and recomputes the results that a
correction affects.
"""

from collections.abc import Callable, Mapping, Sequence

from assets.contracts import DerivedAsset
from operators.timing import ClosedRange
from platform_defs.engine.advance.position import EventTimeRange, Position
from platform_defs.engine.inputs.progress import Corrected
from platform_defs.engine.inputs.span import Span

MAX_RANGES = 32
"""The maximum number of corrected ranges in a progress; beyond it, neighbouring ranges are combined."""
RowTimes = Callable[[int, Span], tuple[int, int] | None]
"""Takes an input's index and a span; returns the oldest and the newest event time of the new rows that are not late, or None without such
rows."""


def _is_correctable(asset: DerivedAsset) -> bool:
    """Whether an asset closes ranges and appends results, so that a later change of a result is a correction."""
    return asset.operator.reads.closes_ranges and not asset.operator.emits.upserts


def is_corrected(asset: DerivedAsset, assets: Mapping[str, DerivedAsset]) -> bool:
    """Whether closed results of an asset may be corrected: its operator allows lateness, or one of its inputs is corrected or upserted.

    Args:
        asset: the asset.
        assets: all assets, by name, each after those that it reads.
    """
    changing = set[str]()  # the tables that are corrected or upserted
    for name, table in assets.items():
        is_correctable = table.operator.reads.lateness > 0 or not changing.isdisjoint(table.inputs)
        if table.operator.emits.upserts or (_is_correctable(table) and is_correctable):
            changing.add(name)
    return _is_correctable(asset) and asset.name in changing


def affected_results(position: Position, row_times: RowTimes) -> ClosedRange | None:
    """The closed results that rows of new batches, or corrections of inputs, may change; None if there are none.

    A changed row at `t` affects results with `t <= final_at <= t + influence` (see `Reads.influence_of`). `row_times` is called only if the
    ledger records new rows that are old enough to affect closed results.
    """
    closed_to, reads = position.progress.closed_to, position.asset.operator.reads
    if closed_to is None or not _is_correctable(position.asset):
        return None
    ends = _ends_of_unread_corrections(position)
    for index, name in enumerate(position.asset.inputs):
        allows_lateness = name not in position.tables and reads.lateness
        times = _correcting_times(position, index, closed_to, row_times) if allows_lateness else None
        ends += [] if times is None else [(times.first - 1, times.last + reads.influence_of(index))]
    if not ends or min(after for after, _ in ends) >= closed_to:
        return None
    return ClosedRange(min(after for after, _ in ends), min(closed_to, max(upto for _, upto in ends)))


def unread_corrections(position: Position) -> list[ClosedRange]:
    """The results that may change because of corrections that the asset has not read yet; a range for each correction of an input table."""
    return [ClosedRange(after, upto) for after, upto in _ends_of_unread_corrections(position)]


def _ends_of_unread_corrections(position: Position) -> list[tuple[int, int]]:
    """For each correction of an input table that the asset has not read: `after` and `upto` (epoch ms) of the results that may change."""
    reads = position.asset.operator.reads
    return [
        (correction.first - 1, correction.last + reads.influence_of(index))
        for index, name in enumerate(position.asset.inputs if reads.closes_ranges else ())
        if name in position.tables
        for correction in position.tables[name].corrected
    ]


def oldest_affected_time(position: Position) -> int | None:
    """The approximate time (epoch ms) from which new batches or corrections of inputs may change closed results; None if they cannot.

    It is estimated from the ledger, without a Spark job: a batch may have no row that corrects a result, even if its time range allows one.
    """
    closed_to, reads = position.progress.closed_to, position.asset.operator.reads
    if closed_to is None or not _is_correctable(position.asset):
        return None
    times: list[int] = []
    for index, name in enumerate(position.asset.inputs):
        if name in position.tables:
            times += [correction.first for correction in position.tables[name].corrected]
        elif reads.lateness:
            oldest, influence = closed_to - reads.lateness, reads.influence_of(index)
            times += [
                max(first, oldest) for first, last in _times_of_new_rows(position, name) if first <= closed_to and last + influence > oldest
            ]
    return min((first for first in times if first <= closed_to), default=None)


def _correcting_times(position: Position, index: int, closed_to: int, row_times: RowTimes) -> EventTimeRange | None:
    """The event times of the new rows of an input that are not late and not after `closed_to`; None if there are no such rows."""
    first = min((first for first, _ in _times_of_new_rows(position, position.asset.inputs[index])), default=None)
    if first is None or first > closed_to:
        return None
    ends = row_times(index, Span(first, closed_to))
    return None if ends is None else EventTimeRange(*ends)


def _times_of_new_rows(position: Position, source: str) -> list[tuple[int, int]]:
    """The first and last event time of a source's rows, for each batch that the asset has not handled."""
    batches = position.ledger.source(source).batches_with_rows(position.progress.seq, position.head)
    return list(zip(batches["first_event_time"].to_pylist(), batches["last_event_time"].to_pylist(), strict=True))


def add_correction(corrected: Sequence[Corrected], step: int, first: int, last: int) -> tuple[Corrected, ...]:
    """Add a corrected range. Beyond `MAX_RANGES` two neighbours are combined into one range, with the later step.

    A reader that has not read the later step of a combined range recomputes the whole range, even if it has read the correction of the
    earlier step. The neighbours to combine are those for which this costs the least, relative to how many steps the reader is behind.
    So ranges grow with their age, and a reader that is L steps behind recomputes the corrections of at most about 2 L steps.
    """
    ranges = [*corrected, (step, first, last)]
    if len(ranges) <= MAX_RANGES:
        return tuple(ranges)
    steps = [0, *(recorded for recorded, _, _ in ranges)]  # range n has the corrections of the steps after steps[n], up to steps[n + 1]
    # if n and n + 1 are combined, a reader that is at least step - steps[n + 2] + 1 steps behind recomputes those of step - steps[n] steps
    combined = min(range(MAX_RANGES), key=lambda n: (step - steps[n]) / (step - steps[n + 2] + 1))
    (_, first_1, last_1), (later, first_2, last_2) = ranges[combined : combined + 2]
    ranges[combined : combined + 2] = [(later, min(first_1, first_2), max(last_1, last_2))]
    return tuple(ranges)
