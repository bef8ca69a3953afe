"""A naive model of the as-of join: it compares each left row with all versions of its key."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple


class AsOfRow(NamedTuple):
    """A row of either side: its key, its time in ms, its batch, its position in the batch, its name and its change kind."""

    k: str | None
    t: int | None
    seq: int
    arrival: int
    id: str
    op: str | None = "+I"


@dataclass(frozen=True)
class AsOfModel:
    """The join as a loop over left rows.

    Args:
        how: `inner` or `left`.
        as_of: `event_time` or `arrival`.
        change: whether `op` is a change kind; if not, every right row is a version.
        max_age: in ms; None for no limit.
    """

    how: str = "inner"
    as_of: str = "event_time"
    change: bool = False
    max_age: int | None = None

    def __call__(self, left: Iterable[AsOfRow], right: Iterable[AsOfRow]) -> list[tuple[str, str | None, int | None]]:
        """The results, each as the id of its left row, the id of its version or None, and its time in ms."""
        versions = [row for row in right if self._is_version(row)]
        found = [(row.id, self._version(row, versions), row.t) for row in left]
        return found if self.how == "left" else [result for result in found if result[1] is not None]

    def _is_version(self, row: AsOfRow) -> bool:
        return not self.change or row.op in ("+I", "+U", "-D")

    def _version(self, row: AsOfRow, versions: Iterable[AsOfRow]) -> str | None:
        known = [other for other in versions if other.k == row.k and self._is_known(row, other)]
        if row.k is None or not known:
            return None
        last = max(known, key=self._position)
        too_old = self.max_age is not None and (row.t or 0) - (last.t or 0) > self.max_age
        return None if too_old or (self.change and last.op == "-D") else last.id

    def _is_known(self, row: AsOfRow, version: AsOfRow) -> bool:
        if self.as_of == "arrival":
            return version.seq <= row.seq
        return row.t is not None and version.t is not None and version.t <= row.t

    def _position(self, version: AsOfRow) -> Any:
        return (version.seq, version.arrival) if self.as_of == "arrival" else (version.t, version.seq, version.arrival)
