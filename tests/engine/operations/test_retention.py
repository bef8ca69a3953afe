"""Retention removes old rows from logs, quarantines and changelogs, and nothing that a table may still read."""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from assets.contracts import DerivedAsset, Shape
from operators.errors import OperatorError
from platform_defs.cli import status
from platform_defs.engine import DayAccount, Engine, ProgressError
from platform_defs.engine.inputs.progress import results_table
from platform_defs.engine.inputs.retained import RemovedRows
from platform_defs.engine.inputs.stored_rows import read_log, rows_by_batch
from platform_defs.engine.lake.commits import RETENTION
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.operations.changelog_retention import ChangelogRetention
from platform_defs.engine.operations.maintenance import Maintained
from platform_defs.engine.operations.quarantine_retention import QuarantineRetention
from platform_defs.engine.operations.retention import LakeRetention, LogRetention, Removal
from platform_defs.engine.operations.sink import SinkError
from tests.conftest import CopyEngine, MakeEngine, engine_maker
from tests.support.bare_lake import bare_engine, commit_batch
from tests.support.clock import Clock
from tests.support.example_operators import RunningTotal
from tests.support.kills import run_and_die
from tests.support.small_sources import DAY, HOUR, START, Event, join, land, law_violations, replay, rows_of, source

SOURCES = [source("l", retention="1 day"), source("r", retention="1 day")]
PAIRS, LATER = join(), join("later_pairs", upper="8 minutes")
TOTAL = DerivedAsset(name="total", inputs=("l",), operator=RunningTotal())
LATER_TOTAL = replace(TOTAL, name="later_total")
BATCHES = [
    {name: [Event(key, n, day * DAY + n * HOUR) for n, key in enumerate("abc")] + [Event("z", 9, (day + 1) * DAY)] for name in ("l", "r")}
    for day in range(5)
]
TABLE_POINTS = ["retention.before_quarantine", "retention.after_quarantine", "retention.before_changelog", "retention.after_changelog"]
MaintainedLake = tuple[Engine, list[Maintained]]
"""An engine on a maintained lake, and what its maintenance did."""


def by_table(done: list[Maintained]) -> dict[str, Maintained]:
    assert [m for m in done if m.left or m.failed] == []
    return {m.table: m for m in done}


def shorten_log(engine: Engine) -> Removal:
    """Remove the old rows of `l`, as a maintenance does; maintaining all tables would take longer."""
    retention = LogRetention(engine.workspace, engine.sources["l"], engine._snapshot)  # pyright: ignore[reportPrivateUsage]
    planned = retention.plan()
    assert planned is not None
    return retention.remove(planned)


def logged(engine: Engine, source: str) -> list[tuple[object, ...]]:
    return rows_of(read_log(engine.workspace, source, engine.ledger.head), "k", "v", "event_time")


def accounted(engine: Engine, name: str = "pairs") -> list[DayAccount]:
    assert engine.accounts.count_differences(name) == {}
    found = engine.accounts.days(name)
    assert [a for a in found if not a.holds] == []
    return found


@pytest.fixture(scope="module")
def whole(make_module_engine: MakeEngine) -> Engine:
    """A lake of five days, all finalized and handled, from which nothing was removed."""
    made = make_module_engine(SOURCES, [PAIRS, TOTAL])
    replay(made, BATCHES)
    for name in made.assets:
        made.advance(name)
    return made


@pytest.fixture(scope="module")
def accounts(whole: Engine) -> dict[str, list[DayAccount]]:
    """The accounts of the lake, which every copy of it has before its maintenance."""
    return {name: accounted(whole, name) for name in whole.assets}


