"""A time column given by its name is compared as the same column given as an expression."""

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from operators import ClosedRange
from operators.columns import parameter
from operators.timing import instant, is_between
from tests.operators.frames import frame_of

TIMES = (-5, -4, 0, 9, 10, 11, None)


def _kept(spark: SparkSession, condition: Column) -> list[int | None]:
    rows = frame_of(spark, [(time,) for time in TIMES], "ms bigint").withColumn("t", F.timestamp_millis("ms"))
    return [row.ms for row in rows.where(condition).collect()]


@pytest.mark.parametrize(
    ("first", "last", "kept"),
    [(-4, 10, [-4, 0, 9, 10]), (None, 0, [-5, -4, 0]), (10, None, [10, 11]), (None, None, list(TIMES)), (11, -5, [])],
)
def test_a_span_includes_both_ends(spark: SparkSession, first: int | None, last: int | None, kept: list[int | None]) -> None:
    assert _kept(spark, is_between("t", first, last)) == kept


@pytest.mark.parametrize(("after", "kept"), [(None, [-5, -4, 0, 9, 10]), (-4, [0, 9, 10]), (10, [])])
def test_a_closed_range_excludes_its_start(spark: SparkSession, after: int | None, kept: list[int]) -> None:
    closed = ClosedRange(after, 10)
    assert _kept(spark, closed.holds("t")) == _kept(spark, closed.holds(F.col("t"))) == kept


def test_a_parameter_is_its_value_or_null_beside_a_null(spark: SparkSession) -> None:
    rows = frame_of(spark, [(7,), (None,)], "n bigint").withColumn("t", F.timestamp_millis("n"))
    for value in (-(2**63) + 1, 0, 2**40):
        found = rows.select(parameter(value, "n"), parameter(value, F.col("n"))).collect()
        assert [tuple(row) for row in found] == [(value, value), (None, None)]
    times = rows.select(F.unix_millis(instant(-1, "t")), F.unix_millis(instant(-1, F.col("t")))).collect()
    assert [tuple(row) for row in times] == [(-1, -1), (None, None)]
