"""The Dagster events of a stream: by asset and day, few, and none if nothing has changed. No test starts Spark."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from itertools import count
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster import EventLogEntry

from assets.contracts import DerivedAsset
from operators import Aggregate, Tumbling, WindowedAggregate
from platform_defs.engine import LawError
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.lake.errors import LakeBusy, UnreadableLogError
from platform_defs.engine.operations.advance_all import PendingRetry
from platform_defs.engine.operations.publish_to_topic import Published
from platform_defs.stream import dagster_reports
from platform_defs.stream.dagster_reports import DagsterReports
from tests.engine.source_batches import source_batch
from tests.support.small_sources import DAY, HOUR, START

COUNT = {"n": "count(*)"}
WINDOWS = DerivedAsset(name="windows", inputs=("l",), operator=WindowedAggregate(by="k", window=Tumbling(size="1 hour"), aggregates=COUNT))
TOTALS = DerivedAsset(name="totals", inputs=("l",), operator=Aggregate(by="k", aggregates=COUNT))
DAYS = dg.DailyPartitionsDefinition("2026-02-01")
MINUTES_5 = 300.0


@dataclass
class Stream:
    """A stream whose reports are the events of a run; its clock moves by hand."""

    reports: DagsterReports
    time: list[float]
    closed_to: int = START + HOUR
    number: int = 0
    waiting: dict[str, PendingRetry] = field(default_factory=dict)
    unpublished: dict[str, PendingRetry] = field(default_factory=dict)

    def turn(self, *, changed: bool = True, seconds: float = 30.0) -> None:
        """A batch, and a step of each table whose law holds; or a turn without a batch."""
        self.time[0] += seconds
        if changed:
            self.number += 1
            self.reports.report_batch((source_batch("l", self.number, rows_read=4, accepted=3, quarantined=1),))
            self.reports.report_steps({"windows": [self._step()], "totals": [self._step()]}, 0.1)
            self.reports.report_accounts({"windows": [_account("2026-03-01")], "totals": [_account("2026-03-01")]}, 0.1)
        self.reports.report_turn(self.waiting, self.unpublished)

    def _step(self) -> Step:
        before = Progress(step=self.number - 1, closed_to=self.closed_to)
        return Step(before, Progress(step=self.number, closed_to=self.closed_to + 1), 2)


def _account(day: str, **terms: int) -> DayAccount:
    zero = dict.fromkeys(("matched", "unmatched", "pending", "late", "filtered", "missing", "extra"), 0)
    return DayAccount(side="l", day=date.fromisoformat(day), **{"accepted": 3, **zero, "matched": 3, **terms})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Stream], None]], list[EventLogEntry]]:
    """Drives a stream within a Dagster run, and returns the events that its step has stored."""
    monkeypatch.setattr(dagster_reports, "column_metadata", lambda *_: {"columns": "k, n"})
    state = {"closed_to": START + HOUR + 1, "watermark": START + HOUR + 500, "lag_ms": 499, "steps": 1}
    pending = SimpleNamespace(describe_progress=lambda _: state, event_times=lambda _: (START, START + HOUR))
    engine: Any = SimpleNamespace(assets={"windows": WINDOWS, "totals": TOTALS}, pending=pending)

    def drive(script: Callable[[Stream], None]) -> list[EventLogEntry]:
        @dg.op
        def op(context: dg.OpExecutionContext) -> None:
            time = [0.0]
            script(Stream(DagsterReports(context, engine, DAYS, MINUTES_5, lambda: time[0]), time))
            assert not [*context.consume_events()], "Dagster keeps no event in memory until the run ends"

        @dg.job
        def job() -> None:
            op()

        with dg.DagsterInstance.ephemeral() as instance:
            done = job.execute_in_process(instance=instance)
            stored = instance.all_logs(done.run_id)
        own = {"ASSET_MATERIALIZATION", "ASSET_CHECK_EVALUATION"}
        return [e for e in stored if (e.dagster_event is None or e.dagster_event.event_type_value in own)]

    return drive


def _kinds(events: list[EventLogEntry]) -> Counter[str]:
    return Counter("log" if e.dagster_event is None else e.dagster_event.event_type_value for e in events)


def _materialized(events: list[EventLogEntry]) -> dict[tuple[str, str | None], dict[str, Any]]:
    found = [e.asset_materialization for e in events if e.asset_materialization is not None]
    return {(m.asset_key.to_user_string(), m.partition): {k: v.value for k, v in m.metadata.items()} for m in found}


def test_the_reports_of_an_interval_are_one_event_for_each_asset_and_day(run: Callable[..., list[EventLogEntry]]) -> None:
    def script(stream: Stream) -> None:
        for _ in range(10):
            stream.turn()
        stream.reports.publish()

    events = run(script)
    assert _kinds(events) == {"ASSET_MATERIALIZATION": 2 * 3, "ASSET_CHECK_EVALUATION": 2 * 2, "log": 2}
    found = _materialized(events)
    assert found.keys() == {("events/l", None), ("windows", "2026-03-01"), ("totals", None)}
    assert found["events/l", None] == {
        "rows_read": 36,
        "accepted": 27,
        "duplicate": 0,
        "quarantined": 9,
        "dagster/partition_row_count": 27,
        "batches": 9,
        "watermark": "none yet",
    }
    windows = found["windows", "2026-03-01"]
    assert {k: windows[k] for k in ("steps", "rows", "lag_seconds", "finalized", "columns")} == {
        "steps": 9,
        "rows": 18,
        "lag_seconds": 0.499,
        "finalized": False,
        "columns": "k, n",
    }
    assert found["totals", None] == {"steps": 9, "changes": 18, "columns": "k, n"}
    assert [e.user_message for e in events if e.dagster_event is None][-1] == (
        "9 batches with 27 accepted rows; rows written: windows 18, totals 18; the conservation law holds: windows, totals; "
        "longest lag: windows, 0.5 s"
    )


def test_an_hour_has_at_most_a_summary_every_five_minutes_and_a_quiet_hour_has_no_event(run: Callable[..., list[EventLogEntry]]) -> None:
    def script(stream: Stream) -> None:
        for _ in range(120):
            stream.turn()
        for _ in range(10_000):
            stream.turn(changed=False)

    events = _kinds(run(script))
    assert events == {"ASSET_MATERIALIZATION": 13 * 3, "ASSET_CHECK_EVALUATION": 13 * 2, "log": 13}, "one at once, and one every 5 minutes"


def test_a_table_that_waits_is_logged_when_it_begins_and_when_it_advances_again(run: Callable[..., list[EventLogEntry]]) -> None:
    busy, failing = PendingRetry(LakeBusy.held_by_writer("totals", "process 7"), 1, 2.0, 0.0), PendingRetry(OSError("no disk"), 1, 1.0, 0.0)

    def script(stream: Stream) -> None:
        for tries in range(100):
            stream.waiting = {"totals": busy, "windows": failing}
            for name, failed in stream.waiting.items():
                stream.reports.report_failure(name, failed)
            stream.turn(changed=tries == 0)
        stream.waiting = {}
        stream.turn(changed=False)

    logged = [e.user_message for e in run(script) if e.dagster_event is None]
    assert logged[:2] == [
        "totals is skipped until it is free: totals has a writer already: process 7; only one can write at a time, so wait for it or end "
        "it. Other tables continue",
        "windows does not advance: no disk. It is tried again; other tables continue",
    ]
    assert logged[2].endswith("; waiting: totals, windows")
    assert logged[3:] == ["totals, windows: advancing again"]


def test_a_fault_of_the_event_store_ends_no_stream_and_loses_no_report(
    run: Callable[..., list[EventLogEntry]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, faults = dg.OpExecutionContext.log_event, [3]

    def unreliable(context: dg.OpExecutionContext, event: Any) -> None:
        faults[0] -= 1
        if faults[0] <= 0:
            raise OSError("the database does not answer")
        store(context, event)

    def script(stream: Stream) -> None:
        monkeypatch.setattr(dg.OpExecutionContext, "log_event", unreliable)
        for _ in range(5):
            stream.turn(seconds=10)
        assert faults[0] == -1, "the second try comes half a minute after the first"
        monkeypatch.undo()
        monkeypatch.setattr(dagster_reports, "column_metadata", lambda *_: {})
        stream.turn(seconds=30)
        stream.reports.publish()

    events = run(script)
    assert _kinds(events) == {"ASSET_MATERIALIZATION": 2 * 3, "ASSET_CHECK_EVALUATION": 2 * 2, "log": 2}
    rows = [m.metadata["rows_read"].value for e in events if (m := e.asset_materialization) and m.asset_key.path == ["events", "l"]]
    assert rows == [4, 20], "each batch is in one report"


def test_a_fault_of_the_event_store_repeats_no_event(run: Callable[..., list[EventLogEntry]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The store fails at the third of three days of a table, and of its check."""
    store, tries, days = dg.OpExecutionContext.log_event, count(1), [f"2026-03-0{n}" for n in (1, 2, 3)]

    def unreliable(context: dg.OpExecutionContext, event: Any) -> None:
        if next(tries) in (3, 7):
            raise OSError("the database does not answer")
        store(context, event)

    def script(stream: Stream) -> None:
        monkeypatch.setattr(dg.OpExecutionContext, "log_event", unreliable)
        last = Progress(step=1, closed_to=START + 2 * DAY + HOUR)
        stream.reports.report_steps({"windows": [Step(Progress(step=0, closed_to=START), last, 2)]}, 0.1)
        stream.reports.report_accounts({"windows": [_account(day) for day in days]}, 0.1)
        for _ in range(2):
            with pytest.raises(OSError, match="does not answer"):
                stream.reports.publish()
        stream.reports.publish()

    events = run(script)
    assert [m.partition for e in events if (m := e.asset_materialization)] == days
    checks = [e.dagster_event.asset_check_evaluation_data for e in events if "CHECK" in str(e.dagster_event and e.dagster_event.event_type)]
    assert [check.partition for check in checks] == days