@pytest.fixture(scope="module")
def later_pairs(whole: Engine, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """A table that is added later, made in a copy of the lake that keeps all rows."""
    root = tmp_path_factory.mktemp("later") / "lake"
    shutil.copytree(whole.lake.root, root)
    made = replace(whole, lake=replace(whole.lake, root=str(root)), assets={LATER.name: LATER}, earlier=None)
    made.advance(LATER.name)
    return made.views.table(LATER.name)


def with_ledger_retention(engine: Engine, clock: Clock, retention: int | None) -> Engine:
    """An engine that keeps the batches of the ledger for a time (in ms; None for ever), at a time when some batches are older."""
    clock.pass_ms(0 if retention is None else 2 * DAY)
    return replace(engine, clock=clock, lake_retention=LakeRetention(ledger=retention))


@pytest.fixture(params=[None])
def engine(whole: Engine, copy_engine: CopyEngine, clock: Clock, request: pytest.FixtureRequest) -> Engine:
    """A copy of the lake, without or with a retention of the ledger (in ms)."""
    return with_ledger_retention(copy_engine(whole), clock, request.param)


@pytest.fixture(scope="module")
def maintain(whole: Engine, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int | None], MaintainedLake]:
    """Maintains the lake once for each retention of the ledger (in ms or None); returns an engine on it, and what was done."""

    @cache
    def maintained_with(ledger: int | None) -> MaintainedLake:
        root = tmp_path_factory.mktemp("maintained") / "lake"
        shutil.copytree(whole.lake.root, root)
        engine = with_ledger_retention(replace(whole, lake=replace(whole.lake, root=str(root))), Clock(), ledger)
        return engine, engine.maintain()

    return maintained_with


@pytest.fixture(params=[None])
def maintained(
    maintain: Callable[[int | None], MaintainedLake],
    copy_engine: CopyEngine,
    clock: Clock,
    request: pytest.FixtureRequest,
) -> MaintainedLake:
    """A copy of the maintained lake, and what its maintenance did."""
    original, done = maintain(request.param)
    clock.now = original.clock()
    return replace(copy_engine(original), lake_retention=original.lake_retention), done


def with_whole_and_shortened_ledger(test):
    """Run a test of `maintained` a second time, with a ledger that loses its old batches in each maintenance."""
    return pytest.mark.parametrize("maintained", [None, DAY], indirect=True, ids=["whole ledger", "shortened ledger"])(test)


def with_shortened_ledger(test):
    """Run a test of `maintained` with a ledger that loses its old batches in each maintenance, and in `make test-soak` also a whole one."""
    whole_ledger = pytest.param(None, id="whole ledger", marks=pytest.mark.soak)
    return pytest.mark.parametrize("maintained", [whole_ledger, pytest.param(DAY, id="shortened ledger")], indirect=True)(test)


@with_whole_and_shortened_ledger
def test_old_rows_leave_and_their_totals_stay(maintained: MaintainedLake, accounts: dict[str, list[DayAccount]]) -> None:
    engine, first = maintained
    done = by_table(first)
    assert {t: (m.rows_removed, m.kept_from, m.held_back) for t, m in done.items() if m.rows_removed and t != "ledger"} == {
        "events/l": (11, "2026-03-04", None),
        "events/r": (11, "2026-03-04", None),
    }
    shortened = engine.lake_retention.ledger is not None
    assert (engine.ledger.history.summarized, done["ledger"].rows_removed) == ((4, 6) if shortened else (0, 0))
    assert len(logged(engine, "l")) == 9
    assert {name: accounted(engine, name) for name in engine.assets} == accounts
    days = date(2026, 3, 1), date(2026, 3, 4)
    assert engine.accounts.days("pairs", days) == [a for a in accounts["pairs"] if days[0] <= a.day <= days[1]]
    assert not any(m.rows_removed for m in engine.maintain()), "nothing more is old"
    report = status.recorded_status(engine, ["pairs", "total"])
    assert report["sources"]["l"]["retention"]["rows_removed"] == 11
    assert report["assets"]["pairs"]["retention"]["totals"]["l"]["accepted"] == 11


KILLS = [
    ("retention.before_totals", (20, 20, 0)),
    ("retention.after_totals", (20, 20, 0)),
    ("retention.after_remove", (9, 20, 0)),
    ("retention.before_format", (9, 9, 0)),
    ("retention.before_summary", (9, 9, 0)),
    ("retention.after_summary", (9, 9, 4)),
]
"""The points at which a maintenance is killed. After each kill: the number of rows in the logs of `l` and of `r`, and the number of batches
that the ledger's summary replaces."""


