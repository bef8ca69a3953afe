"""The rows of a table as its readers see them."""

from pyspark.sql import SparkSession

from platform_defs.engine.inputs.prepared_rows import as_input


def test_the_result_time_replaces_a_column_whose_name_differs_from_event_time_only_in_case(spark: SparkSession) -> None:
    results = spark.sql(
        "SELECT 1 AS k, timestamp_millis(1) AS Event_Time, timestamp_millis(2) AS result_time, timestamp_millis(3) AS final_at"
    )
    rows = as_input(results)
    assert rows.columns == ["k", "event_time"]
    assert rows.selectExpr("k", "unix_millis(event_time)").collect() == [(1, 2)]
