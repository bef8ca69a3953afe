"""A column whose name has a dot or a backtick is passed along by every operator that returns the columns of its rows."""

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
    sql,
)

HOUR, SESSIONS = Tumbling(size="1 hour"), Session(gap="1 hour")
ROW = "SELECT 'x' AS k, TIMESTAMP '2026-01-01 10:00:00' AS event_time, 7 AS `a.b`, 8 AS `c``d`"
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
def test_a_column_with_a_dot_or_a_backtick_is_passed_along(spark: SparkSession, with_order: bool):
    rows = spark.sql(f"{ROW}, 1L AS seq, 1L AS arrival" if with_order else ROW)
    results = [(name, op(rows), "struct(`a.b`, `c``d`)") for name, op in RANKED.items()]
    results += [
        (name, op(rows), "struct(elements[0].`a.b`, elements[0].`c``d`)")
        for name, op in ELEMENTS.items()
        if with_order or name != "counted"
    ]
    for name, join in JOINS.items():
        joined = join(rows, rows)
        sides = {column.removesuffix("a.b") for column in joined.columns if column.endswith("a.b")}
        results += [(name, joined, f"struct(`{side}a.b`, `{side}c``d`)") for side in sides]
    results += [("groups", CoGroup(on="k", window=HOUR)(rows, rows), "struct(right[0].`a.b`, right[0].`c``d`)")]
    results += [("sql", sql("SELECT * FROM r", {"r": rows}), "struct(`a.b`, `c``d`)")]
    values = [frame.selectExpr(f"'{name}' AS name", f"{columns} AS values") for name, frame, columns in results]
    found = [(row.name, tuple(row.values)) for row in reduce(DataFrame.union, values).collect()]
    assert found == [(name, (7, 8)) for name, _, _ in results]
    assert {*RANKED, *JOINS} <= {name for name, _ in found}
