"""The expectation that rows of an outer join have a partner on each day."""

import re
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import pytest
from great_expectations import ExpectationSuite
from great_expectations.expectations.expectation import Expectation
from pyspark.sql import SparkSession

from assets.pipeline import Pipeline
from expectations import table_suites
from expectations.checks import findings
from expectations.completeness import ExpectRowsToBeJoinedOnEachDay, checked_days
from expectations.finding import check_name
from expectations.validation import validate
from tests.conftest import MakeEngine
from tests.support.small_sources import DAY, HOUR, MINUTE, Event, join, replay, source

ROWS = """
    VALUES (1, 7, TIMESTAMP'2026-03-01 10:00:00Z'), (2, 8, TIMESTAMP'2026-03-01 11:00:00Z'), (3, null, TIMESTAMP'2026-03-01 23:59:59Z'),
           (4, null, TIMESTAMP'2026-03-02 00:00:00Z'), (5, 9, TIMESTAMP'2026-03-02 01:00:00Z'), (null, 10, TIMESTAMP'2026-03-02 02:00:00Z'),
           (null, 11, TIMESTAMP'2026-03-03 02:00:00Z'), (6, null, null)
    AS t(order_seq, payment_seq, result_time)
"""
OF_ORDERS: dict[str, Any] = {"column": "payment_seq", "side_column": "order_seq"}


@pytest.fixture
def session_in_berlin(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(
    ("parameters", "passed", "worst"),
    [
        ({**OF_ORDERS, "mostly": 0.5}, True, 0.5),
        ({**OF_ORDERS, "mostly": 0.6}, False, 0.5),
        ({"column": "order_seq", "side_column": "payment_seq", "mostly": 0.1}, False, 0.0),
        ({"column": "payment_seq", "mostly": 0.6}, True, 2 / 3),
        ({**OF_ORDERS}, False, 0.5),
        ({**OF_ORDERS, "mostly": 0.6, "only_days": ["2026-03-01", "2026-03-01"]}, True, 2 / 3),
    ],
    ids=["enough on each day", "too few on one day", "the other side", "all rows of the table", "all by default", "one day only"],
)
def test_the_share_of_the_worst_utc_day_decides(
    session_in_berlin: SparkSession, parameters: dict[str, Any], passed: bool, worst: float
) -> None:
    expectation = ExpectRowsToBeJoinedOnEachDay(**parameters)
    found = validate(session_in_berlin.sql(f"SELECT * FROM {ROWS}"), [expectation])[check_name(expectation)]
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


@pytest.mark.parametrize(
    ("late_rows", "worst"),
    [({}, 0.5), ({"2026-03-01": 1}, 0.5), ({"2026-03-01": 2}, 0.4), ({"2026-03-04": 1}, 0.0), ({"2026-03-04": 0}, 0.5)],
    ids=["none", "on a better day", "they make their day the worst", "on a day without other rows", "zero"],
)
def test_given_late_rows_count_as_rows_without_a_partner(spark: SparkSession, late_rows: dict[str, int], worst: float) -> None:
    expectation = ExpectRowsToBeJoinedOnEachDay(**OF_ORDERS, late_rows=late_rows, mostly=0.45)
    found = validate(spark.sql(f"SELECT * FROM {ROWS}"), [expectation])[check_name(expectation)]
    assert (found.error, found.passed, found.observed) == (None, worst >= 0.45, pytest.approx(worst))


def test_the_details_have_the_checked_days_only() -> None:
    late_rows = {"2026-03-01": 2, "2026-03-05": 1}
    expectation = ExpectRowsToBeJoinedOnEachDay(column="payment_seq", late_rows=late_rows, only_days=["2026-03-01", "2026-03-02"])
    outcome = expectation._validate({"table.joined_rows_by_day": {"2026-03-02": [4, 4], "2026-03-03": [1, 0]}})
    shares, late = {"2026-03-01": 0.0, "2026-03-02": 1.0}, {"2026-03-01": 2}
    assert outcome["result"]["details"] == {"shares": shares, "late_rows": late, "days_below": ["2026-03-01"]}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mostly": 1.2}, "mostly=1.2; legal: a share from 0 to 1"),
        ({"late_rows": {"1 March": 2}}, "late_rows={'1 March': 2}; legal: numbers of rows by day, such as"),
        ({"late_rows": {"20260301": 2}}, "late_rows={'20260301': 2}; legal"),
        ({"late_rows": {"2026-03-01": -1}}, "late_rows={'2026-03-01': -1}; legal"),
    ],
)
def test_parameters_that_are_not_legal_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ExpectRowsToBeJoinedOnEachDay(column="payment_seq", **parameters)


