"""A column whose name has a dot is passed along by every operator that returns the columns of its rows."""

from functools import reduce

import pytest
from pyspark.sql import DataFrame, SparkSession

from operators import (
    AsOfJoin,
    CoGroup,
    Deduplicate,
    IntervalJoin,
    Operator,
    ProcessCountWindow,
    ProcessWindow,
    Session,
    TopK,
    TopN,
    Tumbling,
    WindowJoin,
)

HOUR, SESSIONS = Tumbling(size="1 hour"), Session(gap="1 hour")
ROW = "SELECT 'x' AS k, TIMESTAMP '2026-01-01 10:00:00' AS event_time, 7 AS `a.b`"
HOW = ("inner", "left", "full", "semi")
RANKED: dict[str, Operator] = {
    "row": TopN(by="k", order_by="event_time", rank_end=1),
    "window": TopK(by="k", k=1, order_by="event_time", window=HOUR),
    "session": TopK(by="k", k=1, order_by="event_time", window=SESSIONS),
    "key": Deduplicate(by="k"),
    "key of window": Deduplicate(by="k", window=HOUR),
    "key of session": Deduplicate(by="k", window=SESSIONS),
}
ELEMENTS: dict[str, Operator] = {
    "elements": ProcessWindow(by="k", window=HOUR),
    "counted": ProcessCountWindow(by="k", size=1),
}
JOINS: dict[str, Operator] = {
    **{f"interval {how}": IntervalJoin(on="k", lower=0, upper=1, how=how) for how in HOW},
    "buckets": IntervalJoin(on="k", lower=0, upper=1, how="full", time_buckets=True),
    "version": AsOfJoin(on="k", how="left"),
    **{f"window {how}": WindowJoin(on="k", window=HOUR, how=how) for how in HOW},
    "sessions": WindowJoin(on="k", window=SESSIONS),
}
"""Operators whose results have the column `a.b`, its elements have it, or a left and a right column of the name."""


@pytest.mark.spark
@pytest.mark.parametrize("with_order", [True, False])
def test_a_column_with_a_dot_is_passed_along(spark: SparkSession, with_order: bool):
    rows = spark.sql(f"{ROW}, 1L AS seq, 1L AS arrival" if with_order else ROW)
    results = [(name, op(rows), "`a.b`") for name, op in RANKED.items()]
    results += [(name, op(rows), "elements[0].`a.b`") for name, op in ELEMENTS.items() if with_order or name != "counted"]
    for name, join in JOINS.items():
        joined = join(rows, rows)
        results += [(name, joined, f"`{column}`") for column in joined.columns if column.endswith("a.b")]
    results += [("groups", CoGroup(on="k", window=HOUR)(rows, rows), "right[0].`a.b`")]
    values = [frame.selectExpr(f"'{name}' AS name", f"{column} AS value") for name, frame, column in results]
    found = [(row.name, row.value) for row in reduce(DataFrame.union, values).collect()]
    assert found == [(name, 7) for name, _, _ in results]
    assert {*RANKED, *JOINS} <= {name for name, _ in found}
