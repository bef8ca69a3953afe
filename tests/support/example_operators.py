"""Operators that the product does not have: the engine must depend on the contract of operators only."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.steps import ByKey, NewRows, Upsert


@dataclass(frozen=True)
class RunningTotal:
    """The sum and count of `v` by key, merged from new rows."""

    inputs: tuple[str, ...] = ("rows",)

    @property
    def reads(self) -> NewRows:
        return NewRows()

    @property
    def emits(self) -> Upsert:
        return Upsert(("k",))

    def late(self, event_time: Column, watermark: Column) -> Column:
        return F.lit(False)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        return frames[0].groupBy("k").agg(F.sum("v").alias("total"), F.count("*").alias("n"))

    def fold(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        both = current.unionByName(self(*frames))
        return both.groupBy("k").agg(F.sum("total").alias("total"), F.sum("n").alias("n"))


@dataclass(frozen=True)
class Spread:
    """The largest minus the smallest `v` of all rows of a key; a key whose newest row has 0 leaves the table."""

    inputs: tuple[str, ...] = ("rows",)

    @property
    def reads(self) -> ByKey:
        return ByKey(("k",))

    @property
    def emits(self) -> Upsert:
        return Upsert(("k",))

    def late(self, event_time: Column, watermark: Column) -> Column:
        return F.lit(False)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        newest = F.max_by("v", F.struct("seq", "arrival"))
        rows = frames[0].groupBy("k").agg((F.max("v") - F.min("v")).alias("spread"), newest.alias("newest"))
        return rows.where("newest != 0").select("k", "spread")
