"""Semi and anti interval joins, whose results are left rows: both sides are accounted for; a wrong result is reported and repaired."""

from collections.abc import Callable
from datetime import date

import pytest
from deltalake import DeltaTable, write_deltalake

from platform_defs.engine import Engine
from tests.conftest import CopyEngine, MakeEngine
from tests.support.small_sources import DAY, HOUR, MINUTE, Event, join, law_violations, replay, rows_of, source

NOON, MORNING, LATER = 12 * HOUR, 33 * HOUR, 4 * DAY
FIRST, SECOND, FIFTH, SIXTH = (f"2026-03-0{day}" for day in (1, 2, 5, 6))
ROWS = {
    "l": [Event("a", 1, NOON), Event("b", 2, NOON), Event("c", 3, MORNING), Event("d", 4, MORNING), Event("a", 5, MORNING)],
    "r": [Event("a", 6, NOON + MINUTE), Event("a", 7, NOON + 2 * MINUTE), Event("c", 8, MORNING), Event("e", 9, NOON)],
}
AGAIN = {side: [Event(event.k, event.v + 10, event.at + LATER) for event in events] for side, events in ROWS.items()}
"""The rows again, four days later."""
Corruption = tuple[Callable[[DeltaTable], object], str]
"""What corrupts a table, and the day of the left row that it concerns."""


def _deleted(condition: str) -> Callable[[DeltaTable], object]:
    return lambda table: table.delete(condition)


def _doubled(v: int) -> Callable[[DeltaTable], object]:
    return lambda table: write_deltalake(table, table.to_pyarrow_table(filters=[("v", "=", v)]), mode="append")


def _updated(column: str, value: str, condition: str) -> Callable[[DeltaTable], object]:
    return lambda table: table.update(updates={column: value}, predicate=condition)


CORRUPTIONS: dict[str, list[Corruption]] = {
    "semi": [
        (_deleted("v = 1"), FIRST),
        (_doubled(3), SECOND),
        (_updated("result_time", "result_time + INTERVAL '1 minute'", "v = 11"), FIFTH),
    ],
    "anti": [(_doubled(2), FIRST), (_deleted("v = 4"), SECOND), (_updated("arrival", "77", "v = 12"), FIFTH)],
}
"""A row of each day is deleted or doubled; a matched row is later, and the identity of an unmatched row is altered. `SIXTH` is correct."""


@pytest.fixture(scope="module")
def left_rows(make_module_engine: MakeEngine) -> Engine:
    """A semi and an anti join with final results of four days."""
    engine = make_module_engine([source("l"), source("r")], [join(how, how=how) for how in ("semi", "anti")])
    replay(engine, [ROWS, AGAIN, {side: [Event("z", 0, LATER + 2 * DAY)] for side in "lr"}])
    for how in ("semi", "anti"):
        engine.advance(how)
    return engine


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_both_sides_of_a_join_of_left_rows_are_accounted_for(left_rows: Engine, how: str) -> None:
    days = {(a.side, str(a.day)): (a.accepted, a.matched, a.unmatched, a.pending, a.late) for a in left_rows.accounts.days(how)}
    assert days == {
        **{("l", day): (2, 1, 1, 0, 0) for day in (FIRST, FIFTH)},
        **{("r", day): (3, 2, 1, 0, 0) for day in (FIRST, FIFTH)},
        **{("l", day): (3, 1, 2, 0, 0) for day in (SECOND, SIXTH)},
        **{("r", day): (1, 1, 0, 0, 0) for day in (SECOND, SIXTH)},
        **{(side, "2026-03-07"): (1, 0, 0, 1, 0) for side in "lr"},
    }
    one_day = left_rows.accounts.days(how, (date(2026, 3, 1), date(2026, 3, 1)))
    assert {(a.side, a.matched, a.unmatched) for a in one_day} == {("l", 1, 1), ("r", 2, 1)}
    assert left_rows.accounts.pairs(how) is None


@pytest.mark.parametrize("how", CORRUPTIONS)
def test_wrong_left_rows_name_their_days_and_a_rebuild_repairs_them(left_rows: Engine, copy_engine: CopyEngine, how: str) -> None:
    engine = copy_engine(left_rows)
    correct = rows_of(engine.views.table(how))
    for corrupt, _ in CORRUPTIONS[how]:
        corrupt(DeltaTable(engine.lake.path(how)))
    assert rows_of(engine.views.table(how)) != correct
    assert law_violations(engine, how) == {("l", day) for _, day in CORRUPTIONS[how]}
    engine.rebuild_days(how)
    assert rows_of(engine.views.table(how)) == correct
    assert law_violations(engine, how) == set()