def test_a_line_that_cannot_be_logged_ends_no_stream(run: Callable[..., list[EventLogEntry]], caplog: pytest.LogCaptureFixture) -> None:
    class Log:
        def warning(self, text: str) -> None:
            raise OSError("the database does not answer")

    def script(stream: Stream) -> None:
        context: Any = SimpleNamespace(log=Log())
        stream.reports._context = context
        stream.reports.report_unaccounted("windows", OSError("no disk"))

    with caplog.at_level("WARNING"):
        run(script)
    assert "windows could not be accounted for: no disk" in caplog.text


def test_a_violation_fails_the_check_of_its_days_and_of_the_table(run: Callable[..., list[EventLogEntry]]) -> None:
    violation = _account("2026-03-01", matched=2)
    error = LawError.of_table("windows", [violation], {})

    def script(stream: Stream) -> None:
        stream.turn()
        stream.reports.violated(error)

    checks = [
        e.dagster_event.asset_check_evaluation_data for e in run(script) if "CHECK" in str(e.dagster_event and e.dagster_event.event_type)
    ]
    assert [(c.asset_key.to_user_string(), c.partition, c.passed) for c in checks][-2:] == [
        ("windows", "2026-03-01", False),
        ("windows", None, False),
    ], "the newest result is that of the table"
    assert checks[-1].description == "the account does not add up: l on 2026-03-01"


