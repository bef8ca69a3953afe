"""The distribution of a batch's event times, which the ledger records if it is uneven, so that the size of steps can be estimated."""

from itertools import pairwise

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.engine_columns import EVENT_TIME
from operators.timing import DAY_MS, millis
from platform_defs.engine.lake.small_queries import collect
from platform_defs.engine.ledger.rows import SHARES

_MOST_BUCKETS = 1_000
_MOST_RANGES = 16
_MANY_ROWS = 10_000
_EVEN = (0.2, 0.35)
"""Bounds of the ratio of standard deviation to length between which times count as even; the ratio is 0.29 for evenly distributed times."""


def aggregates(good: Column) -> list[Column]:
    """The aggregates that `is_uneven` needs: `mean` and `deviation` of the event times of good rows."""
    time = F.when(good, millis(F.col(EVENT_TIME)))
    return [F.avg(time).alias("mean"), F.stddev_pop(time).alias("deviation")]


def is_uneven(rows: int, first: int | None, last: int | None, mean: float | None, deviation: float | None) -> bool:
    """Whether the ledger records quantiles of a batch's times: its rows are many or far apart, and unevenly distributed."""
    if first is None or last is None or mean is None or deviation is None:
        return False
    length = last - first
    if rows < 2 or length < 1 or (rows < _MANY_ROWS and length <= DAY_MS):
        return False
    low, high = _EVEN
    return not low <= deviation / length <= high or abs((mean - first) / length - 0.5) > 0.1


def quantiles(validated: DataFrame, good: Column) -> tuple[int, ...]:
    """The quantiles at `SHARES` of the event times of a batch's good rows, including the first and the last; a Spark job."""
    time = F.when(good, millis(F.col(EVENT_TIME)))
    [row] = collect(validated.agg(F.percentile_approx(time, [*SHARES], 10_000).alias("spread")))
    return tuple(row["spread"] or ())


def ranges(validated: DataFrame, good: Column, first: int, last: int, horizon: int) -> list[tuple[int, int]]:
    """Ranges that cover the event times of a batch's good rows, each extended by the horizon on both sides.

    The result is one range if the rows are close together, and also if they are in very many separate ranges. Otherwise a Spark job finds
    several ranges, so that one old row does not cause a search of all rows since then.
    """
    width = max(2 * horizon, DAY_MS)
    if last - first <= 2 * width:
        return [(first - horizon, last + horizon)]
    bucket = F.floor(millis(F.col(EVENT_TIME)) / width).alias("bucket")
    buckets = validated.where(good).select(bucket).distinct().limit(_MOST_BUCKETS + 1)
    bucket_numbers = sorted(row["bucket"] for row in collect(buckets))
    if len(bucket_numbers) > _MOST_BUCKETS:
        return [(first - horizon, last + horizon)]
    return merge_ranges([(n * width - horizon, (n + 1) * width - 1 + horizon) for n in bucket_numbers])


def merge_ranges(ordered: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """At most `_MOST_RANGES` ranges from ordered ones: overlapping ranges are merged, then those with the smallest gaps."""
    gaps = sorted(((b[0] - a[1], n) for n, (a, b) in enumerate(pairwise(ordered), 1)), reverse=True)
    starts = sorted([0, *[n for gap, n in gaps[: _MOST_RANGES - 1] if gap > 1]])
    return [(ordered[start][0], ordered[end - 1][1]) for start, end in pairwise([*starts, len(ordered)])]
