"""A model of evictors in plain Python."""

from collections.abc import Sequence
from dataclasses import dataclass

from operators import CountEvictor, DeltaEvictor, TimeEvictor


@dataclass(frozen=True, order=True)
class Element:
    """A row of a window; rows are ordered by time, then by arrival, then by side."""

    t: int
    seq: int
    arrival: int
    side: int
    id: int
    v: int | None = None


BuiltIn = CountEvictor | TimeEvictor | DeltaEvictor


def kept_rows(evictor: BuiltIn | None, rows: Sequence[Element], *, by_arrival: bool = False) -> list[Element]:
    """The rows that an evictor keeps, in order of time or of arrival; a delta is the distance of the values of two rows."""
    in_order = sorted(rows, key=lambda r: (0 if by_arrival else r.t, r.seq, r.arrival, r.side))
    last, newest = in_order[-1], max(row.t for row in rows)
    if isinstance(evictor, CountEvictor):
        return in_order[-evictor.rows :]
    if isinstance(evictor, TimeEvictor):
        return [row for row in in_order if row.t > newest - evictor.within_ms]
    if isinstance(evictor, DeltaEvictor):
        return [r for r in in_order if r.v is None or last.v is None or abs(r.v - last.v) < evictor.threshold]
    return in_order
