"""Rows as JSON text contain their nulls, and their times in microseconds."""

import pytest
from pyspark.sql import SparkSession

from tests.support.json_rows import json_rows


@pytest.mark.spark
@pytest.mark.usefixtures("interpreted_plans")
def test_rows_have_their_nulls_and_times_in_microseconds(spark: SparkSession) -> None:
    row = spark.sql("SELECT timestamp '2026-03-01 10:00:00.000001Z' AS at, timestamp_ntz '2026-03-01 10:00:00.000001' AS local, null AS v")
    assert json_rows(row) == ['{"at":"2026-03-01T10:00:00.000001Z","local":"2026-03-01T10:00:00.000001","v":null}']
