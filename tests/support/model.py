"""A naive model of the interval join, with plain loops over lists. Flink's recorded answers are the other reference.

A stream is a list of rows and watermarks in order of arrival. Times are integers, in ms.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

How = Literal["inner", "left", "right", "full"]
Side = Literal["L", "R"]


@dataclass(frozen=True)
class Event:
    """One row: its position in the stream, its side, and its values."""

    step: int
    side: Side
    id: int
    key: Hashable | None
    ts: int
    v: int | None = None


@dataclass(frozen=True)
class Mark:
    """A watermark: a later event is late if its `ts` is below it."""

    ts: int


Stream = Sequence[Event | Mark]
Predicate = Callable[[Event, Event], bool]


@dataclass(frozen=True)
class Joined:
    """One result: a pair, or an unmatched row. From the watermark `final_at` on it cannot change."""

    left: Event | None
    right: Event | None
    result_time: int

    @property
    def final_at(self) -> int:
        return self.result_time + 1


@dataclass(frozen=True)
class Answer:
    """The results of the complete input, and the late rows."""

    rows: list[Joined]
    late: list[Event]

    def closed(self, watermark: int | None) -> list[Joined]:
        """The results that are final at a watermark; None is before all watermarks."""
        return [] if watermark is None else [row for row in self.rows if row.final_at <= watermark]


@dataclass(frozen=True)
class IntervalJoinModel:
    """`left.ts + lower <= right.ts <= left.ts + upper` on equal keys; a null key equals nothing."""

    lower: int
    upper: int
    lower_exclusive: bool = False
    upper_exclusive: bool = False
    how: How = "inner"
    residual: Predicate | None = None

    @property
    def first(self) -> int:
        """The lower bound as an inclusive one."""
        return self.lower + 1 if self.lower_exclusive else self.lower

    @property
    def last(self) -> int:
        """The upper bound as an inclusive one."""
        return self.upper - 1 if self.upper_exclusive else self.upper

    def wait(self, side: Side) -> int:
        """How long after its own time a row can have a match; 0 if only earlier rows can match."""
        return max(0, self.last if side == "L" else -self.first)

    def matches(self, left: Event, right: Event) -> bool:
        """Whether two rows match, late or not."""
        if left.key is None or right.key is None or left.key != right.key:
            return False
        return self.first <= right.ts - left.ts <= self.last and (self.residual is None or self.residual(left, right))

    def pairs(self, rows: Sequence[Event]) -> list[tuple[Event, Event]]:
        """All pairs of matching rows."""
        rights = defaultdict[Hashable, list[Event]](list)
        for row in rows:
            if row.side == "R":
                rights[row.key].append(row)
        return [(left, right) for left in rows if left.side == "L" for right in rights[left.key] if self.matches(left, right)]

    def __call__(self, stream: Stream) -> Answer:
        """Join a stream. Late rows match nothing and are in no result."""
        on_time, late = split_late(stream)
        pairs = self.pairs(on_time)
        matched = {row.step for pair in pairs for row in pair}
        rows = [Joined(left, right, max(left.ts, right.ts)) for left, right in pairs]
        for row in on_time:
            if row.step not in matched and self.how in ("full", "left" if row.side == "L" else "right"):
                sides = (row, None) if row.side == "L" else (None, row)
                rows.append(Joined(*sides, row.ts + self.wait(row.side)))
        return Answer(rows, late)


def split_late(stream: Stream) -> tuple[list[Event], list[Event]]:
    """The rows on time and the late rows: a row is late if its `ts` is below the watermark before it."""
    on_time, late = list[Event](), list[Event]()
    watermark: int | None = None
    for item in stream:
        if isinstance(item, Mark):
            watermark = item.ts if watermark is None else max(watermark, item.ts)
        elif watermark is not None and item.ts < watermark:
            late.append(item)
        else:
            on_time.append(item)
    return on_time, late
