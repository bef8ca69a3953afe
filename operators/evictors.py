"""Evictors: they select the rows of a complete window that are aggregated."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from operators.columns import temporary
from operators.contract import plain, tie_breakers
from operators.errors import check_count
from operators.timing import Duration, millis, positive_ms

_RANK, _NEWEST = temporary("rank"), temporary("newest")


@dataclass(frozen=True)
class CountEvictor:
    """Keeps a window's last rows by event time; of rows of equal time, those that arrived last.

    Flink's evictor uses only the order of arrival, so the rows that it keeps depend on that order.

    Args:
        rows: the number of rows to keep, at least 1.
    """

    rows: int

    def __post_init__(self) -> None:
        check_count("rows", self.rows)

    def keep(self, rows: DataFrame, group: Sequence[str], time: str) -> DataFrame:
        """The rows of each group that are aggregated."""
        order = [F.col(time).desc(), *[column.desc_nulls_last() for column in tie_breakers(plain(rows).drop(*group))]]
        ranked = rows.withColumn(_RANK, F.row_number().over(Window.partitionBy(*group).orderBy(*order)))
        return ranked.where(F.col(_RANK) <= self.rows).drop(_RANK)


@dataclass(frozen=True)
class TimeEvictor:
    """Keeps the rows of a window that are less than `within` older than its newest row: `time > newest - within`, as in Flink.

    Args:
        within: a duration of more than zero.
    """

    within: Duration

    def __post_init__(self) -> None:
        _ = self.within_ms

    @cached_property
    def within_ms(self) -> int:
        """The duration in ms."""
        return positive_ms(self.within, "within")

    def keep(self, rows: DataFrame, group: Sequence[str], time: str) -> DataFrame:
        """The rows of each group that are aggregated."""
        aged = rows.withColumn(_NEWEST, F.max(millis(F.col(time))).over(Window.partitionBy(*group)))
        return aged.where(millis(F.col(time)) > F.col(_NEWEST) - self.within_ms).drop(_NEWEST)


Evictor = CountEvictor | TimeEvictor
