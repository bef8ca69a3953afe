"""The ledger's old batches are replaced by a summary, if nothing reads them any more. No test starts Spark."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import Transaction, write_deltalake
from deltalake.transaction import CommitProperties

from assets.contracts import DerivedAsset
from operators import Deduplicate, Session, TopN, Tumbling, WindowedAggregate
from operators.triggers import EveryStep
from platform_defs.cli.status import print_recorded, recorded_status
from platform_defs.engine import Engine
from platform_defs.engine.advance.early_results import SHOWN, last_shown_metadata
from platform_defs.engine.advance.step_size import can_change_rows
from platform_defs.engine.inputs.changelog_reader import APPLIED
from platform_defs.engine.inputs.identity import identity_of
from platform_defs.engine.inputs.lateness_decisions import DECIDED
from platform_defs.engine.inputs.result_rows import late_results
from platform_defs.engine.inputs.retained import RemovedRows, write_totals
from platform_defs.engine.inputs.timelines import input_timeline, operator_timeline
from platform_defs.engine.lake.commits import APPLICATION, RETENTION, commit_options
from platform_defs.engine.lake.sql_rows import sql_rows
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.engine.ledger.watermarks import LateResults
from platform_defs.engine.operations import decision_retention
from platform_defs.engine.operations.decision_retention import DecisionRetention
from platform_defs.engine.operations.ledger_retention import LedgerRetention
from platform_defs.engine.operations.retention import LakeRetention, Removal
from platform_defs.monitoring.lake_metrics import _Totals
from tests.support.bare_lake import bare_engine, commit_batch, commit_step
from tests.support.clock import Clock
from tests.support.kills import run_and_die
from tests.support.memory_ledger import memory_ledger
from tests.support.small_sources import DAY, HOUR, START, join, source

WINDOW = Tumbling(size="1 hour")
COUNTS = DerivedAsset(
    name="counts", inputs=("l",), operator=WindowedAggregate(by="k", window=WINDOW, aggregates={"rows": "count(*)"}, early=EveryStep())
)
PAIRS = join()
OF_PAIRS = join("of_pairs", ("pairs", "other"), left_prefix="pair_", right_prefix="other_")
TOP = DerivedAsset(name="top", inputs=("r",), operator=TopN(by="k", order_by="v DESC", rank_end=1))
BEST = DerivedAsset(name="best", inputs=("top",), operator=TopN(by="k", order_by="v DESC", rank_end=1, change="change"))
SOURCES = [source(name, retention="1 day") for name in ("l", "r", "other")]
NO_ROWS = pa.table({"event_time": pa.array([], pa.timestamp("us", "UTC"))})


@pytest.fixture(scope="module")
def lake_of_six_days(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A lake, which the tests copy, and the time after its last day."""
    folder, clock = tmp_path_factory.mktemp("six_days"), Clock()
    return Path(made(bare_engine(folder, clock, SOURCES, [PAIRS, COUNTS]), clock).lake.root), clock()


@pytest.fixture
def engine(tmp_path: Path, clock: Clock, lake_of_six_days: tuple[Path, int]) -> Engine:
    """Six batches on six days, all handled; the rows of the first four have left the logs."""
    lake, now = lake_of_six_days
    shutil.copytree(lake, tmp_path / "lake")
    clock.pass_ms(now - clock())
    return bare_engine(tmp_path, clock, SOURCES, [PAIRS, COUNTS])


def made(engine: Engine, clock: Clock) -> Engine:
    for day in range(6):
        commit_batch(engine, {name: {"watermark": START + day * DAY} for name in engine.sources})
        clock.pass_ms(DAY)
    for name in engine.sources:
        remove_rows(engine, name, day=4)
    for name, asset in engine.assets.items():
        commit_step(engine, name, closed_to=START + 5 * DAY if asset.operator.reads.closes_ranges else None)
    return engine


