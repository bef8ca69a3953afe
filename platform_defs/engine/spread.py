"""How the event times of a batch lie between the first and the last, where that matters for how far a step may go."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.contract import EVENT_TIME
from operators.timing import DAY_MS, millis
from platform_defs.engine.steps import SHARES

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
