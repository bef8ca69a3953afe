"""Operators with the declarations of the real ones, computed over tuples instead of Spark columns."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from operators import AsOfJoin, IntervalJoin, WindowedAggregate
from tests.hunt.frames import COUNTS, PAIRS, Rows


@dataclass(frozen=True, kw_only=True)
class SimJoin(IntervalJoin):
    """An interval join over tuples."""

    def is_late(self, time: int, watermark: int | None) -> bool:
        return watermark is not None and time + self.lateness.ms < watermark

    def wait(self, which: int) -> int:
        return (self.interval.forward, self.interval.backward)[which]

    def __call__(self, *frames: Any) -> Any:
        left, right = frames
        by_key: dict[Any, list[Any]] = {}
        for row in right:
            if row[3] is not None:
                by_key.setdefault(row[3], []).append(row)
        lower, upper = self.interval.lower, self.interval.upper
        results, paired = list[Any](), set[Any]()
        for one in left:
            pairs = [other for other in by_key.get(one[3], ()) if lower <= other[2] - one[2] <= upper]
            paired.update((other[0], other[1]) for other in pairs)
            results += [_pair(one, other, max(one[2], other[2])) for other in pairs]
            if not pairs and self.keeps_unmatched(0):
                results.append(_pair(one, None, one[2] + self.wait(0)))
        if self.keeps_unmatched(1):
            results += [_pair(None, other, other[2] + self.wait(1)) for other in right if (other[0], other[1]) not in paired]
        return Rows(PAIRS, results)


def _pair(one: Any, other: Any, time: int) -> tuple[Any, ...]:
    sides = (*(one[:3] if one else (None,) * 3), *(other[:3] if other else (None,) * 3))
    return ((one or other)[3], *sides, time, time + 1)


@dataclass(frozen=True, kw_only=True)
class SimAsOf(AsOfJoin):
    """An as-of join over tuples, which keeps left rows without a version."""

    def is_late(self, time: int, watermark: int | None) -> bool:
        return watermark is not None and time + self.lateness.ms < watermark

    def wait(self, which: int) -> int:
        return 0

    def __call__(self, *frames: Any) -> Any:
        left, right = frames
        by_key: dict[Any, list[Any]] = {}
        for row in sorted(right, key=lambda row: (row[2], row[0], row[1])):
            by_key.setdefault(row[3], []).append(row)
        results = list[Any]()
        for one in left:
            versions = by_key.get(one[3], []) if one[3] is not None else []
            known = bisect_right(versions, one[2], key=lambda row: row[2])
            results.append(_pair(one, versions[known - 1] if known else None, one[2]))
        return Rows(PAIRS, results)


@dataclass(frozen=True, kw_only=True)
class SimCount(WindowedAggregate):
    """A count of rows by key and tumbling window, over tuples."""

    @property
    def size(self) -> int:
        return self.window.longest

    def last(self, time: int) -> int:
        """The last millisecond of the window that contains a time."""
        return time - time % self.size + self.size - 1

    def is_late(self, time: int, watermark: int | None) -> bool:
        return watermark is not None and self.last(time) + self.lateness.ms <= watermark

    def __call__(self, *frames: Any) -> Any:
        [rows] = frames
        at, key = rows.at("event_time"), rows.at("k")
        counts: dict[tuple[Any, int], int] = {}
        for row in rows:
            window = row[key], self.last(row[at])
            counts[window] = counts.get(window, 0) + 1
        return Rows(COUNTS, [(k, last + 1 - self.size, last + 1, n, last, last) for (k, last), n in counts.items()])


def difference(held: Iterable[Any], wanted: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """The superfluous and the missing rows, copies counted."""
    left = list(wanted)
    extra = [row for row in held if not (row in left and (left.remove(row) or True))]
    return extra, left
