"""Semi and anti interval joins, whose results are left rows: both sides are accounted for; a wrong result is reported and repaired."""

from collections.abc import Callable
from datetime import date

import pytest
from deltalake import DeltaTable, write_deltalake

from platform_defs.engine import Engine
from tests.conftest import CopyEngine, MakeEngine
from tests.support.small_sources import HOUR, MINUTE, Event, join, law_violations, replay, rows_of, source

NOON, MORNING, FIRST, SECOND = 12 * HOUR, 33 * HOUR, "2026-03-01", "2026-03-02"
ROWS = {
    "l": [Event("a", 1, NOON), Event("b", 2, NOON), Event("c", 3, MORNING), Event("d", 4, MORNING), Event("a", 5, MORNING)],
    "r": [Event("a", 6, NOON + MINUTE), Event("a", 7, NOON + 2 * MINUTE), Event("c", 8, MORNING), Event("e", 9, NOON)],
}
Corruption = tuple[Callable[[DeltaTable], object], str]
"""What corrupts a table, and the day of the left row that it concerns."""


def _deleted(condition: str) -> Callable[[DeltaTable], object]:
    return lambda table: table.delete(condition)


def _doubled(v: int) -> Callable[[DeltaTable], object]:
    return lambda table: write_deltalake(table, table.to_pyarrow_table(filters=[("v", "=", v)]), mode="append")


def _updated(column: str, value: str, condition: str) -> Callable[[DeltaTable], object]:
    return lambda table: table.update(updates={column: value}, predicate=condition)


CORRUPTIONS: dict[str, dict[str, list[Corruption]]] = {
    "a row of each day is deleted or doubled": {
        "semi": [(_deleted("v = 1"), FIRST), (_doubled(3), SECOND)],
        "anti": [(_deleted("v = 4"), SECOND), (_doubled(2), FIRST)],
    },
    "a matched row is later, and the identity of an unmatched row is altered": {
        "semi": [(_updated("result_time", "result_time + INTERVAL '1 minute'", "v = 1"), FIRST)],
        "anti": [(_updated("arrival", "77", "v = 2"), FIRST)],
    },
    "nothing is altered": {"anti": []},
}


@pytest.fixture(scope="module")
def left_rows(make_module_engine: MakeEngine) -> Engine:
    """A semi and an anti join with final results of two days."""
    engine = make_module_engine([source("l"), source("r")], [join(how, how=how) for how in ("semi", "anti")])
    replay(engine, [ROWS, {side: [Event("z", 0, 48 * HOUR)] for side in "lr"}])
    for how in ("semi", "anti"):
        engine.advance(how)
    return engine


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_both_sides_of_a_join_of_left_rows_are_accounted_for(left_rows: Engine, how: str) -> None:
    days = {(a.side, str(a.day)): (a.accepted, a.matched, a.unmatched, a.pending, a.late) for a in left_rows.accounts.days(how)}
    assert days == {
        ("l", FIRST): (2, 1, 1, 0, 0),
        ("r", FIRST): (3, 2, 1, 0, 0),
        ("l", SECOND): (3, 1, 2, 0, 0),
        ("r", SECOND): (1, 1, 0, 0, 0),
        ("l", "2026-03-03"): (1, 0, 0, 1, 0),
        ("r", "2026-03-03"): (1, 0, 0, 1, 0),
    }
    one_day = left_rows.accounts.days(how, (date(2026, 3, 1), date(2026, 3, 1)))
    assert {(a.side, a.matched, a.unmatched) for a in one_day} == {("l", 1, 1), ("r", 2, 1)}
    assert left_rows.accounts.pairs(how) is None


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_a_wrong_result_of_left_rows_names_its_day_and_a_rebuild_repairs_it(
    left_rows: Engine, copy_engine: CopyEngine, corruption: str
) -> None:
    engine = copy_engine(left_rows)
    for how, corruptions in CORRUPTIONS[corruption].items():
        correct = rows_of(engine.views.table(how))
        for corrupt, _ in corruptions:
            corrupt(DeltaTable(engine.lake.path(how)))
        assert (rows_of(engine.views.table(how)) == correct) == (not corruptions)
        assert law_violations(engine, how) == {("l", day) for _, day in corruptions}
        engine.rebuild_days(how)
        assert rows_of(engine.views.table(how)) == correct
        assert law_violations(engine, how) == set()