@pytest.mark.parametrize("engine", [DAY], indirect=True)
def test_a_kill_loses_no_row_and_no_total(engine: Engine, make_engine: MakeEngine, accounts: dict[str, list[DayAccount]]) -> None:
    """Each maintenance is killed one point later than the one before it, and repeats what that one has not committed."""
    expected = accounts["pairs"]
    progress = engine.pending.describe_progress("pairs")
    restarted = engine

    def sizes(of: Engine) -> tuple[int, int, int]:
        in_l, in_r = (sum(rows_by_batch(of.workspace, name, of.ledger.head, 0).values()) for name in ("l", "r"))
        return in_l, in_r, of.ledger.history.summarized

    for at, left in KILLS:
        run_and_die(restarted.maintain, at)
        restarted = replace(make_engine(SOURCES, [PAIRS, TOTAL]), lake_retention=engine.lake_retention)
        assert (accounted(restarted), sizes(restarted)) == (expected, left), at
    done = by_table(restarted.maintain())["ledger"]
    assert (done.rows_removed, done.kept_from, done.held_back) == (0, "batch 5", "events/l has rows of batch 5")
    assert (accounted(restarted), sizes(restarted)) == (expected, (9, 9, 4))
    assert progress.items() <= restarted.pending.describe_progress("pairs").items(), "retention only adds keys"


@with_shortened_ledger
def test_late_rows_of_removed_days_are_late_and_leave_too(maintained: MaintainedLake) -> None:
    engine, _ = maintained
    late_day = date(2026, 3, 1)

    def accounts_of_late_day() -> list[DayAccount]:
        return [account for name in ("pairs", "total") for account in accounted(engine, name) if account.day == late_day]

    replay(engine, [{"l": [Event("a", 7, HOUR), Event("z", 9, 5 * DAY + HOUR)]}])
    engine.advance("pairs")
    found = engine.accounts.days("pairs", (late_day, late_day))
    assert [(account.side, account.accepted, account.late) for account in found] == [("l", 4, 1), ("r", 3, 0)]
    engine.advance("total")
    expected = accounts_of_late_day()
    replay(engine, [{"r": [Event("z", 9, 5 * DAY + HOUR)]}])
    engine.advance("pairs")
    engine.advance("total")
    assert by_table(engine.maintain())["events/l"].rows_removed == 5, "a day, and the late row"
    assert accounts_of_late_day() == expected


def test_a_reader_holds_back_what_it_has_not_handled(engine: Engine, make_engine: MakeEngine) -> None:
    new = make_engine(SOURCES, [PAIRS, TOTAL, LATER])
    assert shorten_log(new).held_back == "later_pairs has no step yet"
    new.advance("later_pairs", START + 2 * DAY)
    done = shorten_log(new)
    assert (done.rows, done.kept_from, done.held_back) == (3, "2026-03-02", "later_pairs may still read rows of 2026-03-02")
    [*_] = new.advance("later_pairs")
    assert shorten_log(new).rows == 8
    accounted(new, "later_pairs")


@with_whole_and_shortened_ledger
@pytest.mark.usefixtures("maintained")
def test_a_table_added_later_begins_where_the_log_is_complete(make_engine: MakeEngine, later_pairs: DataFrame) -> None:
    new = make_engine(SOURCES, [PAIRS, TOTAL, LATER])
    assert new.pending.days("later_pairs") == (date(2026, 3, 4), date(2026, 3, 5))
    new.advance("later_pairs")
    start = START + 3 * DAY
    assert rows_of(new.views.table("later_pairs")) == rows_of(later_pairs.where(f"final_at >= timestamp_millis({start})"))
    assert status.recorded_status(new, ["later_pairs"])["assets"]["later_pairs"]["retention"]["complete_from"] == "2026-03-04 00:00:00.000Z"
    assert {a.day for a in accounted(new, "later_pairs")} == {date(2026, 3, 4), date(2026, 3, 5), date(2026, 3, 6)}


