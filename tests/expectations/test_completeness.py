"""The expectation that rows of an outer join have a partner on each day."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from expectations.completeness import ExpectRowsToBeJoinedOnEachDay
from expectations.finding import check_name
from expectations.validation import validate

ROWS = """
    VALUES (1, 7, TIMESTAMP'2026-03-01 10:00:00Z'), (2, 8, TIMESTAMP'2026-03-01 11:00:00Z'), (3, null, TIMESTAMP'2026-03-01 23:59:59Z'),
           (4, null, TIMESTAMP'2026-03-02 00:00:00Z'), (5, 9, TIMESTAMP'2026-03-02 01:00:00Z'), (null, 10, TIMESTAMP'2026-03-02 02:00:00Z'),
           (null, 11, TIMESTAMP'2026-03-03 02:00:00Z'), (6, null, null)
    AS t(order_seq, payment_seq, result_time)
"""
OF_ORDERS: dict[str, Any] = {"column": "payment_seq", "side_column": "order_seq"}


@pytest.mark.parametrize(
    ("parameters", "passed", "worst"),
    [
        ({**OF_ORDERS, "mostly": 0.5}, True, 0.5),
        ({**OF_ORDERS, "mostly": 0.6}, False, 0.5),
        ({"column": "order_seq", "side_column": "payment_seq", "mostly": 0.1}, False, 0.0),
        ({"column": "payment_seq", "mostly": 0.6}, True, 2 / 3),
        ({**OF_ORDERS}, False, 0.5),
    ],
    ids=["enough on each day", "too few on one day", "the other side", "all rows of the table", "all by default"],
)
def test_the_share_of_the_worst_day_decides(spark: SparkSession, parameters: dict[str, Any], passed: bool, worst: float) -> None:
    expectation = ExpectRowsToBeJoinedOnEachDay(**parameters)
    found = validate(spark.sql(f"SELECT * FROM {ROWS}"), [expectation])[check_name(expectation)]
    assert (found.error, found.passed, found.observed) == (None, passed, pytest.approx(worst))


def test_a_table_without_rows_passes_and_another_day_column_can_be_used(spark: SparkSession) -> None:
    rows = spark.sql(f"SELECT order_seq, payment_seq, result_time AS at FROM {ROWS}")
    expectation = ExpectRowsToBeJoinedOnEachDay(**OF_ORDERS, day_column="at", mostly=0.9)
    assert validate(rows.limit(0), [expectation])[check_name(expectation)].passed
    assert not validate(rows, [expectation])[check_name(expectation)].passed


def test_a_column_that_the_table_lacks_is_an_error_of_the_check(spark: SparkSession) -> None:
    expectation = ExpectRowsToBeJoinedOnEachDay(column="payment")
    found = validate(spark.sql(f"SELECT * FROM {ROWS}"), [expectation])[check_name(expectation)]
    assert not found.passed
    assert "payment" in str(found.error)
