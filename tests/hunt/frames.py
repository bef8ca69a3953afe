"""Rows as tuples, in place of data frames."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

LOG = ("seq", "arrival", "event_time", "k", "uid")
REJECTS = ("seq", "arrival", "uid", "reason")
PAIRS = ("k", "left_seq", "left_arrival", "left_event_time", "right_seq", "right_arrival", "right_event_time", "result_time", "final_at")
COUNTS = ("k", "window_start", "window_end", "n", "result_time", "final_at")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with named columns."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, column: str) -> int:
        """The position of a column in a row."""
        return self.columns.index(column)

    def between(self, column: str, first: int | None, last: int | None) -> "Rows":
        """The rows with `first <= column <= last`; None is an open end."""
        n = self.at(column)
        return Rows(self.columns, [r for r in self.rows if (first is None or r[n] >= first) and (last is None or r[n] <= last)])

    def limit(self, n: int) -> "Rows":
        return Rows(self.columns, self.rows[:n])
