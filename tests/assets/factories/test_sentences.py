"""The parts of descriptions, for none, one and many."""

from datetime import date, timedelta

import pytest

from assets.factories.sentences import count, day_range, duration, from_to, list_text, sides_and_days
from platform_defs.engine.accounting.day_accounts import DayAccount

DAYS = [date(2026, 3, 1) + timedelta(days=n) for n in range(12)]


@pytest.mark.parametrize(("number", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1_000, "1,000 rows")])
def test_a_number_agrees_with_its_noun(number: int, text: str) -> None:
    assert count(number, "row") == text
    assert count(number, "batch") == text.replace("rows", "batches").replace("row", "batch")


@pytest.mark.parametrize(
    ("length_s", "most_units", "text"),
    [(0.9, 2, "0 s"), (59.9, 2, "59 s"), (86_700, 2, "1 d 5 min"), (95_459, 2, "1 d 2 h"), (95_459, 4, "1 d 2 h 30 min 59 s")],
)
def test_a_duration_has_its_largest_units_that_are_not_zero(length_s: float, most_units: int, text: str) -> None:
    assert duration(length_s, most_units) == text


def test_at_most_ten_sides_and_days_are_listed() -> None:
    accounts = [DayAccount("l", day) for day in DAYS]
    assert sides_and_days(accounts[:1]) == "l on 2026-03-01"
    assert sides_and_days(accounts[:2]) == "l on 2026-03-01, l on 2026-03-02"
    assert sides_and_days(accounts[:10]).endswith(", l on 2026-03-10")
    assert sides_and_days(accounts).endswith(", l on 2026-03-10, and 2 more")
    assert list_text([]) == ""


def test_a_range_with_one_member_is_that_member() -> None:
    assert (from_to(3, 3), from_to(3, 4)) == ("3", "3 to 4")
    assert (day_range([]), day_range(DAYS[:1]), day_range(DAYS[:3])) == ("no days", "2026-03-01", "2026-03-01 to 2026-03-03")
