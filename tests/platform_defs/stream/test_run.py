"""A stream and others at work on the same tables: a rebuild, a backfill, maintenance, a stream that was killed."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from assets.contracts import DerivedAsset
from operators import Aggregate, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.lake.errors import LakeBusy
from platform_defs.engine.lake.locks import UNRECORDED
from platform_defs.engine.operations.advance_all import BUSY_WAIT_S, AdvanceAll
from platform_defs.settings.stream_trigger import StreamTrigger
from platform_defs.stream.run import StreamError, StreamRun
from tests.conftest import MakeEngine
from tests.engine.source_batches import source_batch
from tests.platform_defs.stream.recorder import Recorder
from tests.support.bare_lake import bare_engine
from tests.support.clock import Clock
from tests.support.small_sources import HOUR, MINUTE, Event, join, land, law_violations, replay, rows_of, source

COUNT = {"n": "count(*)"}
ASSETS = [
    DerivedAsset(name="windows", inputs=("l",), operator=WindowedAggregate(by="k", window=Tumbling(size="10 minutes"), aggregates=COUNT)),
    DerivedAsset(name="totals", inputs=("l",), operator=Aggregate(by="k", aggregates=COUNT)),
]
FIRST = {"l": [Event("a", 1, 0), Event("a", 2, MINUTE), Event("b", 3, HOUR)]}
SECOND = {"l": [Event("a", 4, 2 * HOUR)]}
NOW = StreamTrigger(None)
WAIT_S = 60.0


@pytest.fixture
def engine(interpreted_plans: None, make_engine: MakeEngine) -> Engine:
    made = make_engine([source("l")], ASSETS)
    replay(made, [FIRST])
    return made


def _wait_until_requested(engine: Engine, table: str) -> None:
    """Wait until another process or thread waits for the lock of a table."""
    end = time.monotonic() + WAIT_S
    while engine.lake.waiting_process(table) in (None, UNRECORDED):  # the lock is taken before the process is recorded
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_stream_of_the_present_files_advances_accounts_for_all_tables_and_ends(engine: Engine) -> None:
    """Before its first batch, it advances the tables that are behind: an earlier stream was killed between a batch and its tables."""
    reports = Recorder()
    assert StreamRun(engine, reports).run(NOW) == []
    assert (reports.of("advanced"), reports.held_tables) == ([["totals", "windows"]], ["totals", "windows"])
    land(engine, "l", "1.jsonl", [Event("c", 5, 3 * HOUR).line])
    again = Recorder()
    assert len(StreamRun(engine, again).run(NOW)) == 1
    assert (again.of("batch"), again.of("advanced")) == ([engine.ledger.head], [["totals", "windows"]])
    assert again.held_tables == ["totals", "windows"], "tables for which the law's share of the time was too short come last"
    assert rows_of(engine.views.table("totals"), "k", "n") == [("a", 2), ("b", 1), ("c", 1)]
    assert law_violations(engine, "windows") == set()


def test_a_rebuild_gets_its_table_between_two_steps_of_a_stream(engine: Engine) -> None:
    steps, repaired = engine.steps("totals", purpose="stream"), list[int]()
    assert next(steps).rows == 2
    other = threading.Thread(target=lambda: repaired.append(engine.rebuild_days("totals").missing))
    other.start()
    _wait_until_requested(engine, "totals")
    assert repaired == []
    with pytest.raises(LakeBusy, match=r"^totals is released for process \d+ \(.*\) on .* UTC; the stream goes on with it"):
        next(steps)
    other.join(WAIT_S)
    assert repaired == [0]


def test_a_stream_skips_a_table_with_another_writer_reports_it_and_goes_on_with_it_later(engine: Engine) -> None:
    reports, now = Recorder(), [0.0]
    stream = StreamRun(engine, reports)
    stream._advance.now = lambda: now[0]
    with engine.lake.writer("totals", "maintenance"):
        began = time.monotonic()
        stream.start()
        assert time.monotonic() - began < WAIT_S, "the stream does not wait for the end of maintenance"
        assert reports.of("advanced") == [["windows"]]
        assert reports.of("busy") == ["totals"]
        assert reports.waiting == ["totals"]
        stream.retry()
        assert reports.of("busy") == ["totals"], "not due yet"
    now[0] += BUSY_WAIT_S
    stream.retry()
    assert reports.of("advanced") == [["windows"], ["totals"]]
    assert reports.waiting == []


def test_a_stream_of_the_present_files_fails_if_a_table_stays_behind(engine: Engine) -> None:
    reports = Recorder()
    with engine.lake.writer("totals"), pytest.raises(StreamError, match=r"^totals could not be advanced; the reasons are in the log"):
        StreamRun(engine, reports).run(NOW)
    assert reports.of("held") == [["windows"]]


def test_a_backfill_beside_a_stream_gives_the_rows_of_either_alone(engine: Engine) -> None:
    reports, errors = Recorder(), list[Exception]()
    stream = StreamRun(engine, reports)

    def backfill() -> None:
        try:
            for name in engine.assets:
                engine.rebuild_days(name)
                engine.advance(name)
        except Exception as error:
            errors.append(error)

    stream.start()
    for batch in (SECOND, {"l": [Event("b", 9, 3 * HOUR)]}):
        other = threading.Thread(target=backfill)
        other.start()
        replay(engine, [batch])
        stream.after((source_batch("l", engine.ledger.head),))
        other.join(WAIT_S)
    for name in engine.assets:
        engine.advance(name)
    assert errors == []
    assert reports.of("failed") == []
    assert rows_of(engine.views.table("totals"), "k", "n") == [("a", 3), ("b", 2)]
    assert law_violations(engine, "totals") == law_violations(engine, "windows") == set()


@pytest.mark.usefixtures("interpreted_plans")
def test_a_stream_of_the_present_files_advances_tables_after_a_source_has_become_idle(make_engine: MakeEngine, clock: Clock) -> None:
    """The batch of idle sources comes last; without an advance after it, nothing would finalize the rows until another file lands."""
    engine = make_engine([source("l"), source("r", idle_timeout="1 hour")], [join()])
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 2, 5 * HOUR)], "r": [Event("a", 3, MINUTE)]}])
    clock.pass_ms(2 * HOUR)
    reports = Recorder()
    [idle] = StreamRun(engine, reports).run(NOW)
    assert idle[0].kind == "inactive"
    assert reports.of("batch") == [engine.ledger.head]
    assert engine.pending.days("pairs") is None, "the table is advanced as far as the watermark allows"
    assert rows_of(engine.views.table("pairs"), "left_v", "right_v") == [(1, 3)]


def test_a_table_with_a_topic_that_cannot_be_read_stops_no_stream(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = replace(bare_engine(tmp_path, clock, [source("l")], ASSETS), sinks={"totals": cast(Any, None)})
    log = Path(engine.lake.path("changelog/totals"), "_delta_log")
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("x")
    turns = list[str]()
    monkeypatch.setattr(AdvanceAll, "__call__", lambda _: turns.append("advanced"))
    stream = StreamRun(engine, Recorder())
    try:
        stream.start()
    finally:
        stream._interrupts.end()
    assert turns == ["advanced"]
