"""Joins in time buckets: the same results as without buckets, and fewer comparisons of the rows of a key."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators import Interval, IntervalJoin
from operators._support.time_buckets import BucketedJoin
from operators.engine_columns import WATERMARK
from operators.interval_join import How
from operators.timing import timestamp
from tests.operators.frames import by_tag, frame, ids_and_times, tagged
from tests.operators.test_interval_join import HOWS, ON, RESIDUAL, Sample, nested_loop_join

BOUNDS = [(0, 0, None), (-9, -7, RESIDUAL), (2, 5, None)]
"""Lower and upper bound in ms, and a further condition. Times are within 24 ms, so that most cases have rows in several buckets."""
NUMBERS = [300, pytest.param(1_000, marks=pytest.mark.soak)]
"""The number of cases."""


@pytest.mark.parametrize("cases", NUMBERS)
@pytest.mark.parametrize(("lower", "upper", "residual"), BOUNDS)
def test_generated_cases_equal_a_nested_loop(spark: SparkSession, lower: int, upper: int, residual: str | None, cases: int):
    sample = Sample.drawn(lower * 100 + upper, cases)
    frames = sample.frames(spark)
    joins = {how: IntervalJoin(on=ON, lower=lower, upper=upper, how=how, residual=residual, time_buckets=True) for how in HOWS}
    found = by_tag(tagged({how: ids_and_times(join(*frames)) for how, join in joins.items()}))
    for how in HOWS:
        assert found.get(how, Counter()) == nested_loop_join(sample, joins[how].interval, how, residual=residual is not None)


@pytest.mark.parametrize("cases", NUMBERS)
@pytest.mark.parametrize(
    ("hows", "late"),
    [(("semi", "anti"), {}), (("full", "semi"), {"late_rows": "join", "allowed_lateness": "2 ms"})],
    ids=["left rows alone", "late rows are joined"],
)
def test_buckets_change_no_result(spark: SparkSession, hows: tuple[How, ...], late: dict[str, Any], cases: int):
    frames = [_with_watermarks(rows) for rows in Sample.drawn(7, cases).frames(spark)]
    joins = {how: IntervalJoin(on=ON, lower=-1, upper=2, how=how, **late) for how in hows}
    compared = {
        f"{how} {name}": _as_text(join(*frames))
        for how, plain in joins.items()
        for name, join in (("plain", plain), ("buckets", plain.in_time_buckets()))
    }
    found = by_tag(tagged(compared))
    for how in hows:
        assert found[f"{how} plain"] == found[f"{how} buckets"]
        assert found[f"{how} plain"].total() > cases // 5


def _with_watermarks(rows: DataFrame) -> DataFrame:
    """Rows that are late or not, by a watermark that follows from their value."""
    return rows.withColumn(WATERMARK, timestamp(F.unix_millis("event_time") + F.col("v") * 3 - 3))


def _as_text(rows: DataFrame) -> DataFrame:
    return rows.select(F.to_json(F.struct(*rows.columns)))


def test_null_keys_and_null_times_match_nothing_and_are_kept(spark: SparkSession):
    rows = [("c", None, 0, "null key", 0), ("c", "a", None, "null time", 0), ("c", "a", 0, "row", 0)]
    join = IntervalJoin(on=ON, lower=0, upper=1, how="full", time_buckets=True)
    found = [tuple(row) for row in join(frame(spark, rows), frame(spark, rows)).select("left_id", "right_id").collect()]
    alone = {("null key", None), (None, "null key"), ("null time", None), (None, "null time")}
    assert Counter(found) == Counter([("row", "row"), *alone])


def test_a_key_with_many_rows_takes_few_comparisons(spark: SparkSession):
    schema = pa.schema({"left_ms": pa.int64(), "right_ms": pa.int64()})
    rows = frame(spark, [(n * 1_000, n * 1_000) for n in range(2_000)], schema)
    left, right = F.col("left_ms"), F.col("right_ms")
    every_two = BucketedJoin(Interval(0, 1_000), (left, right), F.lit(True))
    assert every_two(rows.select(left), rows.select(right), "inner").count() < 5 * 2_000  # without buckets 4 million
