"""Days of UTC."""

from datetime import date

import pytest

from assets.days import day_of, day_start, moment, timestamp_sql
from assets.factories.partitions import RANGE_END, RANGE_START, days_in_tags
from platform_defs.cli import render
from tests.support.small_sources import DAY


@pytest.mark.parametrize(
    ("epoch_ms", "day"),
    [
        pytest.param(0, date(1970, 1, 1), id="the epoch"),
        pytest.param(-1, date(1969, 12, 31), id="a millisecond before it"),
        pytest.param(DAY - 1, date(1970, 1, 1), id="the last millisecond of a day"),
        pytest.param(DAY, date(1970, 1, 2), id="the first millisecond of a day"),
        pytest.param(951_782_400_000, date(2000, 2, 29), id="leap day"),
        pytest.param(-62_135_596_800_000, date(1, 1, 1), id="year 1"),
        pytest.param(253_402_300_799_999, date(9999, 12, 31), id="year 9999"),
    ],
)
def test_a_day_contains_all_of_its_milliseconds(epoch_ms: int, day: date) -> None:
    assert day_of(epoch_ms) == day
    assert day_start(day) <= epoch_ms < day_start(day) + DAY


def test_an_instant_keeps_its_millisecond() -> None:
    assert moment(1_001).isoformat() == "1970-01-01T00:00:01.001000+00:00"
    assert moment(-1).isoformat() == "1969-12-31T23:59:59.999000+00:00"
    assert moment(253_402_300_799_999).microsecond == 999_000
    assert timestamp_sql(-1) == "timestamp_millis(-1L)"


@pytest.mark.parametrize(("epoch_ms", "day"), [(-62_135_596_800_001, date.min), (253_402_300_800_000, date.max), (10**17, date.max)])
def test_instants_outside_the_calendar_are_shown_as_the_first_or_last_day(epoch_ms: int, day: date) -> None:
    assert day_of(epoch_ms) == moment(epoch_ms).date() == day
    assert render.instant(epoch_ms) in ("0001-01-01 00:00:00.000Z", "9999-12-31 23:59:59.999Z")


def test_the_days_of_a_run_come_from_its_tags() -> None:
    assert days_in_tags({}) is None
    assert days_in_tags({"dagster/partition": "2026-03-01"}) == (date(2026, 3, 1), date(2026, 3, 1))
    assert days_in_tags({RANGE_START: "2026-02-28", RANGE_END: "2026-03-01"}) == (date(2026, 2, 28), date(2026, 3, 1))
