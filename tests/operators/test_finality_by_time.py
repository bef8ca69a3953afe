"""The expression for when a row is finalized equals what the operator reports of the row, for every operator that gives one."""

from collections import Counter
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import (
    AsOfJoin,
    CoGroup,
    Consecutive,
    Cumulative,
    Deduplicate,
    EveryRows,
    IntervalJoin,
    Select,
    Session,
    Sliding,
    TopK,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)
from operators.accounting import ReportsFinality, finalized_by_time
from operators.engine_columns import EVENT_TIME, FINALIZED_AT, WHICH
from operators.timing import timestamp
from tests.operators.frames import by_tag, tagged

GAPS = Sliding(size=4, slide=10)
COUNT = WindowedAggregate(by="k", window=Tumbling(size=7, offset=-3), aggregates={"n": "count(*)"})
OPERATORS: dict[str, Any] = {
    "interval join": IntervalJoin(on="k", lower=-5, upper=8, how="full"),
    "as-of join": AsOfJoin(on="k", how="left"),
    "tumbling": COUNT,
    "with gaps": WindowJoin(on="k", window=GAPS),
    "cumulative": WindowedAggregate(by="k", window=Cumulative(size=9, step=3, offset=2), aggregates={"n": "count(*)"}),
    "coGroup": CoGroup(on="k", window=Sliding(size=10, slide=4, offset=1)),
    "top k": TopK(k=1, by="k", order_by=["v"], window=Tumbling(size=5)),
    "top k of results": TopK(k=1, order_by=["v"]),
    "last row": Deduplicate(by="k", keep="last"),
    "first row of a window": Deduplicate(by="k", window=Tumbling(size=5)),
    "consecutive": Consecutive(of=COUNT, then=TopK(k=1, order_by=["n"])),
    "select": Select(),
}


def _rows(spark: SparkSession) -> DataFrame:
    time = F.when(F.col("id") < 40, timestamp(F.col("id"))).alias(EVENT_TIME)
    return spark.range(-40, 42).select(F.lit("a").alias("k"), F.lit(1).alias("v"), time)


@pytest.fixture(scope="module")
def finalities(spark: SparkSession) -> dict[str, Counter[tuple[Any, ...]]]:
    """When the rows of each operator are final, by the expression and as the operator reports it; one query has all of them."""
    rows, frames = _rows(spark), dict[str, DataFrame]()
    for name, operator in OPERATORS.items():
        by_side: list[DataFrame] = []
        for which in range(len(operator.inputs)):
            final_at = finalized_by_time(operator, which, F.col(EVENT_TIME))
            assert final_at is not None
            by_side.append(rows.select(F.lit(which).alias(WHICH), EVENT_TIME, final_at.alias(FINALIZED_AT)))
        frames[f"{name}: by time"] = reduce(DataFrame.union, by_side)
        frames[f"{name}: reported"] = operator.finalized_at(*[rows for _ in by_side]).select(WHICH, EVENT_TIME, FINALIZED_AT)
    return by_tag(tagged(frames))


@pytest.mark.parametrize("name", OPERATORS)
def test_the_expression_is_what_the_operator_reports(finalities: dict[str, Counter[tuple[Any, ...]]], name: str) -> None:
    assert finalities[f"{name}: by time"] == finalities[f"{name}: reported"]


@pytest.mark.parametrize(
    ("name", "which", "time", "final_at"),
    [
        ("interval join", 0, 10, 19),
        ("interval join", 1, 10, 16),
        ("as-of join", 0, 10, 11),
        ("tumbling", 0, 0, 3),
        ("tumbling", 0, -4, -4),
        ("with gaps", 0, 3, 3),
        ("with gaps", 1, 5, None),
        ("coGroup", 1, 9, 18),
        ("top k of results", 0, 10, 10),
        ("last row", 0, 10, None),
        ("consecutive", 0, 0, 3),
        ("select", 0, 10, 10),
    ],
)
def test_times_of_finality(spark: SparkSession, name: str, which: int, time: int, final_at: int | None) -> None:
    """Times in ms. A row is final with its last window, at the window's last ms; a row between two windows never is."""
    expression = finalized_by_time(OPERATORS[name], which, timestamp(F.lit(time)))
    assert expression is not None
    assert spark.range(1).select(F.unix_millis(expression)).collect() == [(final_at,)]


@dataclass(frozen=True)
class _OtherFinality(IntervalJoin):
    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        return super().finalized_at(*frames).withColumn(FINALIZED_AT, F.lit(None).cast("timestamp"))


def test_there_is_no_expression_if_finality_depends_on_more_than_the_time(spark: SparkSession) -> None:
    sessions = WindowedAggregate(by="k", window=Session(gap=5), aggregates={"n": "count(*)"})
    purging = WindowedAggregate(by="k", window=Tumbling(size=5), aggregates={"n": "count(*)"}, purging=EveryRows(2))
    operators: list[Any] = [sessions, purging, TopK(k=1, order_by=["v"], window=Session(gap=5)), _OtherFinality(on="k", lower=0, upper=1)]
    assert [finalized_by_time(operator, 0, F.col(EVENT_TIME)) for operator in operators] == [None] * len(operators)
    assert all(isinstance(operator, ReportsFinality) for operator in operators)
