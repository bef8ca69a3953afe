"""A naive model of Top-N: a list of rows, which is sorted again for each query."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
ADDED_KINDS = ("+I", "+U")


@dataclass
class TopNModel:
    """The rows of one case, and its leaderboard.

    Args:
        order: columns as (name, descending, nulls first).
        end: the last rank, or the column that contains it.
        start: the first rank.
        function: `row_number`, `rank` or `dense_rank`.
        by: the columns of a partition.
        key: the columns by which a row replaces another.
        has_changes: whether rows have a column `change` with their row kind.
    """

    order: list[tuple[str, bool, bool]]
    end: int | str
    start: int
    function: str
    by: tuple[str, ...]
    key: tuple[str, ...]
    has_changes: bool
    rows: list[Row] = field(default_factory=list)
    ends: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def apply(self, row: Row) -> None:
        """Apply a row to the leaderboard."""
        if isinstance(self.end, str):
            self.ends.setdefault(self._partition(row), row[self.end])
        if self.key:
            self._replace(row)
        elif not self.has_changes or row["change"] in ADDED_KINDS:
            self.rows.append(row)
        else:
            self._remove_one(row)

    def _replace(self, row: Row) -> None:
        if self.has_changes and row["change"] == "-U":
            return
        self.rows = [r for r in self.rows if [r[c] for c in self.key] != [row[c] for c in self.key]]
        if not self.has_changes or row["change"] != "-D":
            self.rows.append(row)

    def _remove_one(self, row: Row) -> None:
        for n, current in enumerate(self.rows):
            if all(current[c] == row[c] for c in row if c not in ("seq", "arrival", "event_time", "change")):
                del self.rows[n]
                return

    def _partition(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[c] for c in self.by)

    def ranks(self) -> list[tuple[Row, int]]:
        """The rows of the leaderboard, with their ranks."""
        found: list[tuple[Row, int]] = []
        for partition in {self._partition(row) for row in self.rows}:
            inside = [row for row in self.rows if self._partition(row) == partition]
            for column, descending, nulls_first in reversed(self.order):
                known = sorted((r for r in inside if r[column] is not None), key=lambda r: r[column], reverse=descending)
                nulls = [r for r in inside if r[column] is None]
                inside = nulls + known if nulls_first else known + nulls
            end = self.ends[partition] if isinstance(self.end, str) else self.end
            found += [(row, rank) for row, rank in self._ranked(inside) if self.start <= rank <= (end or 0)]
        return found

    def _ranked(self, rows: list[Row]) -> list[tuple[Row, int]]:
        """Each row with its rank. A stable sort keeps ties in the order of arrival, also in descending order."""
        ranked, rank, dense, before = [], 0, 0, None
        for n, row in enumerate(rows, 1):
            values = [row[column] for column, _, _ in self.order]
            if n == 1 or values != before:
                rank, dense, before = n, dense + 1, values
            ranked.append((row, {"row_number": n, "rank": rank, "dense_rank": dense}[self.function]))
        return ranked


def size_of_difference(before: dict[Any, Any], after: dict[Any, Any]) -> Counter[str]:
    """The number of changes of each kind between two keyed tables."""
    kinds = Counter({"+I": len(after.keys() - before.keys()), "-D": len(before.keys() - after.keys())})
    changed = sum(before[k] != after[k] for k in before.keys() & after.keys())
    return +(kinds + Counter({"-U": changed, "+U": changed}))
