"""Deliberate differences between Flink's interval joins and ours: rules on the content of a case, each with its reason.

`docs/explanation/flink.md` describes them for users. No rule names a case.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tests.oracle.cases import DATASTREAM, Case
from tests.support.model import Event, Mark, Side, split_late

EVICTED = "Flink had evicted the earlier row: it evicts a row at the watermark at which the last match can still arrive"
NOT_CACHED = "Flink SQL had not cached the earlier row: its watermark had reached the time of the row's last possible match"
CACHE_BUG = "Flink SQL's cache is broken at event times of 0 and below"
LATE_JOINED = "Flink SQL joins a late row with cached rows; ours is in the late view"
LATE_PADDED = "Flink SQL emits a late row as unmatched; ours is in the late view"
PARTNER_LOST = "Flink SQL emitted a row as unmatched, since it had lost the matching row"
PARTNER_LATE = "Flink SQL joined the row with a late one; ours is unmatched"
SOONER = "Flink SQL emitted an unmatched row earlier than by its own rule; the input has no end, and ours is pending"
LATER = "Flink SQL has one timer for each key, which had not fired for the row; the input has no end"

Pair = tuple[Event, Event]


@dataclass(frozen=True)
class Flink:
    """Flink's treatment of a case's rows, derived from its content."""

    case: Case

    @cached_property
    def on_time(self) -> list[Event]:
        """The rows that are on time by our rule."""
        return split_late(self.case.stream)[0]

    @cached_property
    def late(self) -> list[Event]:
        """The late rows by our rule."""
        return split_late(self.case.stream)[1]

    @cached_property
    def lost(self) -> list[tuple[Pair, str]]:
        """The pairs of on-time rows that Flink does not find, or may not find, each with the reason."""
        why = self._evicted if self.case.operator == DATASTREAM else self._uncached
        reasons = ((pair, why(*sorted(pair, key=lambda row: row.step))) for pair in self.case.params.model.pairs(self.on_time))
        return [(pair, reason) for pair, reason in reasons if reason]

    @cached_property
    def gained(self) -> list[Pair]:
        """The pairs within the bounds that contain a late row."""
        late = {row.step for row in self.late}
        if not late:
            return []
        return [pair for pair in self.case.params.model.pairs(self.case.events) if any(row.step in late for row in pair)]

    @property
    def is_clean(self) -> bool:
        """Whether Flink and this engine must agree exactly."""
        return not self.late and not self.lost and all(row.ts > 0 for row in self.case.events)

    def _evicted(self, earlier: Event, later: Event) -> str | None:
        """Flink buffers a row while `watermark < ts + wait`."""
        watermark = self._watermark(later.step)
        is_evicted = watermark is not None and watermark >= earlier.ts + self.case.params.model.wait(earlier.side)
        return EVICTED if is_evicted else None

    def _uncached(self, earlier: Event, later: Event) -> str | None:
        if self._operator_time(earlier.step) >= earlier.ts + self._size(earlier.side):
            return NOT_CACHED if earlier.ts > 0 else CACHE_BUG
        is_not_searched = later.ts + self._size(later.side) <= 0
        return CACHE_BUG if is_not_searched or self.dropped(earlier, later.step) else None

    @property
    def never_cached(self) -> list[Event]:
        """The rows that Flink SQL emits unmatched at once, since its operator time is never below 0."""
        return [row for row in self.on_time if row.ts + self._size(row.side) <= 0]

    def dropped(self, row: Event, before: int) -> bool:
        """Whether a clean-up may have removed a row too early: it drops the whole cache of a key if it still contains a time <= 0."""
        cleanups = self._cleanups.get((row.side, row.key), ())
        following = bisect_right(cleanups, row.step)
        return following < len(cleanups) and cleanups[following] < before

    @cached_property
    def _cleanups(self) -> dict[tuple[Side, object], list[int]]:
        """By side and key, the steps of the watermarks that leave a time <= 0 in the cache."""
        newest: dict[tuple[Side, object], int] = {}
        found = defaultdict[tuple[Side, object], list[int]](list)
        for step, item in enumerate((*self.case.stream, *([Mark(self.case.high)] if self.case.drained else ()))):
            if isinstance(item, Event):
                if item.ts <= 0:
                    newest[item.side, item.key] = max(item.ts, newest.get((item.side, item.key), item.ts))
                continue
            for (side, key), ts in newest.items():
                if ts > max(item.ts, 0) - self._size(side) - 1:
                    found[side, key].append(step)
        return found

    def _size(self, side: Side) -> int:
        """How far after a row's own time its last possible match is; below zero if all matches are earlier."""
        model = self.case.params.model
        return model.last if side == "L" else -model.first

    @cached_property
    def _marks(self) -> tuple[list[int], list[int]]:
        marks = [(step, item.ts) for step, item in enumerate(self.case.stream) if isinstance(item, Mark)]
        return [step for step, _ in marks], [ts for _, ts in marks]

    def _watermark(self, step: int) -> int | None:
        steps, marks = self._marks
        before = bisect_right(steps, step)
        return max(marks[:before]) if before else None

    def _operator_time(self, step: int) -> int:
        return max(self._watermark(step) or 0, 0)

    def overtaken(self, rows: Iterable[Event]) -> list[Event]:
        """The unmatched rows that the timer of a later row delays, if the input has no end."""
        last, newest = self.case.last_mark, dict[tuple[Side, object], int]()
        found = list[Event]()
        wanted = {row.step for row in rows}
        for row in self.case.events:
            key = row.side, row.key
            if row.step in wanted and last is not None and newest.get(key, row.ts) + self._size(row.side) >= last:
                found.append(row)
            newest[key] = max(row.ts, newest.get(key, row.ts))
        return found


def rows_of_pairs(pairs: Sequence[Pair]) -> list[Event]:
    """The rows of pairs, without repetitions."""
    return list({row.step: row for pair in pairs for row in pair}.values())