def remove_rows(engine: Engine, name: str, day: int, number: int = 1) -> None:
    """Commit a removal from the log of a source, up to the batch of a day."""
    log = engine.sources[name].log
    write_deltalake(engine.lake.path(log), NO_ROWS, mode="append", commit_properties=numbered(RETENTION, number))
    write_totals(engine.lake, engine.sources[name], RemovedRows(number, START + day * DAY, engine.ledger.head))


def numbered(application: str, number: int) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(application, number)])


def retention(engine: Engine, retention: int | None = DAY) -> LedgerRetention:
    return LedgerRetention(engine.pending.workspace, retention)


def commit(engine: Engine, table: str, metadata: dict[str, Any]) -> None:
    write_deltalake(engine.lake.path(table), NO_ROWS, mode="append", **commit_options(metadata))


def reopened(engine: Engine) -> Engine:
    return replace(engine, earlier=None)


def test_old_batches_are_replaced_and_the_ledger_goes_on(engine: Engine) -> None:
    before = {name: engine.pending.describe_progress(name) for name in engine.assets}, engine.ledger.totals_by_source()
    planned = retention(engine).plan()
    assert planned is not None
    assert planned == Removal(9, "batch 5", "events/l has rows of batch 5", number=4)
    assert retention(engine).remove(planned) == planned
    for one in (engine, reopened(engine)):
        assert ({name: one.pending.describe_progress(name) for name in one.assets}, one.ledger.totals_by_source()) == before
        assert (one.ledger.history.summarized, one.ledger.head) == (4, 6)
        assert retention(one).plan() == Removal(kept_from="batch 5", held_back="events/l has rows of batch 5")
        assert retention(one, None).plan() == Removal(kept_from="batch 5")
    commit_batch(engine, {"l": {"watermark": START + 7 * DAY}})
    assert (reopened(engine).ledger.head, engine.ledger.totals("l")["accepted"]) == (7, 70)


def test_batches_are_kept_for_the_time_of_the_setting_in_whole_days(engine: Engine) -> None:
    assert retention(engine, None).plan() is None
    found = {days: retention(engine, days * DAY).plan() for days in range(1, 8)}
    assert {days: of.number for days, of in found.items() if of is not None} == {1: 4, 2: 4, 3: 3, 4: 2, 5: None, 6: None, 7: None}


@dataclass(frozen=True)
class HeldBack:
    id: str
    change: Callable[[Engine], Engine]
    number: int | None
    why: str


def _without_retention(engine: Engine) -> Engine:
    Path(engine.lake.path("events/l")).rename(Path(engine.lake.root) / "old")
    return replace(engine, sources={**engine.sources, "l": source("l")}, earlier=None)


def _with_table(engine: Engine, *tables: DerivedAsset) -> Engine:
    return replace(engine, assets={**engine.assets, **{t.name: t for t in tables}}, earlier=None)


def _with_steps(engine: Engine, *steps: tuple[DerivedAsset, dict[str, Any]]) -> Engine:
    new = _with_table(engine, *[table for table, _ in steps])
    for table, changes in steps:
        commit_step(new, table.name, **changes)
    return new


def _outside(engine: Engine) -> Engine:
    write_deltalake(engine.lake.path("left"), NO_ROWS, commit_properties=numbered(APPLICATION, 1))
    write_deltalake(engine.lake.path("changelog/other_left"), NO_ROWS, commit_properties=numbered(APPLICATION, 1))
    return engine


def _upserted(engine: Engine) -> Engine:
    new = _with_steps(engine, (TOP, {}), (BEST, {"read": {"top": 1}}))
    commit(new, "top", {APPLIED: {"step": 1, "seq": 2}})
    return new


def _shown(engine: Engine) -> Engine:
    commit(engine, COUNTS.early, {SHOWN: {"seq": 3}})
    return engine


