"""The account of an upserted table, from given row counts. No session is needed."""

from datetime import date
from types import SimpleNamespace
from typing import Any, cast

import pytest

from platform_defs.engine.accounting import upserted_rows
from platform_defs.engine.accounting.day_accounts import DayAccount, Scope
from platform_defs.engine.accounting.row_counts import RowCount, RowFlag
from platform_defs.engine.advance.advance import Advance

FIRST, SECOND = date(2026, 3, 1), date(2026, 3, 2)
NO_SCOPE = cast(Scope, None)


def test_a_source_that_is_two_inputs_has_one_account_for_each_input(monkeypatch: pytest.MonkeyPatch) -> None:
    source: Any = SimpleNamespace(name="clicks", is_source=True)
    workspace = SimpleNamespace(inputs_of=lambda _: [source, source])
    advance = cast(Advance, SimpleNamespace(workspace=workspace, asset=SimpleNamespace(inputs=("clicks", "clicks"))))
    flags = RowFlag.ACCEPTED | RowFlag.FINALIZED
    counts = [RowCount(index, day, flags, 10, 0, 0) for index in (0, 1) for day in (FIRST, SECOND)]
    monkeypatch.setattr(upserted_rows, "_compared", lambda _: _Compared())
    monkeypatch.setattr(upserted_rows, "_rows_of_source", lambda *_: None)
    monkeypatch.setattr(upserted_rows, "count_rows", lambda _: counts)
    monkeypatch.setattr(upserted_rows, "differing_days", lambda _: [SECOND])
    monkeypatch.setattr(upserted_rows, "_count_missing_and_extra", lambda _: (3, 1))
    right = [DayAccount("clicks", day, accepted=10, matched=10) for day in (FIRST, FIRST, SECOND)]
    assert upserted_rows.upserted_account(advance, NO_SCOPE) == [
        *right,
        DayAccount("clicks", SECOND, accepted=10, matched=10, missing=3, extra=1),
    ]


class _Compared:
    def hash_frames(self) -> list[Any]:
        return []
