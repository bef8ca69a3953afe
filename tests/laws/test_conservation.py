"""A corrupted table violates the conservation law, and a rebuild repairs it, even during a running stream."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from functools import reduce
from itertools import pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from platform_defs.engine import Engine, faults
from platform_defs.engine.lake.errors import LakeBusy
from platform_defs.engine.lake.tables import Lake
from tests.conftest import MakeEngine
from tests.support.clock import Clock
from tests.support.small_sources import DAY, HOUR, MINUTE, START, Event, iso, join, law_violations, replay, rows_of, source, totals

NOON, EVENING, MORNING = 12 * HOUR, 20 * HOUR, 33 * HOUR
FIRST, SECOND = iso(START)[:10], iso(START + DAY)[:10]
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


def delete(engine: Engine, table: str, condition: str) -> None:
    assert DeltaTable(engine.lake.path(table)).delete(condition)["num_deleted_rows"] == 1


def without(rows: DataFrame, condition: str) -> DataFrame:
    return rows.where(f"NOT coalesce({condition}, false)")


def doubled(rows: DataFrame, condition: str) -> DataFrame:
    return rows.unionByName(rows.where(condition))


def altered(rows: DataFrame, condition: str, **values: str) -> DataFrame:
    return rows.withColumns({c: F.when(F.expr(condition), F.expr(sql)).otherwise(F.col(c)) for c, sql in values.items()})


CORRUPTIONS: dict[str, tuple[Callable[[DataFrame], DataFrame], set[tuple[str, str]]]] = {
    "a pair is deleted, whose rows have other pairs": (
        lambda rows: without(rows, "left_v = 1 AND right_v = 6"),
        {("l", FIRST), ("r", FIRST)},
    ),
    "the only pair of its rows is deleted": (lambda rows: without(rows, "k = 'c'"), {("l", SECOND), ("r", SECOND)}),
    "an unmatched row is deleted": (lambda rows: without(rows, "left_v = 3"), {("l", FIRST)}),
    "a pair is doubled": (lambda rows: doubled(rows, "k = 'c'"), {("l", SECOND), ("r", SECOND)}),
    "an unmatched row is doubled": (lambda rows: doubled(rows, "right_v = 9"), {("r", FIRST)}),
    "a value is altered": (lambda rows: altered(rows, "left_v = 3", left_v="30"), {("l", FIRST)}),
    "a value is moved to the other side": (
        lambda rows: altered(rows, "left_v = 3", right_v="left_v", left_v="CAST(NULL AS int)"),
        {("l", FIRST)},
    ),
    "the identity of a row is altered": (lambda rows: altered(rows, "k = 'c'", left_arrival="77L"), {("l", SECOND), ("r", SECOND)}),
    "a result's time is altered": (
        lambda rows: altered(rows, "right_v = 9", result_time="result_time + INTERVAL 1 MINUTE"),
        {("r", FIRST)},
    ),
    "nothing is altered": (lambda rows: rows, set()),
}
PERIOD = 4
"""How many days one corruption is after another: each has its own copy of BATCH, with later times."""


def test_a_corrupted_result_names_its_side_and_day_and_a_rebuild_repairs_it(make_engine: MakeEngine) -> None:
    """One table gets all corruptions, each in the results of its own days."""
    engine = make_engine(SOURCES, ASSETS[:1])
    later = [n * PERIOD * DAY for n in range(len(CORRUPTIONS))]
    copies = {side: [replace(event, at=event.at + by) for by in later for event in events] for side, events in BATCH.items()}
    replay(engine, [copies, {side: [Event("z", 0, len(CORRUPTIONS) * PERIOD * DAY)] for side in BATCH}])
    engine.advance("pairs")
    rows = engine.spark.createDataFrame(engine.views.table("pairs").toArrow())
    correct = rows_of(rows)
    assert law_violations(engine) == set()

    number = F.expr(f"(unix_millis(final_at) - {START}) DIV {PERIOD * DAY}")
    parts = [corrupt(rows.where(number == n)) for n, (corrupt, _) in enumerate(CORRUPTIONS.values())]
    write_deltalake(engine.lake.path("pairs"), reduce(DataFrame.unionByName, parts).toArrow(), mode="overwrite")
    wanted = {name: {(side, _day_after(day, n * PERIOD)) for side, day in days} for n, (name, (_, days)) in enumerate(CORRUPTIONS.items())}
    violations, first_days = law_violations(engine), [_day_after(FIRST, n * PERIOD) for n in range(len(CORRUPTIONS) + 1)]
    found = zip(CORRUPTIONS, pairwise(first_days), strict=True)
    assert {name: {(side, day) for side, day in violations if first <= day < end} for name, (first, end) in found} == wanted

    rebuilt = engine.rebuild_days("pairs", date.fromisoformat(FIRST), date.fromisoformat(first_days[-1]))
    assert {str(d) for d in rebuilt.days} == {day for days in wanted.values() for _, day in days}
    assert rows_of(engine.views.table("pairs")) == correct
    assert law_violations(engine) == set()


def _day_after(day: str, days: int) -> str:
    return str(date.fromisoformat(day) + timedelta(days=days))


def test_an_inner_join_detects_a_lost_pair(engine: Engine) -> None:
    assert law_violations(engine, "inner_pairs") == set()
    delete(engine, "inner_pairs", "k = 'c'")
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
    delete(engine, "events/l", "v = 3")
    assert engine.accounts.count_differences("pairs") == {("l", 1): (5, 4)}
    assert ("l", FIRST) in law_violations(engine)


def test_a_rebuild_of_correct_days_makes_no_commit(engine: Engine) -> None:
    version = engine.lake.version("pairs")
    assert engine.rebuild_days("pairs", date(2026, 3, 1), date(2026, 3, 3)).days == ()
    assert engine.lake.version("pairs") == version


def test_a_rebuild_during_a_running_stream_loses_nothing(engine: Engine, make_engine: MakeEngine) -> None:
    """The stream ingests between the rebuild's read and write. Its step on the same table is refused, and repeated after the rebuild."""
    engine.drain()
    replay(engine, [{"l": [Event("n", 1, 60 * HOUR)], "r": [Event("n", 2, 60 * HOUR + MINUTE)]}])
    delete(engine, "pairs", "k = 'c'")
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
    assert engine.rebuild_days("pairs", date(2026, 3, 1), date(2026, 3, 9)).missing == 1
    assert law_violations(engine) == set()
    assert stream_engine.advance("pairs")[0].rows > 0
    assert law_violations(engine) == set()
    keys = {r.k for r in engine.views.table("pairs").where("right_v is not null and left_v is not null").collect()}
    assert {"a", "c", "m", "n"} <= keys
    assert engine.advance("pairs") == []


def test_progress_survives_compaction(engine: Engine) -> None:
    replay(engine, [{name: [Event("z", 1, 200 * HOUR)] for name in ("l", "r")}, {name: [Event("z", 2, 300 * HOUR)] for name in ("l", "r")}])
    assert engine.advance("pairs")
    before, version = engine.pending.progress("pairs"), engine.lake.version("pairs")
    engine.lake.optimize(engine.spark, "pairs")
    assert engine.lake.version("pairs") > version, "two files were compacted"
    assert engine.pending.progress("pairs") == before
