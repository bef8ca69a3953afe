"""A corrupted table violates the conservation law, and a rebuild repairs it, even during a running stream."""

import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from platform_defs import faults
from platform_defs.engine import Engine
from platform_defs.engine.lake.errors import LakeBusy
from platform_defs.engine.lake.tables import Lake
from tests.conftest import MakeEngine
from tests.support.clock import Clock
from tests.support.small_sources import HOUR, MINUTE, START, Event, iso, join, law_violations, replay, rows_of, source, totals

NOON, EVENING, MORNING = 12 * HOUR, 20 * HOUR, 33 * HOUR
FIRST, SECOND = "2026-03-01", "2026-03-02"
BATCH = {
    "l": [Event("a", 1, NOON), Event("a", 2, NOON + MINUTE), Event("b", 3, NOON), Event("c", 4, MORNING), Event(None, 5, EVENING)],
    "r": [Event("a", 6, NOON + 2 * MINUTE), Event("a", 7, NOON), Event("c", 8, MORNING + MINUTE), Event("d", 9, EVENING)],
}
END = {"l": [Event("z", 0, 48 * HOUR)], "r": [Event("z", 0, 48 * HOUR)]}


SOURCES, ASSETS = [source("l"), source("r")], [join("pairs"), join("inner_pairs", how="inner")]


