"""How far one step may go, so that memory stays bounded however long the backlog is."""

from collections.abc import Iterable, Sequence

from assets.contracts import DerivedAsset
from operators.contract import Closed, Touched
from platform_defs.engine.ledger import SourceEntry
from platform_defs.engine.reading import Reading


def changes_something(asset: DerivedAsset, entries: Iterable[Sequence[SourceEntry]]) -> bool:
    """Whether entries can change the rows of an asset that handles entries: by a row; or by the time, where keys live for some."""
    reads = asset.operator.reads
    by = reads.lives_by if isinstance(reads, Touched) and reads.lives is not None else None
    if by == "processing":  # the clock, which every entry moves, whatever source it is of
        return any(entries)
    return any((s.accepted or by) and s.source in asset.inputs for entry in entries for s in entry)


def cut_entries(reading: Reading, asset: DerivedAsset, after: int, head: int, max_step: int) -> int:
    """The last entry of a step that handles entries: as many as hold `max_step` rows, and at least one that holds some."""
    rows = 0
    for entry in reading.ledger.entries()[after:head]:
        more = sum(s.accepted for s in entry if s.source in asset.inputs)
        if rows and rows + more > max_step:
            return entry[0].seq - 1
        rows += more
    return head


def cut_time(reading: Reading, asset: DerivedAsset, after: int | None, upto: int, head: int, max_step: int) -> int:
    """The watermark that a step closes up to: as far as it reads `max_step` rows, about, and at least 1 ms.

    The ledger tells how many rows each entry brought and between which times; inside an entry they are taken to be
    spread evenly. A derived input is not counted: its rows are bounded by those of the sources.
    """
    told = [s for entry in reading.ledger.entries()[:head] for s in entry if s.source in asset.inputs and s.accepted]
    if not told:
        return upto
    first = min(s.first_event_time for s in told if s.first_event_time is not None) - 1
    low = first if after is None else max(after, first)
    reads = asset.operator.reads
    reach = max(reads.reach) if isinstance(reads, Closed) else 0
    if low >= upto or _rows(told, low - reach, upto) <= max_step:
        return upto
    budget = max(max_step, _rows(told, low - reach, low) + max_step // 4)
    floor, high = low, upto
    while high - floor > 1:
        middle = (floor + high) // 2
        floor, high = (middle, high) if _rows(told, low - reach, middle) <= budget else (floor, middle)
    return max(floor, low + 1)


def _rows(told: Iterable[SourceEntry], after: int, upto: int) -> float:
    """About how many rows lie in `after < event_time <= upto`."""
    return sum(s.accepted * _share(s.first_event_time or 0, s.last_event_time or 0, after, upto) for s in told)


def _share(first: int, last: int, after: int, upto: int) -> float:
    """The share of the whole milliseconds from `first` to `last` that lie in `(after, upto]`."""
    return max(0, min(last, upto) - max(first - 1, after)) / (last - first + 1)