def test_the_late_rows_of_a_table_are_counted_and_each_severity_has_its_share(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l"), source("r")], [join(how="left")])
    in_time = {"l": [Event("a", 1, 0), Event("b", 2, MINUTE), Event("a", 3, DAY)], "r": [Event("a", 4, 0), Event("a", 5, DAY)]}
    replay(engine, [in_time, {"l": [Event("a", 6, 2 * MINUTE)], "r": []}, {"l": [], "r": [Event("c", 7, DAY + HOUR)]}])
    engine.ingestion.control_batches.drain(DAY)
    engine.advance("pairs")

    def shares(
        side: str | None, days: tuple[date, date] | None = None, *more: Expectation, delay_ms: int = 1
    ) -> dict[str, tuple[bool, float]]:
        names = {"warning": 0.5, "critical": 0.3}
        expectations: list[Expectation] = [
            ExpectRowsToBeJoinedOnEachDay(column="right_seq", side=side, mostly=share, severity=severity, meta={"check": severity})
            for severity, share in names.items()
        ]
        found = findings(engine, "pairs", [*more, *expectations], day_column="final_at", result_delay_ms=delay_ms, days=days)
        assert found is not None
        return {name: (finding.passed, finding.observed) for name, finding in found.by_check.items()}

    assert shares(None) == {"warning": (True, 0.5), "critical": (True, 0.5)}
    late = pytest.approx(1 / 3)  # of the first day's rows, one is matched, one is not, and one is late
    assert shares("l") == {"warning": (False, late), "critical": (True, late)}
    second, all_days = date(2026, 3, 2), {"day_column": "left_event_time", "mostly": 0.6, "meta": {"check": "all days"}}
    of_second = shares("l", (second, second), ExpectRowsToBeJoinedOnEachDay(column="right_seq", **all_days))
    assert of_second == {"all days": (False, 0.5), "warning": (True, 1.0), "critical": (True, 1.0)}
    of_first = shares("l", (second, second), delay_ms=2)
    assert of_first == {"warning": (False, late), "critical": (True, late)}, "the days whose last rows become final in the run"


@pytest.mark.parametrize(
    ("changes", "day_column", "days_before"),
    [
        ({}, "result_time", 0),
        ({}, "left_event_time", None),
        ({"result_time": "left"}, "result_time", 1),
        ({"result_time": "left", "upper": DAY}, "result_time", 1),
        ({"result_time": "left", "upper": DAY + 1}, "result_time", 2),
        ({"result_time": "left", "upper": 0}, "result_time", 0),
    ],
    ids=[
        "the later time",
        "another column",
        "the left time",
        "a day later",
        "more than a day later",
        "the left time as the later one",
    ],
)
def test_a_run_checks_the_days_whose_last_rows_become_final_on_its_days(
    changes: dict[str, Any], day_column: str, days_before: int | None
) -> None:
    expectation = ExpectRowsToBeJoinedOnEachDay(column="right_seq", day_column=day_column)
    suites = {"pairs": ExpectationSuite(name="pairs", expectations=[expectation])}
    [suite] = table_suites(Pipeline(sources=[source("l"), source("r")], tables=[join(how="left", **changes)], suites=suites))
    run = (date(2026, 3, 4), date(2026, 3, 5))
    wanted = None if days_before is None else tuple(day - timedelta(days=days_before) for day in run)
    assert checked_days(expectation, run, suite.result_delay_ms) == wanted