def test_a_table_that_cannot_be_read_hides_no_report_of_other_tables(run: Callable[..., list[EventLogEntry]]) -> None:
    def script(stream: Stream) -> None:
        pending: Any = stream.reports._engine.pending
        described = pending.describe_progress

        def describe(name: str) -> dict[str, Any]:
            if name == "windows":
                raise UnreadableLogError("the Delta log of windows cannot be read", "damaged")
            return described(name)

        pending.describe_progress = describe
        stream.turn()
        assert not stream.reports._events

    events = run(script)
    assert _materialized(events).keys() == {("events/l", None), ("totals", None)}
    assert _kinds(events)["ASSET_CHECK_EVALUATION"] == 2
    logged = [e.user_message for e in events if e.dagster_event is None]
    assert logged[0] == "an event is left out: the Delta log of windows cannot be read"


def test_a_violation_is_stored_although_the_collected_reports_are_not(
    run: Callable[..., list[EventLogEntry]], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = LawError.of_table("windows", [_account("2026-03-01", matched=2)], {})

    def script(stream: Stream) -> None:
        stream.turn()
        stream.turn(seconds=1)

        def fail() -> None:
            raise OSError("the database does not answer")

        monkeypatch.setattr(stream.reports, "publish", fail)
        with pytest.raises(LawError, match="windows"), stream.reports.stored_at_end():
            raise error

    checks = [
        e.dagster_event.asset_check_evaluation_data for e in run(script) if "CHECK" in str(e.dagster_event and e.dagster_event.event_type)
    ]
    assert [(c.partition, c.passed) for c in checks][-2:] == [("2026-03-01", False), (None, False)]


def test_days_outside_the_partitions_are_one_result_of_the_table(run: Callable[..., list[EventLogEntry]]) -> None:
    def script(stream: Stream) -> None:
        stream.reports.report_accounts({"windows": [_account("2025-12-31"), _account("2026-03-01")]}, 0.1)
        stream.reports.report_turn({}, {})

    checks = [
        e.dagster_event.asset_check_evaluation_data for e in run(script) if "CHECK" in str(e.dagster_event and e.dagster_event.event_type)
    ]
    assert [(c.partition, c.passed) for c in checks] == [("2026-03-01", True), (None, True)]


def test_the_steps_on_a_topic_are_one_materialization_and_a_sink_that_fails_is_logged_once(run: Callable[..., list[EventLogEntry]]) -> None:
    away = PendingRetry(OSError("no broker"), 1, 1.0, 0.0)

    def script(stream: Stream) -> None:
        stream.turn()
        for step in (1, 2, 3):
            stream.unpublished = {"windows": away}
            stream.reports.report_unpublished("windows", away)
            stream.reports.report_published({"totals": Published("best", step, 1, 10)})
            stream.turn(changed=False)
        stream.unpublished = {}
        stream.turn(changed=False, seconds=MINUTES_5)
        stream.turn(changed=False, seconds=MINUTES_5)

    events = run(script)
    assert _materialized(events)["kafka/totals", None] == {"topic": "best", "step": 3, "steps": 3, "records": 30}
    assert _kinds(events)["ASSET_MATERIALIZATION"] == 3 + 1
    assert [e.user_message for e in events if e.dagster_event is None][1:] == [
        "windows is not published to Kafka: no broker. It is tried again; other tables continue",
        "windows: publishing to Kafka again",
        "records published: totals 30",
    ]
