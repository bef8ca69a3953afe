"""The law of one step: every row is finalized by exactly one step, and a lost, duplicated or invented row violates it."""

from collections.abc import Callable

import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from operators.interval_join import How
from platform_defs.engine import Engine, LawError
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.advance.closed_ranges import ClosedRanges
from tests.conftest import MakeEngine
from tests.support.small_sources import DAY, HOUR, MINUTE, Event, join, replay, source, totals

STREAM = [
    {"l": [Event("a", 1, 0), Event("b", 2, MINUTE), Event("a", 3, 2 * MINUTE)], "r": [Event("a", 4, 3 * MINUTE), Event("c", 5, MINUTE)]},
    {"l": [Event("b", 6, 30 * MINUTE)], "r": [Event("b", 7, 31 * MINUTE), Event("b", 8, 32 * MINUTE)]},
    {"l": [Event("a", 9, MINUTE), Event("d", 10, DAY)], "r": [Event("b", 11, DAY + HOUR)]},
    {"l": [Event("d", 12, DAY + 2 * HOUR)], "r": [Event("a", 13, 2 * MINUTE), Event("d", 14, DAY + 2 * HOUR)]},
]


JOIN_TYPES: tuple[How, ...] = ("inner", "full")


@pytest.fixture(scope="module")
def engine_and_steps(make_module_engine: MakeEngine) -> tuple[Engine, dict[str, list[Step]]]:
    """Both joins, with a step for the first two batches, one for each later batch and one after the drain."""
    engine = make_module_engine([source("l"), source("r")], [join(how, how=how) for how in JOIN_TYPES])
    steps: dict[str, list[Step]] = {how: [] for how in JOIN_TYPES}
    for batches in (STREAM[:2], STREAM[2:3], STREAM[3:], None):
        replay(engine, batches) if batches else engine.drain()
        for how, made in steps.items():
            made.extend(engine.advance(how))
    return engine, steps


@pytest.mark.parametrize("how", JOIN_TYPES)
def test_each_row_is_finalized_by_exactly_one_step(engine_and_steps: tuple[Engine, dict[str, list[Step]]], how: How) -> None:
    engine, steps = engine_and_steps
    accounts = [a for step in steps[how] for a in engine.accounts.step(how, step)]
    assert all(a.holds for a in accounts)
    found = {
        (side, term): sum(getattr(a, term) for a in accounts if a.side == side)
        for side in ("l", "r")
        for term in ("accepted", "matched", "unmatched", "pending", "late")
    }
    assert found == totals(engine, how)
    assert found["l", "late"] == 1
    assert found["r", "late"] == 1


@pytest.fixture(scope="module")
def correct(engine_and_steps: tuple[Engine, dict[str, list[Step]]]) -> DataFrame:
    """The rows of the full join, in memory."""
    engine, _ = engine_and_steps
    return engine.spark.createDataFrame(engine.views.table("full").toArrow())


@pytest.mark.parametrize(
    ("condition", "corrupt"),
    [
        ("left_v = 6", lambda correct, row: correct.where("left_v <> 6 OR left_v IS NULL")),
        ("left_v = 10", lambda correct, row: correct.unionByName(row)),
        ("left_v = 6", lambda correct, row: correct.unionByName(row.withColumn("right_seq", F.lit(None).cast("bigint")))),
        ("left_v = 6", lambda correct, row: correct.unionByName(row.withColumn("left_arrival", F.lit(999).cast("bigint")))),
    ],
    ids=["lost", "unmatched twice", "matched and unmatched", "invented"],
)
def test_a_wrong_result_violates_the_law_of_its_step(
    engine_and_steps: tuple[Engine, dict[str, list[Step]]],
    correct: DataFrame,
    condition: str,
    corrupt: Callable[[DataFrame, DataFrame], DataFrame],
) -> None:
    engine, steps = engine_and_steps
    row = correct.where(condition).limit(1)
    [final_at] = [r[0] for r in row.select(F.unix_millis("final_at")).collect()]
    [step] = [s for s in steps["full"] if (s.before.closed_to or 0) < final_at <= (s.after.closed_to or 0)]
    _overwrite(engine, corrupt(correct, row))
    violations = {a.side for a in engine.accounts.step("full", step) if not a.holds}
    _overwrite(engine, correct)
    assert "l" in violations


def _overwrite(engine: Engine, rows: DataFrame) -> None:
    write_deltalake(engine.lake.path("full"), rows.toArrow(), mode="overwrite")


def test_a_stream_stops_at_the_step_that_violates_the_law(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine([source("l"), source("r")], [join(how="full")])
    replay(engine, STREAM[:2])
    closed = ClosedRanges._results_in
    without_one = "left_v IS NULL OR left_v <> 3"
    monkeypatch.setattr(ClosedRanges, "_results_in", lambda self, *of: closed(self, *of).where(without_one))
    with pytest.raises(LawError, match=r"pairs breaks the conservation law: l 2026-03-01: 3 accepted"):
        list(engine.steps("pairs", checked=True))
