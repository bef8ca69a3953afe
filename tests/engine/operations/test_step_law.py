"""A step that breaks the conservation law ends a stream, even if the account of the changed days fails. No session is needed."""

from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest

from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.accounting.one_step import LawError
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.operations.step_law import check_step

FIRST = date(2026, 3, 1)


def _accounts(matched: int, error: Exception | None = None) -> Any:
    def check(*of: object) -> None:
        checked.append(of)
        if error is not None:
            raise error

    checked: list[tuple[object, ...]] = []
    return SimpleNamespace(step=lambda *_: [DayAccount("l", FIRST, accepted=3, matched=matched)], check=check, checked=checked)


ERRORS = [
    pytest.param(None, False, id="recorded"),
    pytest.param(LawError("broken"), False, id="recorded, with the violation"),
    pytest.param(LakeError("a data file is missing"), True, id="a lost file"),
    pytest.param(MemoryError(), True, id="no memory"),
]


@pytest.mark.parametrize(("error", "warned"), ERRORS)
def test_a_violation_is_raised_although_its_account_fails(error: Exception | None, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    accounts, step = _accounts(2, error), SimpleNamespace()
    with pytest.raises(LawError, match="pairs breaks the conservation law: l 2026-03-01: 3 accepted, 2 matched"):
        check_step(accounts, "pairs", step)  # pyright: ignore[reportArgumentType]
    assert accounts.checked == [("pairs", step)]
    assert ("pairs breaks the conservation law, and its account could not be recorded" in caplog.text) == warned


def test_a_step_without_violation_costs_no_account_of_its_days() -> None:
    accounts = _accounts(3)
    check_step(accounts, "pairs", SimpleNamespace())  # pyright: ignore[reportArgumentType]
    assert not accounts.checked
