"""Selected rows by example: the result of each row, and when it is final."""

import pytest
from pyspark.sql import SparkSession

from operators import Append, ByTimeRange, ColumnError, DurationError, OperatorError, Select, StreamingError
from tests.operators.examples import Example, check

EXAMPLES = [
    Example(
        "each row is a result at its own time, equal rows are results each, and a row without a time is none",
        Select(),
        (
            """
            k | time         | v:int
            a | 10:00        | 1
            a | 10:00        | 1
            - | 10:00:00.001 | -
            b | -            | 2
            """,
        ),
        """
        k | v | result_time  | final_at
        a | 1 | 10:00        | 10:00
        a | 1 | 10:00        | 10:00
        - | - | 10:00:00.001 | 10:00:00.001
        """,
    ),
    Example("of no rows the result is empty", Select(), ("k | time | v:int",), "k | v | result_time | final_at"),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.id)
def test_examples(spark: SparkSession, example: Example) -> None:
    check(spark, example)


def test_what_the_engine_reads_and_writes() -> None:
    assert (Select().reads, Select().emits) == (ByTimeRange(lookback=(0,)), Append())
    assert Select(allowed_lateness="5 minutes").reads == ByTimeRange(lookback=(0,), lateness=300_000)
    assert Select().result_columns(("k", "event_time", "seq")) == ("k", "event_time", "seq", "result_time", "final_at")


@pytest.mark.parametrize("value", ["-1 ms", "soon", 1.5, None])
def test_a_lateness_that_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(DurationError, match="`allowed_lateness`"):
        Select(allowed_lateness=value)  # pyright: ignore[reportArgumentType]


def test_a_frame_without_an_event_time_or_with_the_columns_of_results_is_refused(spark: SparkSession) -> None:
    refused = {
        "SELECT 1 AS k": "`rows` names the column 'event_time', which the frame does not have",
        "SELECT 'x' AS event_time": "of type string; legal: timestamp",
        "SELECT TIMESTAMP'2026-03-01 00:00:00' AS event_time, 1 AS Final_At": "would have final_at twice; rename one of them",
        "SELECT TIMESTAMP'2026-03-01 00:00:00' AS event_time, 1 AS __tm_x": "__tm_",
    }
    for query, message in refused.items():
        with pytest.raises(ColumnError, match=message):
            Select()(spark.sql(query))
    with pytest.raises(OperatorError, match="would have result_time twice"):
        Select().result_columns(["result_time"])
    stream = spark.readStream.format("rate").load().withColumnRenamed("timestamp", "event_time")
    with pytest.raises(StreamingError, match=r"^Select on streaming frames: .*; use `where` and `select` of the frame"):
        Select()(stream)
