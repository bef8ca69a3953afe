"""Corrections: which results that were closed before may differ now, because of rows within the allowed lateness or corrected inputs.

An asset's progress tells which of its results each step corrected, and up to which step it has followed each of its
derived inputs. So a correction goes down a chain of assets by recomputing, from the tables alone, the stretch of time it touched.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from assets.contracts import DerivedAsset
from operators.contract import Append, ByTimeRange
from operators.timing import ClosedRange
from platform_defs.engine.inputs.progress import Corrected, Progress, stored_progress
from platform_defs.engine.inputs.reader import Reading, Span

MOST_KEPT = 32
"""How many corrected stretches a progress names; older ones are joined."""


@dataclass(frozen=True)
class _Stretch:
    """Event times of an input's changed rows, both ends included, in epoch ms."""

    first: int
    last: int


def is_corrected(reading: Reading, asset: DerivedAsset) -> bool:
    """Whether an asset's closed results may be corrected: its operator allows lateness, or one of its inputs is corrected."""
    reads = asset.operator.reads
    if not isinstance(asset.operator.emits, Append) or not isinstance(reads, ByTimeRange):
        return False
    return reads.lateness > 0 or any(is_corrected(reading, reading.assets[name]) for name in asset.inputs if name in reading.assets)


def inputs_read(reading: Reading, asset: DerivedAsset) -> dict[str, int]:
    """The steps of its derived inputs whose corrections an asset follows by reading them now."""
    return {name: stored_progress(reading.lake, reading.assets[name]).step for name in asset.inputs if name in reading.assets}


def affected_results(reading: Reading, asset: DerivedAsset, now: Progress, head: int) -> ClosedRange | None:
    """The closed results that rows of new entries, or corrections of derived inputs, may change; None where there are none.

    A changed row at `t` touches results with `t <= final_at <= t + reach + delay`. A Spark job is run only where the ledger
    records new rows so far back.
    """
    reads = asset.operator.reads
    if now.closed_to is None or not isinstance(reads, ByTimeRange) or not isinstance(asset.operator.emits, Append):
        return None
    ends = [(r.after or 0, r.upto) for r in not_followed(reading, asset, now)]
    for which, name in enumerate(asset.inputs):
        late = _come_late(reading, asset, which, now, head) if name not in reading.assets and reads.lateness else []
        ends += [(s.first - 1, s.last + reads.reach[which] + reads.delay) for s in late]
    if not ends or min(after for after, _ in ends) >= now.closed_to:
        return None
    return ClosedRange(min(after for after, _ in ends), min(now.closed_to, max(upto for _, upto in ends)))


def not_followed(reading: Reading, asset: DerivedAsset, now: Progress) -> list[ClosedRange]:
    """The results that corrections of derived inputs may change which the asset has not followed yet."""
    reads, found = asset.operator.reads, list[ClosedRange]()
    for which, name in enumerate(asset.inputs if isinstance(reads, ByTimeRange) else ()):
        if name in reading.assets and isinstance(reads, ByTimeRange):
            upstream = stored_progress(reading.lake, reading.assets[name])
            for s in _corrected(upstream, reading.assets[name], now.read):
                found.append(ClosedRange(s.first - 1, s.last + reads.reach[which] + reads.delay))
    return found


def oldest_affected(reading: Reading, asset: DerivedAsset, now: Progress, head: int) -> int | None:
    """About from when on new entries, or corrections of derived inputs, may change closed results (epoch ms); None where they cannot.

    The ledger tells it, and no Spark job: between the times of an entry's rows there may be none that comes late and is not too late.
    """
    reads = asset.operator.reads
    if now.closed_to is None or not isinstance(reads, ByTimeRange) or not isinstance(asset.operator.emits, Append):
        return None
    found: list[int] = []
    for name, reach in zip(asset.inputs, reads.reach, strict=True):
        if name in reading.assets:
            upstream = stored_progress(reading.lake, reading.assets[name])
            found += [s.first for s in _corrected(upstream, reading.assets[name], now.read)]
        elif reads.lateness:
            oldest = now.closed_to - reads.lateness
            stretches = _brought(reading, name, now.seq, head)
            found += [max(first, oldest) for first, last in stretches if first <= now.closed_to and last + reach + reads.delay > oldest]
    return min((first for first in found if first <= now.closed_to), default=None)


def _corrected(upstream: Progress, asset: DerivedAsset, followed: Mapping[str, int]) -> Iterator[_Stretch]:
    """What an input has corrected since it was followed: the times of its results, which are what its readers see."""
    delay = asset.operator.reads.delay if isinstance(asset.operator.reads, ByTimeRange) else 0
    for step, first, last in upstream.corrected:
        if step > followed.get(asset.name, 0):
            yield _Stretch(first - delay, last)


def _come_late(reading: Reading, asset: DerivedAsset, which: int, now: Progress, head: int) -> list[_Stretch]:
    """Where rows of new entries lie that are not late and not after what is closed."""
    name, closed_to = asset.inputs[which], now.closed_to or 0
    first = min((first for first, _ in _brought(reading, name, now.seq, head)), default=None)
    if first is None or first > closed_to:
        return []
    ends = reading.ends(asset, which, head, Span(first, closed_to), after=now.seq)
    return [] if ends is None else [_Stretch(*ends)]


def _brought(reading: Reading, source: str, after: int, head: int) -> list[tuple[int, int]]:
    """Between which times the rows lie that each of the batches `after < seq <= head` brought of a source."""
    brought = reading.ledger.source(source).brought(after, head)
    return list(zip(brought["first_event_time"].to_pylist(), brought["last_event_time"].to_pylist(), strict=True))


def with_correction(corrected: Sequence[Corrected], step: int, first: int, last: int) -> tuple[Corrected, ...]:
    """The corrected stretches with one more. Beyond `MOST_KEPT` the two oldest are told as one: of the later step, and over both."""
    kept = [*corrected, (step, first, last)]
    if len(kept) > MOST_KEPT:
        (_, first_1, last_1), (later, first_2, last_2) = kept[:2]
        kept[:2] = [(later, min(first_1, first_2), max(last_1, last_2))]
    return tuple(kept)
