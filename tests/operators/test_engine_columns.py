"""The order of rows with equal times."""

from pyspark.sql import SparkSession

from operators.engine_columns import tie_breakers

SCHEMA = "m map<string,int>, a array<struct<x:int>>, s struct<m:map<int,int>>, v int, event_time timestamp"


def test_rows_of_a_table_are_ordered_by_all_columns_that_can_be_ordered(spark: SparkSession) -> None:
    rows = [({"k": n}, [(1,), (n,)], ({1: n},), v, None) for n in range(3) for v in (2, 1)]
    for order in (rows, rows[::-1]):
        frame = spark.createDataFrame(order, SCHEMA)
        found = [(row.v, row.a[1].x) for row in frame.orderBy(*tie_breakers(frame)).collect()]
        assert found == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
    assert len(tie_breakers(frame.selectExpr("*", "1L AS seq", "1L AS arrival"))) == 2
