"""Durations, intervals and closed ranges as values; no test needs Spark."""

from datetime import timedelta
from typing import Any

import pytest

from operators import ClosedRange, DurationError, Interval, OperatorError
from operators.timing import DAY_MS, duration_ms, length_ms

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        pytest.param(0, 0, id="zero"),
        pytest.param(-250, -250, id="negative int"),
        pytest.param(2**53 + 1, 2**53 + 1, id="not converted through a float"),
        pytest.param("24 hours", DAY_MS, id="text"),
        pytest.param("1001 ms", 1001, id="1001 stays 1001"),
        pytest.param("-250 ms", -250, id="negative text"),
        pytest.param("+5 min", 300_000, id="signed text"),
        pytest.param("90 s", 90_000, id="letter"),
        pytest.param("90s", 90_000, id="no space"),
        pytest.param("  2 Weeks ", 14 * DAY_MS, id="case and spaces"),
        pytest.param("1 day", DAY_MS, id="singular"),
        pytest.param("3 mins", 180_000, id="short plural"),
        pytest.param("7 msec", 7, id="msec"),
        pytest.param("8 milliseconds", 8, id="milliseconds"),
        pytest.param(timedelta(hours=1, milliseconds=1), HOUR + 1, id="timedelta"),
        pytest.param(-timedelta(milliseconds=1), -1, id="negative timedelta"),
    ],
)
def test_a_duration_is_read_as_whole_milliseconds(value: int | str | timedelta, ms: int):
    assert duration_ms(value, "upper") == ms


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(True, id="bool"),
        pytest.param(False, id="bool that would be zero"),
        pytest.param(1.0, id="float"),
        pytest.param(None, id="none"),
        pytest.param("", id="empty"),
        pytest.param("24", id="no unit"),
        pytest.param("hours", id="no number"),
        pytest.param("1.5 hours", id="fraction"),
        pytest.param("5 fortnights", id="unknown unit"),
        pytest.param("1 month", id="month: no fixed length"),
        pytest.param("1 hour 30 minutes", id="two parts"),
        pytest.param("5 us", id="finer than 1 ms as text"),
        pytest.param(timedelta(microseconds=1), id="finer than 1 ms"),
        pytest.param(timedelta(microseconds=-1500), id="finer than 1 ms below zero"),
    ],
)
def test_an_illegal_duration_is_refused_by_name(value: Any):
    with pytest.raises(DurationError, match=r"`upper` is .*; legal: whole milliseconds as an int, a timedelta"):
        duration_ms(value, "upper")


def test_a_negative_length_is_refused():
    assert length_ms(0, "size") == 0
    with pytest.raises(DurationError, match=r"`size` is '-1 ms'; legal: a duration of zero or more"):
        length_ms("-1 ms", "size")


@pytest.mark.parametrize(
    ("lower_exclusive", "upper_exclusive", "interval"),
    [
        pytest.param(False, False, Interval(-5, 10), id="closed"),
        pytest.param(True, False, Interval(-4, 10), id="lower end open"),
        pytest.param(False, True, Interval(-5, 9), id="upper end open"),
        pytest.param(True, True, Interval(-4, 9), id="both ends open"),
    ],
)
def test_an_exclusive_bound_is_the_inclusive_one_moved_by_1_ms(lower_exclusive: bool, upper_exclusive: bool, interval: Interval):
    assert Interval.between(-5, "10 ms", lower_exclusive=lower_exclusive, upper_exclusive=upper_exclusive) == interval


@pytest.mark.parametrize(("parameter", "bounds"), [("lower", (True, 0)), ("upper", (0, "soon"))])
def test_an_illegal_interval_names_the_bound(parameter: str, bounds: tuple[Any, Any]):
    with pytest.raises(DurationError, match=f"`{parameter}` is"):
        Interval.between(*bounds)


@pytest.mark.parametrize(
    ("interval", "forward", "backward"),
    [
        pytest.param(Interval(-5, 10), 10, 5, id="around"),
        pytest.param(Interval(3, 10), 10, 0, id="right later"),
        pytest.param(Interval(-10, -3), 0, 10, id="right earlier"),
        pytest.param(Interval(0, 0), 0, 0, id="one instant"),
        pytest.param(Interval(10, -10), 0, 0, id="contains nothing"),
    ],
)
def test_how_long_each_side_waits(interval: Interval, forward: int, backward: int):
    assert (interval.forward, interval.backward) == (forward, backward)
    assert (interval.mirrored.forward, interval.mirrored.backward) == (backward, forward)
    assert interval.mirrored.mirrored == interval


def test_a_closed_range_never_goes_back():
    assert ClosedRange(None, -5).after is None
    assert ClosedRange(7, 7) == ClosedRange(7, 7)
    with pytest.raises(OperatorError, match=r"`after` is 8; legal: at most `upto` \(7\): a watermark never goes back"):
        ClosedRange(8, 7)
