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


def kept_rows(evictor: CountEvictor | TimeEvictor | DeltaEvictor | None, rows: Sequence[Element]) -> list[Element]:
    """The rows that an evictor keeps, in order; a delta is the distance of the values of two rows."""
    in_order = sorted(rows, key=lambda r: (r.t, r.seq, r.arrival, r.side))
    last = in_order[-1]
    if isinstance(evictor, CountEvictor):
        return in_order[-evictor.rows :]
    if isinstance(evictor, TimeEvictor):
        return [row for row in in_order if row.t > last.t - evictor.within_ms]
    if isinstance(evictor, DeltaEvictor):
        return [r for r in in_order if r.v is None or last.v is None or abs(r.v - last.v) < evictor.threshold]
    return in_order
