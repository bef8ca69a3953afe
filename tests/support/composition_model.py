"""A naive model of tables that read each other, in plain Python: every table is computed again from all rows that have arrived.

It has no steps, no corrections and no changelogs. A row is late or not when its batch arrives; after that, each table is a function of the
rows of the tables that it reads, up to its watermark. Times are in ms. Rows are dictionaries.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Table = list[Row]
END = 1 << 60
"""A watermark after every result, as a drain gives it."""


@dataclass(frozen=True)
class Arrived:
    """A row of a source.

    Args:
        k: its key.
        v: its value.
        at: its event time.
        marks: the watermark of each source before its batch; a source without rows has none.
    """

    k: str | None
    v: int
    at: int
    marks: Mapping[str, int]

    def mark(self, *sources: str) -> int | None:
        """The watermark of an operator of some sources before the row's batch; None if a source had none yet."""
        return min(self.marks[name] for name in sources) if {*sources} <= {*self.marks} else None

    def is_late(self, latest: int, *sources: str) -> bool:
        """Whether an operator's watermark was past a time before the row's batch."""
        mark = self.mark(*sources)
        return mark is not None and latest < mark


@dataclass
class Stream:
    """The rows that have arrived, and the watermarks.

    Args:
        bound: how far a source's watermark is behind its newest row, in ms.
    """

    bound: int
    rows: dict[str, list[Arrived]] = field(default_factory=lambda: defaultdict(list))
    marks: dict[str, int] = field(default_factory=dict)

    def add(self, batch: Mapping[str, Iterable[tuple[str | None, int, int]]]) -> None:
        """Add a batch of rows of each source: key, value and time. The watermarks move after it."""
        before = dict(self.marks)
        for name, events in batch.items():
            self.rows[name] += [Arrived(k, v, at, before) for k, v, at in events]
            newest = max((row.at for row in self.rows[name]), default=None)
            if newest is not None:
                self.marks[name] = newest - self.bound - 1

    def drain(self) -> None:
        """End the input of every source."""
        self.marks = dict.fromkeys(self.marks, END)

    def mark(self, *sources: str) -> int:
        """The watermark of an operator of some sources."""
        return min(self.marks.get(name, -END) for name in sources)


def window(size: int, rows: Iterable[Row], by: Sequence[str], upto: int) -> list[tuple[Row, Table]]:
    """The tumbling windows of each key that are closed at a watermark: key, bounds and result time, and the rows."""
    found: dict[tuple[Any, ...], Table] = defaultdict(list)
    for row in rows:
        start = row["at"] // size * size
        if start + size - 1 <= upto:
            found[(*[row[c] for c in by], start)].append(row)
    return [
        (dict(zip([*by, "start"], key, strict=True)) | {"end": key[-1] + size, "at": key[-1] + size - 1}, inside)
        for key, inside in found.items()
    ]


def grouped(rows: Iterable[Row], by: Sequence[str]) -> list[tuple[Row, Table]]:
    """The rows of each key; a null is an ordinary key."""
    found: dict[tuple[Any, ...], Table] = defaultdict(list)
    for row in rows:
        found[tuple(row[c] for c in by)].append(row)
    return [(dict(zip(by, key, strict=True)), inside) for key, inside in found.items()]


def ranked(rows: Iterable[Row], by: Sequence[str], order: Callable[[Row], Any], last: int) -> Table:
    """The first rows of each key, with their rank."""
    return [row | {"rank": n} for _, inside in grouped(rows, by) for n, row in enumerate(sorted(inside, key=order)[:last], 1)]


def joined(
    left: Sequence[Row], right: Sequence[Row], matches: Callable[[Row, Row], bool], at: Callable[[Row | None, Row | None], int]
) -> Table:
    """A full outer join that compares all pairs of rows: `k`, `left`, `right` and the time of each result. Null keys match nothing."""

    def result(one: Row | None, other: Row | None) -> Row:
        return {"k": (one or other or {})["k"], "left": one, "right": other, "at": at(one, other)}

    right_by_key = {key["k"]: rows for key, rows in grouped(right, ["k"]) if key["k"] is not None}
    pairs = [(one, other) for one in left for other in right_by_key.get(one["k"], ()) if matches(one, other)]
    left_ids, right_ids = {id(one) for one, _ in pairs}, {id(other) for _, other in pairs}
    alone = [result(one, None) for one in left if id(one) not in left_ids]
    others = [result(None, other) for other in right if id(other) not in right_ids]
    return [*(result(*pair) for pair in pairs), *alone, *others]


def within(lower: int, upper: int) -> tuple[Callable[[Row, Row], bool], Callable[[Row | None, Row | None], int]]:
    """The condition and the result times of an interval join, `left.at + lower <= right.at <= left.at + upper`."""

    def at(one: Row | None, other: Row | None) -> int:
        if one is not None and other is not None:
            return max(one["at"], other["at"])
        return max(one["at"], one["at"] + upper) if one is not None else max((other or {})["at"], (other or {})["at"] - lower)

    return lambda one, other: one["at"] + lower <= other["at"] <= one["at"] + upper, at


def in_window(size: int) -> tuple[Callable[[Row, Row], bool], Callable[[Row | None, Row | None], int]]:
    """The condition and the result times of a join of two rows in one tumbling window."""

    def end(row: Row) -> int:
        return row["at"] // size * size + size - 1

    return lambda one, other: end(one) == end(other), lambda one, other: end(one or other or {})