@pytest.fixture(scope="module")
def lake_root(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with final results of two days, of matched and unmatched rows, and two pending rows."""
    root = tmp_path_factory.mktemp("lake_root") / "lake"
    made = Engine(Lake(str(root)), {s.name: s for s in SOURCES}, {a.name: a for a in ASSETS}, lambda: spark, Clock())
    replay(made, [BATCH, END])
    made.advance("pairs")
    made.advance("inner_pairs")
    return root


@pytest.fixture
def engine(lake_root: Path, make_engine: MakeEngine, tmp_path: Path) -> Engine:
    """An engine on a copy of the lake."""
    shutil.copytree(lake_root, tmp_path / "lake")
    return make_engine(SOURCES, ASSETS)


def table(engine: Engine, name: str = "pairs") -> DeltaTable:
    return DeltaTable.forPath(engine.spark, engine.lake.path(name))


def duplicate(engine: Engine, name: str, condition: str) -> None:
    rows = engine.views.table(name).where(condition)
    engine.spark.createDataFrame(rows.toArrow()).write.format("delta").mode("append").save(engine.lake.path(name))


CORRUPTIONS: dict[str, tuple[Callable[[Engine], object], set[tuple[str, str]]]] = {
    "a pair is deleted, whose rows have other pairs": (
        lambda e: table(e).delete("left_v = 1 and right_v = 6"),
        {("l", FIRST), ("r", FIRST)},
    ),
    "the only pair of its rows is deleted": (lambda e: table(e).delete("k = 'c'"), {("l", SECOND), ("r", SECOND)}),
    "an unmatched row is deleted": (lambda e: table(e).delete("left_v = 3"), {("l", FIRST)}),
    "a pair is doubled": (lambda e: duplicate(e, "pairs", "k = 'c'"), {("l", SECOND), ("r", SECOND)}),
    "an unmatched row is doubled": (lambda e: duplicate(e, "pairs", "right_v = 9"), {("r", FIRST)}),
    "a value is altered": (lambda e: table(e).update("left_v = 3", {"left_v": F.lit(30)}), {("l", FIRST)}),
    "a value is moved to the other side": (
        lambda e: table(e).update("left_v = 3", {"right_v": F.col("left_v"), "left_v": F.lit(None)}),
        {("l", FIRST)},
    ),
    "the identity of a row is altered": (lambda e: table(e).update("k = 'c'", {"left_arrival": F.lit(77)}), {("l", SECOND), ("r", SECOND)}),
    "a result's time is altered": (
        lambda e: table(e).update("right_v = 9", {"result_time": F.expr("result_time + interval 1 minute")}),
        {("r", FIRST)},
    ),
}


REPAIRED = ("the only pair of its rows is deleted", "a pair is doubled", "a result's time is altered")


@pytest.mark.parametrize("case", CORRUPTIONS)
def test_a_corrupted_result_names_its_side_and_day_and_a_rebuild_repairs_it(engine: Engine, case: str) -> None:
    corrupt, expected = CORRUPTIONS[case]
    correct = rows_of(engine.views.table("pairs"))
    corrupt(engine)
    assert law_violations(engine) == expected
    if case not in REPAIRED:
        return
    rebuilt = engine.rebuild("pairs", date(2026, 3, 1), date(2026, 3, 3))
    assert {str(d) for d in rebuilt.days} == {day for _, day in expected}
    assert rows_of(engine.views.table("pairs")) == correct
    assert law_violations(engine) == set()


def test_an_inner_join_detects_a_lost_pair(engine: Engine) -> None:
    assert law_violations(engine, "inner_pairs") == set()
    table(engine, "inner_pairs").delete("k = 'c'")
    assert law_violations(engine, "inner_pairs") == {("l", SECOND), ("r", SECOND)}


def test_every_row_is_counted_once(engine: Engine) -> None:
    replay(engine, [{"l": [Event("a", 50, NOON)]}])
    engine.advance("pairs")
    counts = totals(engine)
    assert {term: counts["l", term] for term in ("accepted", "matched", "unmatched", "pending", "late")} == {
        "accepted": 7,
        "matched": 3,
        "unmatched": 2,
        "pending": 1,
        "late": 1,
    }
    assert counts["r", "matched"] == 3
    assert law_violations(engine) == set()
    assert rows_of(engine.views.late("pairs", "l"), "v") == [(50,)]


def test_rows_missing_in_a_log_are_detected_by_comparison_with_the_ledger(engine: Engine) -> None:
    assert engine.accounts.count_differences("pairs") == {}
    DeltaTable.forPath(engine.spark, engine.lake.path("events/l")).delete("v = 3")
    assert engine.accounts.count_differences("pairs") == {("l", 1): (5, 4)}
    assert ("l", FIRST) in law_violations(engine)


def test_a_rebuild_of_correct_days_makes_no_commit(engine: Engine) -> None:
    version = engine.lake.version("pairs")
    assert engine.rebuild("pairs", date(2026, 3, 1), date(2026, 3, 3)).days == ()
    assert engine.lake.version("pairs") == version


def test_a_rebuild_during_a_running_stream_loses_nothing(engine: Engine, make_engine: MakeEngine) -> None:
    """The stream ingests between the rebuild's read and write. Its step on the same table is refused, and repeated after the rebuild."""
    engine.drain()
    replay(engine, [{"l": [Event("n", 1, 60 * HOUR)], "r": [Event("n", 2, 60 * HOUR + MINUTE)]}])
    table(engine).delete("k = 'c'")
    stream_engine = make_engine(SOURCES, ASSETS)

    def stream(point: str) -> None:
        if point == "rebuild.before_write":
            faults.install(None)
            replay(
                stream_engine,
                [
                    {"l": [Event("m", 1, 62 * HOUR)], "r": [Event("m", 2, 62 * HOUR + MINUTE)]},
                    {n: [Event("y", 0, 90 * HOUR)] for n in ("l", "r")},
                ],
            )
            with pytest.raises(LakeBusy, match="pairs has a writer already"):
                stream_engine.advance("pairs")

    faults.install(stream)
    assert engine.rebuild("pairs", date(2026, 3, 1), date(2026, 3, 9)).missing == 1
    assert law_violations(engine) == set()
    assert stream_engine.advance("pairs")[0].rows > 0
    assert law_violations(engine) == set()
    keys = {r.k for r in engine.views.table("pairs").where("right_v is not null and left_v is not null").collect()}
    assert {"a", "c", "m", "n"} <= keys
    assert engine.advance("pairs") == []


def test_progress_survives_compaction(engine: Engine) -> None:
    before = engine.pending.progress("pairs")
    engine.lake.optimize(engine.spark, "pairs")
    assert engine.pending.progress("pairs") == before
    assert iso(START)[:10] == FIRST
