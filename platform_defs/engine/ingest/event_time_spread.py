"""How the event times of a batch lie between the first and the last, where that matters for how far a step may go."""

from itertools import pairwise

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.contract import EVENT_TIME
from operators.timing import DAY_MS, millis
from platform_defs.engine.ledger.rows import SHARES

_MOST_BUCKETS = 1_000
_MOST_RANGES = 16
_MANY_ROWS = 10_000
_EVEN = (0.2, 0.35)
"""The standard deviation of rows spread evenly over a stretch of time is 0.29 of its length."""


def aggregates(good: Column) -> list[Column]:
    """What the one pass over a batch's rows adds up for `is_uneven`: `mean` and `deviation` of the event times of good rows."""
    time = F.when(good, millis(F.col(EVENT_TIME)))
    return [F.avg(time).alias("mean"), F.stddev_pop(time).alias("deviation")]


def is_uneven(rows: int, first: int | None, last: int | None, mean: float | None, deviation: float | None) -> bool:
    """Whether a batch's rows are so many, or so far apart, and lie so unevenly that the ledger records quantiles of their times."""
    if first is None or last is None or mean is None or deviation is None:
        return False
    length = last - first
    if rows < 2 or length < 1 or (rows < _MANY_ROWS and length <= DAY_MS):
        return False
    low, high = _EVEN
    return not low <= deviation / length <= high or abs((mean - first) / length - 0.5) > 0.1


def quantiles(judged: DataFrame, good: Column) -> tuple[int, ...]:
    """The event times at `SHARES` of a batch's good rows, the first and the last among them. A Spark job."""
    time = F.when(good, millis(F.col(EVENT_TIME)))
    row = judged.agg(F.percentile_approx(time, [*SHARES], 10_000).alias("spread")).first()
    return tuple(row["spread"]) if row and row["spread"] else ()


def ranges(judged: DataFrame, good: Column, first: int, last: int, horizon: int) -> list[tuple[int, int]]:
    """Ranges of time that hold the event times of a batch's good rows and the horizon around each of them.

    One range where the rows lie close together; otherwise a Spark job tells where they lie, so that one old row does not have all rows
    since then looked at.
    """
    width = max(2 * horizon, DAY_MS)
    if last - first <= 2 * width:
        return [(first - horizon, last + horizon)]
    bucket = F.floor(millis(F.col(EVENT_TIME)) / width).alias("bucket")
    found = sorted(row["bucket"] for row in judged.where(good).select(bucket).distinct().limit(_MOST_BUCKETS + 1).collect())
    if len(found) > _MOST_BUCKETS:
        return [(first - horizon, last + horizon)]
    return joined([(n * width - horizon, (n + 1) * width - 1 + horizon) for n in found])


def joined(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ordered ranges as at most `_MOST_RANGES`, those joined that overlap, and then those with the smallest gaps between them."""
    gaps = sorted(((b[0] - a[1], n) for n, (a, b) in enumerate(pairwise(found), 1)), reverse=True)
    starts = sorted([0, *[n for gap, n in gaps[: _MOST_RANGES - 1] if gap > 1]])
    return [(found[start][0], found[end - 1][1]) for start, end in pairwise([*starts, len(found)])]