@with_shortened_ledger
def test_a_rebuild_repairs_kept_days_and_leaves_others(maintained: MaintainedLake) -> None:
    engine, _ = maintained
    table = engine.lake.path("pairs")
    DeltaTable(table).delete("left_event_time >= arrow_cast('2026-03-04T00:00:00', 'Timestamp(Microsecond, Some(\"UTC\"))') AND k = 'a'")
    assert law_violations(engine) == {("l", "2026-03-04"), ("r", "2026-03-04"), ("l", "2026-03-05"), ("r", "2026-03-05")}
    done = engine.rebuild_days("pairs")
    assert (done.missing, done.extra, done.kept_from) == (2, 0, date(2026, 3, 4))
    accounted(engine)
    with pytest.raises(ProgressError, match=r"pairs would lose its results before 2026-03-04.*`--from-kept`"):
        list(engine.rebuild_tables(["pairs"]))
    [*_] = engine.rebuild_tables(["pairs"], from_kept=True)
    accounted(engine)
    assert engine.pending.progress("pairs").complete_from == START + 3 * DAY
    with pytest.raises(OperatorError, match=r"total cannot be computed as of an event time: retention has removed rows of l "):
        engine.views.of_event_times_to("total", START + 4 * DAY)


def test_a_changed_row_of_an_upserted_table_is_found_and_repaired(whole: Engine, maintained: MaintainedLake) -> None:
    engine, _ = maintained
    expected = rows_of(whole.views.table("total"))
    DeltaTable(engine.lake.path("total")).update({"total": "total + 1"}, predicate="k = 'a'")
    assert law_violations(engine, "total") != set()
    engine.rebuild_days("total")
    assert rows_of(engine.views.table("total")) == expected
    accounted(engine, "total")


