"""Rows before the bound of an operator are exactly the rows for which its `late` is true, for every operator with a bound."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from operators import (
    Aggregate,
    AsOfJoin,
    Consecutive,
    Cumulative,
    Deduplicate,
    IntervalJoin,
    Select,
    Session,
    Sliding,
    TopK,
    TopN,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)
from operators.contract import NEVER_LATE, late_before
from operators.timing import timestamp

COUNT = WindowedAggregate(by="k", window=Tumbling(size=7, offset=-3), aggregates={"n": "count(*)"})
FIRST = Deduplicate(by="k")
OPERATORS: dict[str, Any] = {
    "interval join": IntervalJoin(on="k", lower=-5, upper=5),
    "as-of join": AsOfJoin(on="k", max_age=5),
    "tumbling": COUNT,
    "tumbling, with allowed lateness": replace(COUNT, allowed_lateness=4),
    "overlapping": WindowJoin(on="k", window=Sliding(size=10, slide=4, offset=1)),
    "as long as the slide": replace(COUNT, window=Sliding(size=4, slide=4)),
    "cumulative": replace(COUNT, window=Cumulative(size=9, step=3, offset=2), allowed_lateness=1),
    "top k": TopK(k=1, by="k", order_by=["v"], window=Tumbling(size=5)),
    "first row": FIRST,
    "last row": replace(FIRST, keep="last"),
    "first row by arrival": replace(FIRST, order="arrival"),
    "first row of a window": replace(FIRST, window=Tumbling(size=5)),
    "consecutive": Consecutive(of=COUNT, then=TopK(k=1, order_by=["n"])),
    "aggregate": Aggregate(by="k", aggregates={"n": "count(*)"}),
    "top n": TopN(by="k", order_by="v", rank_end=1),
    "select": Select(),
    "select, with allowed lateness": Select(allowed_lateness=4),
}


MARKS, TIMES = range(-12, 13), range(-40, 40)


@pytest.fixture(scope="module")
def late_times(spark: SparkSession) -> dict[str, set[tuple[int, int]]]:
    """For each operator the watermarks with the times that are late then; one query decides for all."""
    times = spark.range(TIMES.start, TIMES.stop).join(spark.range(MARKS.start, MARKS.stop).withColumnRenamed("id", "mark"))
    late = [operator.late(timestamp(F.col("id")), timestamp(F.col("mark"))) for operator in OPERATORS.values()]
    found: dict[str, set[tuple[int, int]]] = {name: set() for name in OPERATORS}
    for mark, time, *are_late in times.select("mark", "id", *late).collect():
        for name, is_late in zip(OPERATORS, are_late, strict=True):
            if is_late:
                found[name].add((mark, time))
    return found


@pytest.mark.parametrize("name", OPERATORS)
def test_rows_before_the_bound_are_those_for_which_late_is_true(late_times: dict[str, set[tuple[int, int]]], name: str) -> None:
    bounds = {mark: late_before(OPERATORS[name], mark) for mark in MARKS}
    assert all(bound is not None for bound in bounds.values())
    assert late_times[name] == {(mark, time) for mark, bound in bounds.items() for time in TIMES if bound is not None and time < bound}


@dataclass(frozen=True)
class _NeverLate(IntervalJoin):
    def late(self, event_time: Column, watermark: Column) -> Column:
        return F.lit(False)


@dataclass(frozen=True)
class _BothChanged(_NeverLate):
    def late_before(self, watermark: int) -> int:
        return NEVER_LATE


def test_an_operator_without_a_bound_has_none() -> None:
    assert late_before(replace(COUNT, window=Session(gap=5)), 0) is None
    assert late_before(replace(COUNT, window=Sliding(size=2, slide=5)), 0) is None, "rows in a gap are not late"
    join = {"on": "k", "lower": -5, "upper": 5}
    assert late_before(_NeverLate(**join), 0) is None, "the inherited bound is that of another decision"
    assert late_before(_BothChanged(**join), 0) == NEVER_LATE
