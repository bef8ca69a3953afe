"""A model of Flink's SQL interval join (`TimeIntervalJoin`, heap state): its caches, its one timer for each key, and its defects.

It predicts Flink's result for rows on which this engine differs, so that each difference is derived, and not only excused.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from tests.oracle.cases import Case, Row
from tests.support.model import Event, Joined, Mark, Side

_END = 2**63 - 1
_TREE = 8  # with this many entries in one bucket, Java uses another order


@dataclass
class _Cached:
    row: Event
    joined: bool


@dataclass
class _Cache:
    """The rows of one side and key by time, in the order of a Java `HashMap<Long, ...>`, and the clean-up timer."""

    rows: dict[int, list[_Cached]] = field(default_factory=dict)
    capacity: int = 16
    timer: int | None = None
    buckets: Counter[int] = field(default_factory=Counter)
    crowded: bool = False

    def times(self) -> list[int]:
        """The cached times in the order in which Java iterates over them."""
        return sorted(self.rows, key=self._bucket)

    def add(self, row: Event, joined: bool) -> None:
        """Cache a row."""
        if row.ts not in self.rows:
            self.buckets[self._bucket(row.ts)] += 1
        self.rows.setdefault(row.ts, []).append(_Cached(row, joined))
        while len(self.rows) > self.capacity * 3 // 4:
            self.capacity *= 2
            self.buckets = Counter(map(self._bucket, self.rows))
        self.crowded |= self.buckets[self._bucket(row.ts)] >= _TREE

    def remove(self, time: int) -> list[_Cached]:
        """Remove the rows of a time."""
        self.buckets[self._bucket(time)] -= 1
        return self.rows.pop(time)

    def _bucket(self, time: int) -> int:
        return _spread(time) & (self.capacity - 1)

    def clear(self) -> None:
        """Remove all rows and the timer."""
        self.rows, self.buckets, self.capacity, self.timer = {}, Counter(), 16, None


def _spread(time: int) -> int:
    value = time & (2**64 - 1)
    hashed = (value ^ (value >> 32)) & (2**32 - 1)
    return hashed ^ (hashed >> 16)


class Simulation:
    """Processes the stream of a case as Flink SQL does."""

    def __init__(self, case: Case) -> None:
        model = case.params.model
        self._case, self._model = case, model
        self._size: dict[Side, int] = {"L": model.last, "R": -model.first}
        self._caches: dict[tuple[Side, Hashable], _Cache] = {}
        self._expired: dict[Side, int] = {"L": 0, "R": 0}
        self._time = 0
        self._rows = Counter[Row]()

    def __call__(self) -> Counter[Row]:
        """Flink's rows."""
        for item in (*self._case.stream, *([Mark(_END)] if self._case.drained else ())):
            if isinstance(item, Event):
                self._process_row(item)
            else:
                self._advance(item.ts)
        return self._rows

    @property
    def is_unsure(self) -> bool:
        """Whether the result may depend on an order of a hash map that is not known."""
        return any(row.ts <= 0 for row in self._case.events) and any(cache.crowded for cache in self._caches.values())

    def _process_row(self, row: Event) -> None:
        other: Side = "R" if row.side == "L" else "L"
        if self._model.first > self._model.last:
            self._emit_unmatched(row)
            return
        until, joined = row.ts + self._size[row.side], False
        if self._expired[other] < until:
            self._expired[other] = self._expiration(other)
            joined = self._search(row, self._cache(other, row.key), other)
        if self._time < until:
            cache = self._cache(row.side, row.key)
            cache.add(row, joined)
            cache.timer = row.ts + self._size[row.side] + 1 if cache.timer is None else cache.timer
        elif not joined:
            self._emit_unmatched(row)

    def _search(self, row: Event, cache: _Cache, other: Side) -> bool:
        joined = False
        for time in cache.times():
            for cached in cache.rows[time]:
                pair = (row, cached.row) if row.side == "L" else (cached.row, row)
                if self._model.matches(*pair):
                    self._rows[self._case.row(Joined(*pair, max(row.ts, time)))] += 1
                    joined = cached.joined = True
            if time <= self._expired[other]:
                self._remove(cache, time)
        return joined

    def _advance(self, watermark: int) -> None:
        self._time = max(watermark, 0)
        for (side, _), cache in self._caches.items():
            while cache.timer is not None and cache.timer <= watermark:
                self._expired[side] = self._expiration(side)
                self._clean(cache, side)

    def _clean(self, cache: _Cache, side: Side) -> None:
        earliest = -1
        for time in cache.times():
            if time <= self._expired[side]:
                self._remove(cache, time)
            elif time < earliest or earliest < 0:
                earliest = time
        if earliest > 0:
            cache.timer = earliest + self._size[side] + 1
        else:
            cache.clear()

    def _remove(self, cache: _Cache, time: int) -> None:
        for cached in cache.remove(time):
            if not cached.joined:
                self._emit_unmatched(cached.row)

    def _expiration(self, side: Side) -> int:
        return _END if self._time == _END else self._time - self._size[side] - 1

    def _cache(self, side: Side, key: Hashable) -> _Cache:
        return self._caches.setdefault((side, key), _Cache())

    def _emit_unmatched(self, row: Event) -> None:
        if self._case.params.how in ("full", "left" if row.side == "L" else "right"):
            padded = (row, None) if row.side == "L" else (None, row)
            self._rows[self._case.row(Joined(*padded, row.ts))] += 1
