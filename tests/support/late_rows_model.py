"""A naive model of the interval join with all of its parameters, row by row over the stream, with lists as its only state.

It decides as a join with caches does: each arriving row looks at the rows that arrived before it. The operator has one condition over two
rows and their watermarks instead.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from operators.interval_join import How, LateRows
from operators.timing import Interval


@dataclass(frozen=True)
class Arrival:
    """A row of a stream.

    Args:
        side: 0 for left, 1 for right.
        id: its name.
        key: its key; None matches nothing.
        at: its event time in ms.
        watermark: the watermark before its batch in ms; None for none yet.
        v: a value for the extra condition `left_v <= right_v`.
    """

    side: int
    id: Any
    key: Any
    at: int
    watermark: int | None = None
    v: int = 0


Result = tuple[Any, Any, int]
"""Left row, right row, and result time in ms."""


@dataclass(frozen=True)
class JoinModel:
    """An interval join over arrivals, in the order of their batches.

    Args:
        interval: the bounds.
        how: the rows that are kept.
        lateness: the allowed lateness in ms.
        late_rows: what happens to late rows.
        residual: whether `left_v <= right_v` is a condition.
    """

    interval: Interval
    how: How
    lateness: int = 0
    late_rows: LateRows = "drop"
    residual: bool = False

    def __call__(self, arrivals: Sequence[Arrival]) -> Counter[Result]:
        """The results of the whole stream."""
        pairs = self.pairs(arrivals)
        at = {(left.id, right.id): max(left.at, right.at) for left, right in pairs}
        matched = {(row.side, row.id) for pair in pairs for row in pair}
        alone = [row for row in arrivals if (row.side, row.id) not in matched and not self.is_dropped(row)]
        left = [(row.id, None, self.last_match(row)) for row in alone if row.side == 0]
        right = [(None, row.id, self.last_match(row)) for row in alone if row.side == 1]
        if self.how == "semi":
            return Counter({(one, None, min(t for (of, _), t in at.items() if of == one)): 1 for one, _ in at})
        if self.how == "anti":
            return Counter(left)
        found = [(*ids, time) for ids, time in at.items()]
        return Counter([*found, *(left if self.how in ("left", "full") else []), *(right if self.how in ("right", "full") else [])])

    def pairs(self, arrivals: Sequence[Arrival]) -> list[tuple[Arrival, Arrival]]:
        """The pairs that are joined."""
        found, earlier = list[tuple[Arrival, Arrival]](), list[Arrival]()
        for row in arrivals:
            if self.is_dropped(row):
                continue
            for other in earlier:
                left, right = (row, other) if row.side == 0 else (other, row)
                if row.side != other.side and self.matches(left, right) and self.is_joined(other, row):
                    found.append((left, right))
            earlier.append(row)
        return found

    def matches(self, left: Arrival, right: Arrival) -> bool:
        """Whether two rows satisfy the conditions of the join."""
        within = self.interval.lower <= right.at - left.at <= self.interval.upper
        return left.key is not None and left.key == right.key and within and (not self.residual or left.v <= right.v)

    def is_joined(self, first: Arrival, last: Arrival) -> bool:
        """Whether `last` is joined with `first`, which arrived before it or in the same batch.

        If `last` is late, `first` must still be open. If both are late and have equal watermarks, their order is not known, and it is
        enough that one of them is open.
        """
        if not self.is_late(last):
            return True
        tied = self.is_late(first) and first.watermark == last.watermark
        return self.is_open(first, last.watermark) or (tied and self.is_open(last, last.watermark))

    def is_open(self, row: Arrival, watermark: int | None) -> bool:
        """Whether a row on time could still match a row at a watermark."""
        return watermark is None or self.last_match(row) >= watermark - self.lateness

    def last_match(self, row: Arrival) -> int:
        """The time of the last row that a row can match, or its own if that is later."""
        return row.at + (self.interval.forward, self.interval.backward)[row.side]

    def is_late(self, row: Arrival) -> bool:
        """Whether a row is behind the watermark before its batch by more than the allowed lateness."""
        return row.watermark is not None and row.at + self.lateness < row.watermark

    def is_dropped(self, row: Arrival) -> bool:
        """Whether a row is in no result because it is late."""
        return self.late_rows == "drop" and self.is_late(row)
