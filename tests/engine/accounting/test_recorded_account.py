"""The recorded account of a table: what a later account replaces, and which account is not recorded. No session is needed."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from platform_defs.engine import Engine
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.accounting.recorded_account import FOLDER, RecordedAccount
from tests.support.bare_lake import bare_engine, commit_batch, commit_step
from tests.support.clock import Clock
from tests.support.recorded_accounts import record_accounts
from tests.support.small_sources import DAY, START, join, source

FIRST, SECOND = date(2026, 3, 1), date(2026, 3, 2)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = bare_engine(tmp_path, Clock(), [source("l"), source("r")], [join()])
    commit_batch(engine, {"l": {"watermark": START}, "r": {"watermark": START}})
    commit_step(engine, "pairs", closed_to=START)
    return engine


def _accounts(*days: date) -> list[DayAccount]:
    return [DayAccount(side, day, accepted=1, matched=1) for day in days for side in ("l", "r")]


def _recorded(engine: Engine) -> RecordedAccount:
    recorded = engine.accounts.recorded_account("pairs")
    assert recorded is not None
    return recorded


def test_comparing_a_batch_again_replaces_or_removes_its_difference(engine: Engine) -> None:
    record_accounts(engine, "pairs", _accounts(FIRST), {("l", 1): (3, 2), ("r", 2): (1, 0)}, (FIRST, FIRST))
    record_accounts(engine, "pairs", _accounts(SECOND), {}, (SECOND, SECOND), compared={"l": (2, 2)})
    assert sorted(_recorded(engine).differences) == [("l", 1, 3, 2), ("r", 2, 1, 0)]
    record_accounts(engine, "pairs", _accounts(FIRST), {("l", 1): (4, 2)}, (FIRST, FIRST))
    assert sorted(_recorded(engine).differences) == [("l", 1, 4, 2), ("r", 2, 1, 0)]
    record_accounts(engine, "pairs", _accounts(FIRST), {}, (FIRST, FIRST), compared={"l": (1, 2)})
    assert _recorded(engine).differences == [("r", 2, 1, 0)]
    record_accounts(engine, "pairs", _accounts(FIRST), {}, (FIRST, FIRST), compared={"l": (1, 2), "r": (1, 2)})
    assert _recorded(engine).holds


@pytest.mark.parametrize("days", [(FIRST, FIRST), (SECOND, SECOND), (FIRST, SECOND), None])
def test_a_violation_outside_the_accounted_days_is_replaced_by_an_account_of_its_day_or_of_those_days(
    engine: Engine, days: tuple[date, date] | None
) -> None:
    """A missing result is on the day of its `final_at`, which may be after the days that are accounted for."""
    record_accounts(engine, "pairs", _accounts(FIRST, SECOND))
    for _ in range(2):  # the second account replaces the violation that the first one found, and does not add to it
        record_accounts(engine, "pairs", [*_accounts(FIRST), DayAccount("l", SECOND, missing=1)], {}, (FIRST, FIRST))
    found = _recorded(engine)
    assert [(day.side, day.day, day.holds) for day in found.days] == [(side, f"2026-03-0{n}", True) for n in (1, 2) for side in "lr"]
    assert [(day.side, day.day, day.terms["missing"]) for day in found.violations] == [("l", "2026-03-02", 1)]
    assert (found.terms["accepted"], found.terms["missing"]) == ({"l": 2, "r": 2}, {"l": 1, "r": 0})
    third = SECOND + timedelta(days=1)
    record_accounts(engine, "pairs", _accounts(third), {}, (third, third))
    assert not _recorded(engine).holds, "no account of its day, or of the days that found it"
    record_accounts(engine, "pairs", _accounts(FIRST, SECOND), {}, days)
    assert _recorded(engine).holds


def test_an_account_from_before_a_repair_is_not_recorded(engine: Engine) -> None:
    snapshot = engine.snapshot()
    commit_step(engine, "pairs", corrected=((2, START, START),))
    commit_batch(engine, {"l": {"watermark": START + DAY}, "r": {"watermark": START + DAY}})
    commit_step(engine, "pairs", closed_to=START + DAY)
    record_accounts(snapshot, "pairs", _accounts(FIRST))
    assert engine.accounts.recorded_account("pairs") is None
    record_accounts(engine.snapshot(), "pairs", _accounts(FIRST))
    assert _recorded(engine).holds


def test_an_account_from_before_a_step_is_recorded(engine: Engine) -> None:
    snapshot = engine.snapshot()
    for days in (1, 2):
        commit_batch(engine, {"l": {"watermark": START + days * DAY}, "r": {"watermark": START + days * DAY}})
        commit_step(engine, "pairs", closed_to=START + days * DAY)
    record_accounts(snapshot, "pairs", _accounts(FIRST))
    assert _recorded(engine).holds


def test_an_account_from_before_a_rebuild_is_not_recorded(engine: Engine) -> None:
    snapshot = engine.snapshot()
    commit_step(engine, "pairs", generation=1)
    record_accounts(engine.snapshot(), "pairs", _accounts(SECOND))
    record_accounts(snapshot, "pairs", _accounts(FIRST))
    assert {day.day for day in _recorded(engine).days} == {str(SECOND)}, "the account of the rebuilt table is kept"


DAMAGE = {
    "no JSON": (": true", ":"),
    "no side": ('"side"', '"of"'),
    "no day": (str(FIRST), "2026-02-30"),
    "no days": ('"found_in": null', '"found_in": []'),
    "one day": ('"found_in": null', f'"found_in": ["{FIRST}"]'),
    "too deep": ('"days": ', '"days": ' + "[" * 200_000),
    "no number": ('"at": ', '"at": 1e999, "was": '),
}
"""A text in the file of a recorded account, and what it becomes."""


@pytest.mark.parametrize(("text", "damaged"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_ignored_and_replaced(engine: Engine, text: str, damaged: str) -> None:
    record_accounts(engine, "pairs", _accounts(FIRST))
    file = Path(engine.lake.root, FOLDER, "pairs.json")
    content = file.read_text()
    assert text in content
    file.write_text(content.replace(text, damaged))
    assert engine.accounts.recorded_account("pairs") is None
    record_accounts(engine, "pairs", _accounts(SECOND), {}, (SECOND, SECOND))
    assert {day.day for day in _recorded(engine).days} == {str(SECOND)}