CASES = [
    HeldBack("a source that keeps its rows", _without_retention, None, "events/l has rows of batch 1; the source has no `retention`"),
    HeldBack("a table without a step", lambda e: _with_table(e, OF_PAIRS), None, "of_pairs has no step yet"),
    HeldBack(
        "a table that has not handled a batch",
        lambda e: _with_steps(e, (TOP, {"seq": 2})),
        2,
        "top has not handled the batches after 2 yet",
    ),
    HeldBack(
        "a table that has not closed the results of a batch",
        lambda e: _with_steps(e, (OF_PAIRS, {"closed_to": START + 2 * DAY, "read": {"pairs": 1}})),
        3,
        "of_pairs has not closed the results of batch 4 yet",
    ),
    HeldBack(
        "a step that was not read",
        lambda e: _with_steps(e, (TOP, {"seq": 3}), (TOP, {}), (BEST, {"read": {"top": 0}})),
        2,
        "best has not read all steps of top yet",
    ),
    HeldBack("an upserted table that others read", _upserted, 2, "top, which other tables read, has its last step at batch 2"),
    HeldBack("early results", _shown, 3, "early results of counts are those of batch 3"),
    HeldBack("tables outside of the pipeline", _outside, None, "table left is in the lake but not in the pipeline"),
    HeldBack(
        "a source outside of the pipeline",
        lambda e: replace(e, sources={n: s for n, s in e.sources.items() if n != "other"}, earlier=None),
        None,
        "source other is in the lake but not in the pipeline",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_reason_that_holds_back_batches_is_reported(engine: Engine, case: HeldBack) -> None:
    planned = retention(case.change(engine)).plan()
    assert planned is not None
    assert (planned.number, planned.held_back) == (case.number, case.why)


def test_the_status_shows_what_holds_back_the_ledger(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """It gives the same reason as maintenance, before and after batches are replaced; without the setting, it gives none."""
    kept, limited = engine, replace(engine, lake_retention=LakeRetention(ledger=DAY))
    why = "events/l has rows of batch 5"
    assert recorded_status(kept, [])["ledger_retention"] is None
    report = recorded_status(limited, [])
    assert report["ledger_retention"] == {"first_batch": 1, "removable_rows": 9, "held_back": why}
    print_recorded(report)
    assert f"ledger: kept from batch 1 on; the next maintenance can remove 9 rows; held back: {why}\n" in capsys.readouterr().out
    planned = limited.ledger_retention.plan()
    assert planned is not None
    limited.ledger_retention.remove(planned)
    assert recorded_status(limited, [])["ledger_retention"] == {"first_batch": 5, "removable_rows": 0, "held_back": why}
    assert recorded_status(kept, [])["ledger_retention"] == {"first_batch": 5, "removable_rows": 0, "held_back": None}


def test_the_status_of_an_empty_lake_shows_no_retention(tmp_path: Path, clock: Clock) -> None:
    empty = replace(bare_engine(tmp_path / "empty", clock, SOURCES, [PAIRS]), lake_retention=LakeRetention(ledger=DAY))
    assert recorded_status(empty, [])["ledger_retention"] is None


def test_a_source_that_has_left_the_pipeline_and_the_lake_holds_back_nothing(engine: Engine) -> None:
    Path(engine.lake.path("events/other")).rename(Path(engine.lake.root) / "old")
    new = replace(engine, sources={n: s for n, s in engine.sources.items() if n != "other"}, earlier=None)
    planned = retention(new).plan()
    assert planned is not None
    assert planned.number == 4


def test_a_table_whose_sources_send_nothing_holds_back_nothing(engine: Engine) -> None:
    """It has handled batch 6, and will not have a step before its source sends rows."""
    for day in range(6, 9):
        commit_batch(engine, {"other": {"watermark": START + day * DAY}})
    engine.clock.pass_ms(5 * DAY)  # pyright: ignore[reportFunctionMemberAccess]
    for name in engine.sources:
        remove_rows(engine, name, day=9, number=2)
    planned = retention(reopened(engine)).plan()
    assert planned is not None
    assert (planned.number, planned.held_back) == (9, None)


def test_a_table_keeps_its_watermark_although_an_idle_source_is_behind_now(tmp_path: Path, clock: Clock) -> None:
    """The watermark rises with `l` while `r` is idle. It stays there when `r` continues behind it, also after a summary."""
    engine = bare_engine(tmp_path, clock, SOURCES[:2], [PAIRS])
    idle = {"kind": "inactive", "idle": True, "watermark": START}
    for by_source in ({"l": {"watermark": START + HOUR}, "r": {"watermark": START}}, {"r": idle}, {"l": {"watermark": START + 9 * HOUR}}):
        commit_batch(engine, by_source)
    for _ in range(3):
        commit_batch(engine, {"r": {"watermark": START + HOUR, "idle": False}})
        clock.pass_ms(DAY)
    for name in engine.sources:
        remove_rows(engine, name, day=9)
    commit_step(engine, "pairs", closed_to=START + 9 * HOUR)
    planned = retention(engine).plan()
    assert planned is not None
    assert planned.number == 5
    retention(engine).remove(planned)
    assert reopened(engine).pending.describe_progress("pairs")["watermark"] == START + 9 * HOUR
    later = join("later", upper="8 minutes")
    assert _with_table(engine, later).pending.describe_progress("later")["watermark"] == START + 9 * HOUR, "it waits for the same sources"
    left = DerivedAsset(name="of_l", inputs=("l",), operator=COUNTS.operator)
    assert _with_table(engine, left).pending.describe_progress("of_l")["watermark"] == START + 9 * HOUR


def test_late_results_of_summarized_batches_stay_late(tmp_path: Path, clock: Clock) -> None:
    engine = bare_engine(tmp_path, clock, SOURCES, [PAIRS, OF_PAIRS])
    idle = {"kind": "inactive", "idle": True}
    commit_batch(engine, {name: {"watermark": START} for name in engine.sources})
    commit_batch(engine, {name: {"watermark": START, **idle} for name in ("l", "r")})
    commit_batch(engine, {"other": {"watermark": START + 9 * HOUR}})
    for hour in (2, 4, 6):
        commit_batch(engine, {name: {"watermark": START + hour * HOUR, "idle": False} for name in ("l", "r")})
        clock.pass_ms(DAY)
    before = late_results(engine.pending.workspace, OF_PAIRS, PAIRS)
    for name in engine.sources:
        remove_rows(engine, name, day=9)
    commit_step(engine, "pairs", closed_to=START + 6 * HOUR)
    commit_step(engine, "of_pairs", closed_to=START + 9 * HOUR, read={"pairs": 1})
    planned = retention(engine).plan()
    assert planned is not None
    assert planned.number == 5
    retention(engine).remove(planned)
    assert before == [LateResults(START, None, START + 9 * HOUR)]
    assert engine.ledger.history.summary is not None
    assert [*engine.ledger.history.summary.late.values()] == [((START, START + 4 * HOUR, START + 9 * HOUR),)]
    assert late_results(reopened(engine).pending.workspace, OF_PAIRS, PAIRS) == before


def test_a_scrape_that_paused_for_longer_than_the_ledger_keeps_its_batches_counts_no_row_twice(engine: Engine) -> None:
    totals = _Totals()
    assert totals.upto(reopened_at(engine, 2))["l"]["accepted"] == 20
    planned = retention(engine).plan()
    assert planned is not None
    retention(engine).remove(planned)
    assert totals.upto(engine)["l"]["accepted"] == 60
    commit_batch(engine, {"l": {"watermark": START + 7 * DAY}})
    assert totals.upto(engine)["l"]["accepted"] == 70


def reopened_at(engine: Engine, head: int) -> Engine:
    """An engine whose ledger ends at an earlier batch."""
    new = replace(engine, earlier=None)
    vars(new)["ledger"] = memory_ledger(engine.ledger.batches()[:head])
    return new


VISITS = DerivedAsset(
    name="visits",
    inputs=("l",),
    operator=WindowedAggregate(by="k", window=Session(gap="1 hour", longest="2 hours"), aggregates={"rows": "count(*)"}),
)


@pytest.mark.parametrize("at", [None, "retention.before_decisions", "retention.after_decisions"])
def test_lateness_decisions_leave_with_their_rows(engine: Engine, at: str | None) -> None:
    new = _with_steps(engine, (VISITS, {}))
    for seq in (2, 4, 5):
        rows = pa.table({"which": pa.array([0], pa.int32()), "seq": [seq], "arrival": [1]})
        write_deltalake(new.lake.path(VISITS.decisions), rows, mode="append", **commit_options({DECIDED: seq}))
    of_visits = DecisionRetention(new.pending.workspace, VISITS)
    planned = of_visits.plan()
    assert planned is not None
    assert planned == Removal(2, "batch 5", number=4)
    if at is not None:
        run_and_die(lambda: of_visits.remove(planned), at)
    again = of_visits.plan()
    assert again == (Removal(kept_from="batch 5") if at == "retention.after_decisions" else planned)
    assert again is not None
    of_visits.remove(again)
    assert sql_rows(new.lake, {"decisions": VISITS.decisions}, "SELECT seq FROM decisions").to_pylist() == [{"seq": 5}]
    newest = new.lake.newest_commit(VISITS.decisions, DECIDED)
    assert newest is not None
    assert (newest.value, of_visits.plan()) == (5, Removal(kept_from="batch 5"))


def test_all_lateness_decisions_leave_if_retention_has_removed_all_rows(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    new = _with_steps(engine, (VISITS, {}))
    rows = pa.table({"which": pa.array([0], pa.int32()), "seq": [5], "arrival": [1]})
    write_deltalake(new.lake.path(VISITS.decisions), rows, mode="append", **commit_options({DECIDED: 5}))
    monkeypatch.setattr(decision_retention, "first_batch_in_log", lambda *_: None)
    of_visits, head = DecisionRetention(new.pending.workspace, VISITS), new.ledger.head
    planned = of_visits.plan()
    assert planned == Removal(1, f"batch {head + 1}", number=head)
    of_visits.remove(planned)
    assert sql_rows(new.lake, {"decisions": VISITS.decisions}, "SELECT seq FROM decisions").to_pylist() == []
    shutil.rmtree(new.lake.path(VISITS.decisions))
    assert of_visits.remove(planned) == Removal(), "the table was deleted after the plan"


def test_lateness_decisions_stay_while_a_log_has_all_of_its_rows(engine: Engine) -> None:
    new = _with_steps(_without_retention(engine), (VISITS, {}))
    assert DecisionRetention(new.pending.workspace, VISITS).plan() is None


def _with_idle_source(engine: Engine, clock: Clock) -> tuple[Engine, Callable[[], None]]:
    """An engine whose table has passed the watermark of an idle source, and a function that makes maintenance replace batches 1 to 5."""
    for by_source in (
        {"l": {"watermark": START + HOUR}, "r": {"watermark": START}},
        {"r": {"kind": "inactive", "idle": True, "watermark": START}},
        {"l": {"watermark": START + 9 * HOUR}},
        *[{"r": {"watermark": START + HOUR, "idle": False}}] * 3,
    ):
        commit_batch(engine, by_source)
        clock.pass_ms(DAY)
    for name in engine.sources:
        remove_rows(engine, name, day=9)
    commit_step(engine, "pairs", closed_to=START + 9 * HOUR)

    def summarize() -> None:
        other = retention(reopened(engine))
        planned = other.plan()
        assert planned is not None
        assert other.remove(planned).number == 5

    return reopened(engine), summarize


def test_a_snapshot_before_a_summary_and_one_after_it_do_not_share_watermarks(tmp_path: Path, clock: Clock) -> None:
    engine, summarize = _with_idle_source(bare_engine(tmp_path, clock, SOURCES[:2], [PAIRS]), clock)
    workspace = engine.pending.workspace
    before = workspace.take_snapshot()
    summarize()
    after = workspace.take_snapshot()
    assert (before.ledger.history.summarized, after.ledger.history.summarized) == (0, 5)
    assert [input_timeline(after, name).after[6] for name in ("l", "r")] == [START + 9 * HOUR, START + HOUR]
    for one in (before, after, before, workspace.take_snapshot()):
        assert [operator_timeline(one, PAIRS).after[seq] for seq in (5, 6)] == [START + 9 * HOUR] * 2


def test_a_summary_that_is_committed_during_a_look_up_changes_no_watermark(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, summarize = _with_idle_source(bare_engine(tmp_path, clock, SOURCES[:2], [PAIRS]), clock)
    workspace, looks, history = engine.pending.workspace, list[int](), Ledger.history.fget
    assert history is not None

    def looked_at(ledger: Ledger) -> Any:
        looks.append(1)
        if len(looks) == 2 and ledger is workspace.ledger:
            summarize()
        return history(ledger)

    for n in range(2):
        monkeypatch.setattr(Ledger, "history", property(looked_at))
        assert [operator_timeline(workspace, PAIRS).after[seq] for seq in (5, 6)] == [START + 9 * HOUR] * 2, n
        monkeypatch.undo()


def test_the_time_is_that_of_the_wall_clock_also_after_it_was_ahead(tmp_path: Path, clock: Clock) -> None:
    engine = bare_engine(tmp_path, clock, SOURCES[:1], [])
    now = clock.now
    for ahead in (0, 30_000 * DAY, 0):
        clock.now = now + ahead
        commit_batch(engine, {"l": {"watermark": START}})
    remove_rows(engine, "l", day=9)
    assert retention(engine, 2 * DAY).plan() == Removal(kept_from=None)


def test_a_table_whose_log_is_damaged_holds_back_only_the_ledger(engine: Engine) -> None:
    log = Path(engine.lake.path("foreign")) / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{torn")
    planned = retention(engine).plan()
    assert planned is not None
    assert (planned.number, planned.rows) == (None, 0)
    assert "foreign" in (planned.held_back or "")


def test_early_results_are_shown_anew_if_the_ledger_has_lost_the_batch_of_the_last_ones(engine: Engine) -> None:
    assert isinstance(COUNTS.operator, WindowedAggregate)
    without = replace(COUNTS, operator=replace(COUNTS.operator, early=None))
    commit(engine, COUNTS.early, {SHOWN: {"seq": 2, "closed_to": START + DAY, "operator": identity_of(COUNTS), "generation": 0}})
    other = retention(replace(engine, assets={**engine.assets, "counts": without}, earlier=None))
    planned = other.plan()
    assert planned is not None
    assert other.remove(planned).number == 4
    workspace = reopened(engine).pending.workspace
    assert last_shown_metadata(workspace, COUNTS) is None
    commit(engine, COUNTS.early, {SHOWN: {"seq": 4, "closed_to": START + DAY, "operator": identity_of(COUNTS), "generation": 0}})
    assert (last_shown_metadata(workspace, COUNTS) or {})["seq"] == 4


def test_a_summary_makes_no_table_stale(tmp_path: Path, clock: Clock) -> None:
    operator = Deduplicate(by="k", keep="last", ttl="1 hour", after_ttl="retract")
    table = DerivedAsset(name="t", inputs=("q",), operator=operator)
    engine = bare_engine(tmp_path, clock, [SOURCES[0], source("q")], [table])
    commit_batch(engine, {"l": {"watermark": START}, "q": {"kind": "inactive", "idle": True}})
    commit_step(engine, "t")
    for day in range(1, 6):
        commit_batch(engine, {"l": {"watermark": START + day * DAY}})
        clock.pass_ms(DAY)
    remove_rows(engine, "l", day=9)
    planned = retention(engine).plan()
    assert planned is not None
    assert retention(engine).remove(planned).number == 5
    one = reopened(engine)
    assert not can_change_rows(one.ledger.history, table, 1, one.ledger.head)
