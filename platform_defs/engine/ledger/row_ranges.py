"""The rows of a range of batches."""

from bisect import bisect_right

import pyarrow as pa

from platform_defs.engine.ledger.columns import pc


def rows_in_range(part: pa.Table, after: int, upto: int | None) -> pa.Table:
    """The rows of `after < seq <= upto`, by binary search: a comparison with a number would make Arrow load pandas."""
    seq = part["seq"]
    last = pc.max(seq).as_py() if upto is None else upto
    if pc.min(seq).as_py() > after and pc.max(seq).as_py() <= last:
        return part
    if pc.all(pc.less_equal(seq.slice(0, len(seq) - 1), seq.slice(1))).as_py() is False:
        part = part.sort_by("seq")
        seq = part["seq"]
    first, end = (bisect_right(range(len(seq)), bound, key=lambda n: seq[n].as_py()) for bound in (after, last))
    return part.slice(first, end - first)


def is_above(low: int | None, upto: int | None) -> bool:
    """Whether `low` is above `upto`; False if either is None."""
    return low is not None and upto is not None and low > upto
