"""Quantiles of a batch's event times are recorded for many rows or a long range with an uneven distribution."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from platform_defs.engine.ingest.event_time_spread import aggregates, is_uneven, merge_ranges, quantiles, ranges
from tests.operators.frames import frame_of

DAY = 86_400_000


@pytest.mark.parametrize(
    ("times", "uneven"),
    [
        pytest.param([*range(0, 100 * DAY, DAY)], False, id="even"),
        pytest.param([0, *range(90 * DAY, 100 * DAY, DAY)], True, id="an old row"),
        pytest.param([*range(0, 10 * DAY, DAY), 900 * DAY], True, id="a row far ahead"),
        pytest.param([0] * 50 + [100 * DAY] * 50, True, id="two clusters"),
        pytest.param([0, *[DAY] * 50], False, id="few rows of one day"),
        pytest.param([5, 5, 5], False, id="one instant"),
        pytest.param([5], False, id="one row"),
        pytest.param([], False, id="no row"),
    ],
)
def test_uneven_times_are_detected_from_their_deviation(times: list[int], uneven: bool) -> None:
    mean = sum(times) / len(times) if times else None
    deviation = None if mean is None else (sum((t - mean) ** 2 for t in times) / len(times)) ** 0.5
    assert is_uneven(len(times), min(times, default=None), max(times, default=None), mean, deviation) is uneven


def test_quantiles_are_of_the_accepted_rows(spark: SparkSession) -> None:
    rows = spark.range(1_000).select(
        F.timestamp_millis(F.when(F.col("id") == 0, -(10**12)).otherwise(F.col("id"))).alias("event_time"), "id"
    )
    found = quantiles(rows, F.col("id") < 999)
    assert (found[0], found[-1], len(found)) == (-(10**12), 998, 11)
    assert abs(found[5] - 499) < 5
    row = rows.agg(*aggregates(F.col("id") > 0)).first()
    assert row is not None
    assert row["mean"] == 500


@given(st.lists(st.integers(-60, 60), min_size=1, max_size=60, unique=True))
def test_joined_ranges_cover_the_given_ones_and_are_at_most_16(buckets: list[int]) -> None:
    found = [(n * 10 - 2, n * 10 + 11) for n in sorted(buckets)]
    joint = merge_ranges(found)
    assert len(joint) <= 16
    assert all(any(low <= a and b <= high for low, high in joint) for a, b in found)
    assert all(a[1] < b[0] for a, b in pairwise(joint))
    if len(joint) < 16:
        assert all(any(a <= t <= b for a, b in found) for low, high in joint for t in range(low, high + 1))


def test_ranges_exclude_gaps_of_years(spark: SparkSession) -> None:
    times = [0, 50 * DAY, 50 * DAY + 5, 51 * DAY, 900 * DAY]
    rows = frame_of(spark, [(t,) for t in times], "t bigint").select(F.timestamp_millis("t").alias("event_time"))
    found = ranges(rows, F.lit(True), 0, 900 * DAY, DAY // 4)
    assert len(found) == 3
    assert all(any(low <= t - DAY // 4 and t + DAY // 4 <= high for low, high in found) for t in times)
    assert sum(high - low for low, high in found) < 6 * DAY
    assert ranges(rows, F.lit(True), 0, DAY, DAY) == [(-DAY, 2 * DAY)]