def test_rows_stay_while_the_account_of_their_day_does_not_hold(engine: Engine) -> None:
    DeltaTable(engine.lake.path("pairs")).delete(
        "k = 'b' AND final_at < arrow_cast('2026-03-02T00:00:00', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    )
    done = shorten_log(engine)
    assert (done.rows, done.held_back) == (0, "the account of pairs does not hold for l on 2026-03-01")
    engine.rebuild_days("pairs")
    assert shorten_log(engine).rows == 11


def test_rows_whose_duplicates_may_have_left_are_quarantined(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", unique_key=("k", "v"), duplicate_horizon="1 hour", retention="1 day")], [TOTAL])
    replay(engine, [{"l": [Event("a", day, day * DAY)]} for day in range(4)])
    engine.advance("total")
    assert by_table(engine.maintain())["events/l"].rows_removed == 1
    land(engine, "l", "again.jsonl", [Event("a", 0, 0).line, Event("a", 3, 3 * DAY).line, Event("a", 4, 3 * DAY).line])
    [[batch]] = engine.ingest()
    assert (batch.accepted, batch.duplicate, batch.quarantined) == (1, 1, 1)
    [rejected] = engine.ingestion.quarantine.listed.rows("l")
    assert rejected.reason == "older than the rows that retention keeps, so a duplicate could not be recognized"
    engine.advance("total")
    accounted(engine, "total")


def test_files_of_batches_that_have_left_the_ledger_are_not_ingested_again(make_engine: MakeEngine, clock: Clock) -> None:
    of_l = source("l", retention="1 day")
    engine = replace(make_engine([of_l], [TOTAL]), lake_retention=LakeRetention(ledger=DAY))
    land(engine, "l", "broken.parquet", ["PAR1"])
    for day in range(4):
        if day < 2:  # the batches of these files leave the ledger
            land(engine, "l", f"{day}.jsonl", ["{torn"] if day == 1 else [Event("a", 1, day * DAY).line])
            engine.ingest()
        else:
            replay(engine, [{"l": [Event("a", 1, day * DAY)]}])
        engine.advance("total")
        clock.pass_ms(DAY)
    unread = engine.ingestion.quarantine.listed.files("l")
    assert [(Path(f.file.path).name, f.seq) for f in unread] == [("broken.parquet", 1)]
    assert by_table(engine.maintain())["ledger"].rows_removed == 1
    again = make_engine([of_l], [TOTAL])
    assert (again.ingest(), again.ledger.history.summarized, again.ledger.totals("l")["accepted"]) == ([], 2, 3)
    assert again.ingestion.quarantine.listed.files("l") == unread
    again.ingestion.quarantine.retry("l")
    land(again, "l", "new.jsonl", [Event("a", 1, 4 * DAY).line])
    assert sum(row.accepted for batch in again.ingest() for row in batch) == 1
    again.advance("total")
    assert rows_of(again.views.table("total")) == [("a", 4, 4)]
    accounted(again, "total")


def test_lost_totals_are_reported(maintained: MaintainedLake) -> None:
    engine, _ = maintained
    Path(engine.lake.root, "_retained", "l", "1.json").unlink()
    with pytest.raises(LakeError, match=r"retention removed rows from events/l, and the file with their totals cannot be read"):
        engine.accounts.days("pairs")


def make_first_step(engine: Engine, table: str) -> None:
    """Make the first of several steps of a table, as a process that is killed after it."""
    with closing(replace(engine, max_step=1).steps(table)) as steps:
        next(steps)


def test_a_table_that_is_made_later_may_be_interrupted(maintained: MaintainedLake, make_engine: MakeEngine) -> None:
    assert by_table(maintained[1])["events/l"].rows_removed == 11
    new = make_engine(SOURCES, [PAIRS, TOTAL, LATER_TOTAL])
    make_first_step(new, "later_total")
    replay(new, [{name: [Event("z", 9, 8 * DAY)] for name in ("l", "r")}])
    for name in ("pairs", "total"):
        new.advance(name)
    done = shorten_log(new)
    assert (done.rows, done.held_back) == (
        0,
        "before later_total was made, rows were removed of batches that it has not handled yet",
    )
    new.advance("later_total")
    assert shorten_log(new).rows > 0
    for name in new.assets:
        accounted(new, name)


def test_a_table_that_lost_steps_does_not_skip_removed_rows(engine: Engine, make_engine: MakeEngine, tmp_path: Path) -> None:
    new = make_engine(SOURCES, [PAIRS, TOTAL, LATER_TOTAL])
    make_first_step(new, "later_total")
    folders = [Path(new.lake.path(table)) for table in ("later_total", "changelog/later_total")]
    for folder in folders:
        shutil.copytree(folder, tmp_path / "backup" / folder.parent.name / folder.name)
    new.advance("later_total")
    assert shorten_log(new).rows == 11
    for folder in folders:
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "backup" / folder.parent.name / folder.name, folder)
    with pytest.raises(ProgressError, match=r"later_total has not handled rows of l .* or was replaced by an older copy since"):
        make_engine(SOURCES, [PAIRS, TOTAL, LATER_TOTAL]).advance("later_total")


def test_a_rebuild_while_a_removal_is_planned_holds_it_back(engine: Engine) -> None:
    retention = LogRetention(engine.workspace, engine.sources["l"], engine._snapshot)  # pyright: ignore[reportPrivateUsage]
    planned = retention.plan()
    assert planned is not None
    [*_] = engine.rebuild_tables(["total"])
    assert retention.remove(planned).held_back == "total was rebuilt meanwhile"


def test_a_removal_that_is_held_back_still_says_what_an_earlier_one_removed(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = bare_engine(tmp_path, clock, [source("l")], [])
    workspace, contract = engine.snapshot()._workspace_without_session, engine.sources["l"]  # pyright: ignore[reportPrivateUsage]
    numbered = CommitProperties(app_transactions=[Transaction(RETENTION, 2)])
    write_deltalake(engine.lake.path(contract.quarantine), pa.table({"seq": [1]}), commit_properties=numbered)
    monkeypatch.setattr(QuarantineRetention, "_held_back", lambda _: "an ingest was interrupted")
    of_quarantine = QuarantineRetention(workspace, contract, DAY, None)
    assert of_quarantine.remove(Removal(5, "1970-01-09", number=8)) == Removal(
        kept_from="1970-01-03", held_back="an ingest was interrupted"
    )

    write_deltalake(engine.lake.path(contract.log), pa.table({"seq": [1]}))
    earlier, planned_rows = (SimpleNamespace(before=before, number=number) for before, number in ((2 * DAY, 3), (8 * DAY, 9)))
    monkeypatch.setattr("platform_defs.engine.operations.retention.removed_rows_of", lambda *_: earlier)
    planned = Removal(5, "1970-01-09", removed=cast(Any, planned_rows))
    held_back = Removal(kept_from="1970-01-03", held_back="another maintenance removed rows meanwhile")
    assert LogRetention(workspace, contract, engine._snapshot).remove(planned) == held_back  # pyright: ignore[reportPrivateUsage]


def test_what_a_rebuild_or_a_deletion_took_after_the_plan_is_not_called_removed(tmp_path: Path, clock: Clock) -> None:
    engine = bare_engine(tmp_path, clock, [source("l")], [TOTAL])
    workspace = engine.snapshot()._workspace_without_session  # pyright: ignore[reportPrivateUsage]
    assert QuarantineRetention(workspace, engine.sources["l"], DAY, None).remove(Removal(5, "1970-01-09", number=8)) == Removal()
    write_deltalake(engine.lake.path(TOTAL.changelog), pa.table({"step": pa.array([], pa.int64())}))
    workspace = engine.snapshot()._workspace_without_session  # pyright: ignore[reportPrivateUsage]
    rebuilt = ChangelogRetention(workspace, TOTAL, DAY, lambda: None).remove(Removal(5, "step 2", number=2))
    assert rebuilt == Removal(held_back="total was rebuilt meanwhile")


def test_a_topic_that_does_not_answer_holds_back_a_changelog(tmp_path: Path, clock: Clock) -> None:
    """The rest of the changelog's maintenance does not need the topic."""

    def published() -> int:
        raise SinkError("no broker answers")

    engine = bare_engine(tmp_path, clock, [source("l")], [TOTAL])
    steps = {"step": [1], "changed_at": pa.array([0], pa.timestamp("us", "UTC"))}
    write_deltalake(engine.lake.path(TOTAL.changelog), pa.table(steps))
    workspace = engine.snapshot()._workspace_without_session  # pyright: ignore[reportPrivateUsage]
    assert ChangelogRetention(workspace, TOTAL, DAY, published).plan() == Removal(held_back="no broker answers")


def test_a_table_without_progress_holds_back_a_removal_after_an_earlier_one(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = bare_engine(tmp_path, clock, [source("l", retention="1 day")], [TOTAL])
    commit_batch(engine, {"l": {"watermark": 9 * DAY}})
    of_another_program = CommitProperties(custom_metadata={"userMetadata": json.dumps({"progress": 5})})
    write_deltalake(engine.lake.path(results_table(TOTAL)), pa.table({"step": [1]}), commit_properties=of_another_program)
    for module in ("inputs.retained", "operations.retention"):
        monkeypatch.setattr(f"platform_defs.engine.{module}.removed_rows_of", lambda *_: RemovedRows(1, 2 * DAY, 1))
    workspace = engine.snapshot()._workspace_without_session  # pyright: ignore[reportPrivateUsage]
    planned = LogRetention(workspace, engine.sources["l"], engine._snapshot).plan()  # pyright: ignore[reportPrivateUsage]
    assert planned is not None
    assert (planned.rows, planned.kept_from) == (0, "1970-01-03")
    assert str(planned.held_back).startswith("the newest commit of changelog/total has no progress in the engine's format")


def test_with_a_watermark_beyond_all_events_retention_counts_from_the_newest_event(engine: Engine) -> None:
    engine.ingestion.control_batches.watermark({"l": START + 90 * DAY, "r": START + 90 * DAY})  # as a drain of tables that look back far
    for name in engine.assets:
        engine.advance(name)
    assert (shorten_log(engine).kept_from, len(logged(engine, "l"))) == ("2026-03-05", 5)
    accounted(engine)


def test_a_changelog_that_begins_with_a_step_without_changes_is_kept(make_engine: MakeEngine, clock: Clock) -> None:
    large = DerivedAsset(name="total", inputs=("l",), operator=RunningTotal(), shape=Shape(where="total > 2"))
    engine = replace(make_engine([source("l")], [large]), lake_retention=LakeRetention(changelogs=DAY))
    for day, keys in enumerate(("a", "aa")):
        replay(engine, [{"l": [Event(key, 1, day * HOUR) for key in keys]}])
        engine.advance("total")
        clock.pass_ms(DAY)
        by_table(engine.maintain())
    assert rows_of(engine.views.table("total")) == [("a", 3, 3)]


@pytest.fixture(scope="module")
def counted_original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A total of three batches that were handled on three days, and two rejected rows of the first."""
    clock = Clock()
    engine = engine_maker(spark, tmp_path_factory.mktemp("counted"), clock)([source("l")], [TOTAL])
    for day in range(3):
        rows = [Event(k, 1, day * HOUR) for k in "ab"]
        if day == 0:
            land(engine, "l", "0.jsonl", [*(row.line for row in rows), "{cut", "{torn"])
            engine.ingest()
        else:
            replay(engine, [{"l": rows}])
        engine.advance("total")
        clock.pass_ms(DAY)
    return engine


@pytest.fixture
def counted(counted_original: Engine, copy_engine: CopyEngine, clock: Clock) -> Engine:
    """A copy of the lake with the total, whose changelog and quarantine keep a day."""
    clock.pass_ms(3 * DAY)
    return replace(copy_engine(counted_original), lake_retention=LakeRetention(DAY, DAY))


def test_changelogs_and_quarantines_lose_what_is_old(counted: Engine, tmp_path: Path) -> None:
    before, times = rows_of(counted.views.table("total")), counted.ledger.history.times
    done = by_table(counted.maintain())
    assert (done["quarantine/l"].rows_removed, done["changelog/total"].rows_removed) == (2, 4)
    assert_shortened(counted, done, before)
    assert rows_of(counted.views.as_of("total", times[-1] + 1)) == before
    with pytest.raises(OperatorError, match=r"total has no state of .*retention has replaced its steps up to 2"):
        counted.views.as_of("total", times[0] + 1)
    assert counted.views.publish("total", str(tmp_path / "folder")) == 3


def test_a_kill_while_changelogs_and_quarantines_are_shortened_loses_nothing(counted: Engine) -> None:
    """Each maintenance is killed one point later than the one before it, and repeats what that one has not committed."""
    before, rejected = rows_of(counted.views.table("total")), len(counted.ingestion.quarantine.listed.rows("l"))
    for at, left in zip(TABLE_POINTS, (rejected, 0, 0, 0), strict=True):
        run_and_die(counted.maintain, at)
        assert (rows_of(counted.views.table("total")), len(counted.ingestion.quarantine.listed.rows("l"))) == (before, left), at
    assert_shortened(counted, by_table(counted.maintain()), before)
    assert rows_of(counted.views.as_of("total", counted.ledger.history.times[-1] + 1)) == before
    accounted(counted, "total")


def assert_shortened(engine: Engine, done: dict[str, Maintained], total: list[tuple[object, ...]]) -> None:
    assert rows_of(engine.views.table("total")) == total
    assert engine.ingestion.quarantine.listed.rows("l") == []
    assert (done["quarantine/l"].kept_from, done["changelog/total"].kept_from) == ("2026-03-03", "step 2")


def test_nothing_leaves_too_early_after_the_clock_was_ahead(counted: Engine, clock: Clock) -> None:
    engine, now = replace(counted, lake_retention=LakeRetention(30 * DAY, 30 * DAY)), clock.now
    clock.now = now + 30_000 * DAY
    land(engine, "l", "ahead.jsonl", [Event("a", 1, 4 * HOUR).line])
    engine.ingest()
    clock.now = now
    assert engine.ledger.now() > now + 29_000 * DAY
    done = by_table(engine.maintain())
    assert (done["quarantine/l"].rows_removed, done["changelog/total"].rows_removed) == (0, 0)
    assert len(engine.ingestion.quarantine.listed.rows("l")) == 1
