"""The sensor that keeps the job `stream` running, on an instance without a daemon. No test starts Spark."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from assets.days import day_of
from platform_defs.configured_engine import make_engine
from platform_defs.definitions import build
from platform_defs.engine import Engine
from platform_defs.engine.accounting.accounts import Accounts
from platform_defs.engine.accounting.recorded_account import RecordedAccount, RecordedDay
from platform_defs.engine.engine import wall_clock
from platform_defs.engine.ingest.hadoop_files import HadoopFileFinder
from platform_defs.engine.ingest.new_records import NewRecords
from platform_defs.engine.ingest.stream import writer_name
from platform_defs.orchestration.schedules import nightly
from platform_defs.orchestration.sensors import ledger_moved, new_input
from platform_defs.orchestration.stream_runs import (
    STARTS_S,
    SUPERVISOR,
    TAG,
    newest_runs,
    reason_not_to_stream,
    reason_of_end,
    run_lock,
    stream_of,
)
from platform_defs.settings import Settings
from platform_defs.stream.supervisor import stream_supervisor
from tests.platform_defs.orchestration.test_retries import _commit, _land
from tests.support.clock import Clock
from tests.support.runs import added_run
from tests.support.small_sources import DAY, START

S = 1_000


@dataclass
class Daemon:
    """Simulates Dagster's daemon, which evaluates sensors and launches the runs that they request."""

    instance: dg.DagsterInstance
    engine: Engine
    clock: Clock
    repository: dg.RepositoryDefinition
    sensor: dg.SensorDefinition

    def tick(self, sensor: dg.SensorDefinition | None = None) -> str:
        """Evaluate a sensor; returns `requested`, or the reason of a skip."""
        evaluated = sensor or self.sensor
        with dg.build_sensor_context(instance=self.instance, repository_def=self.repository, resources={"engine": self.engine}) as context:
            result = evaluated.evaluate_tick(context)
        if not result.run_requests:
            return result.skip_message or ""
        [request] = result.run_requests
        assert not self.instance.get_runs(dg.RunsFilter(tags={"dagster/run_key": request.run_key or ""})), "each run key is launched once"
        self.launch({**request.tags, "dagster/run_key": request.run_key or ""}, str(evaluated.job_name))
        return "requested"

    def launch(self, tags: dict[str, str], job: str = "stream") -> None:
        self.run = added_run(self.instance, self.repository.get_job(job), tags, dg.DagsterRunStatus.STARTED)
        self.report(dg.DagsterEventType.PIPELINE_START)
        [record] = self.instance.get_run_records(dg.RunsFilter(run_ids=[self.run.run_id]))
        self.clock.now = int(record.update_timestamp.timestamp() * S) + 1

    def report(self, event: dg.DagsterEventType) -> None:
        self.instance.report_dagster_event(dg.DagsterEvent(event.value, self.run.job_name), run_id=self.run.run_id)

    def end(self, event: dg.DagsterEventType = dg.DagsterEventType.PIPELINE_FAILURE) -> None:
        """End the newest run now."""
        self.report(event)
        [record] = self.instance.get_run_records(dg.RunsFilter(run_ids=[self.run.run_id]))
        self.clock.now = int((record.end_time or 0) * S) + 1


@pytest.fixture(scope="module")
def repository() -> dg.RepositoryDefinition:
    return build(Settings()).get_repository_def()


@pytest.fixture
def daemon(tmp_path: Path, repository: dg.RepositoryDefinition) -> Iterator[Daemon]:
    values = Settings(lake=str(tmp_path / "lake"))
    with dg.DagsterInstance.ephemeral() as instance:
        clock = Clock(wall_clock())  # the instance stamps run records with the real time
        yield Daemon(instance, replace(make_engine(values), clock=clock), clock, repository, stream_supervisor(values))


def test_the_stream_is_started_and_left_alone_while_it_holds_its_lock(daemon: Daemon) -> None:
    assert daemon.tick() == "requested"
    assert daemon.run.tags[TAG] == stream_of(daemon.engine)
    assert daemon.tick() == f"run {daemon.run.run_id} has not ended yet"
    with daemon.engine.lake.writer(writer_name(daemon.engine.folders)):
        daemon.clock.pass_ms(9 * DAY)
        assert daemon.tick().startswith("the input is being ingested: ingest-")


def test_a_run_that_starts_its_jvm_or_only_accounts_is_not_marked_as_failed(daemon: Daemon) -> None:
    assert daemon.tick() == "requested"
    with run_lock(daemon.engine):
        daemon.clock.pass_ms(9 * DAY)
        assert daemon.tick() == f"run {daemon.run.run_id} has not ended yet"
    run = daemon.instance.get_run_by_id(daemon.run.run_id)
    assert run is not None
    assert run.status == dg.DagsterRunStatus.STARTED


def test_a_failed_stream_is_started_again_with_growing_waits_and_the_reason(daemon: Daemon) -> None:
    assert daemon.tick() == "requested"
    for failures, wait_s in enumerate([30, 60, 120, 240, 480, 900, 900], 1):
        daemon.end()
        daemon.clock.pass_ms((wait_s - 1) * S)
        message = daemon.tick()
        assert f"did not succeed, the last of {failures} in a row; the next is requested in" in message
        assert "It ended with: " in message
        daemon.clock.pass_ms(S)
        assert daemon.tick() == "requested"


def test_a_failure_after_a_long_run_is_the_first_in_a_row(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        daemon.clock.pass_ms(3_600 * S)
        assert daemon.tick() == "requested"
        daemon.end()
    assert "the last of 4 in a row" in daemon.tick()
    monkeypatch.setattr("platform_defs.stream.supervisor.HEALTHY_S", 0.0)
    assert "the last of 1 in a row" in daemon.tick()


def test_a_killed_stream_is_replaced_and_its_run_is_marked_as_failed(daemon: Daemon) -> None:
    """The code server was killed too, so Dagster does not notice that the run has ended; but the stream's lock is free."""
    assert daemon.tick() == "requested"
    killed = daemon.run.run_id
    daemon.clock.pass_ms(int(STARTS_S * S) - 2 * S)
    assert daemon.tick() == f"run {killed} has not ended yet"
    daemon.clock.pass_ms(60 * S)
    assert daemon.tick() == "requested"
    run = daemon.instance.get_run_by_id(killed)
    assert run is not None
    assert run.status == dg.DagsterRunStatus.FAILURE
    assert reason_of_end(daemon.instance, killed) == "its process has ended without a record, and its stream holds no lock"


def test_the_reason_of_an_end_quotes_no_error_that_tidemark_did_not_write() -> None:
    @dg.op
    def run_stream() -> None:
        raise ValueError("customer 4711")

    @dg.job(name="stream")
    def stream() -> None:
        run_stream()

    with dg.DagsterInstance.ephemeral() as instance:
        run = stream.execute_in_process(instance=instance, raise_on_error=False)
        assert reason_of_end(instance, run.run_id) == "run_stream: ValueError"


def test_a_cancelled_stream_stays_off_until_it_is_launched_by_hand(daemon: Daemon) -> None:
    assert daemon.tick() == "requested"
    daemon.end(dg.DagsterEventType.PIPELINE_CANCELED)
    daemon.clock.pass_ms(DAY)
    assert daemon.tick() == f"run {daemon.run.run_id} was cancelled; launch the job stream to go on, and stream_supervisor supervises it"
    daemon.launch({TAG: stream_of(daemon.engine)})  # the run itself sets the tag
    daemon.end()
    daemon.clock.pass_ms(DAY)
    assert daemon.tick() == "requested"


def test_a_stream_that_is_killed_while_it_is_cancelled_stays_off(daemon: Daemon) -> None:
    assert daemon.tick() == "requested"
    daemon.instance.report_run_canceling(daemon.run)
    assert daemon.tick() == f"run {daemon.run.run_id} has not ended yet"
    daemon.clock.pass_ms(DAY)
    assert daemon.tick().startswith(f"run {daemon.run.run_id} was cancelled; launch the job stream to go on")
    [run] = daemon.instance.get_runs()
    assert run.status == dg.DagsterRunStatus.CANCELED


def test_a_broken_law_keeps_the_stream_off(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    day = RecordedDay("orders", str(day_of(START)), 1, False, {})
    accounts = {"order_wide": RecordedAccount([day], 1)}
    monkeypatch.setattr(Accounts, "recorded_account", lambda _, name: accounts.get(name))
    assert daemon.tick().startswith(
        "the recorded account of order_wide violates the conservation law. `tidemark status --recount` shows it, and the "
        "command that repairs the days"
    )
    accounts["order_wide"] = RecordedAccount([replace(day, holds=True)], 2)
    assert daemon.tick() == "requested"


def test_a_table_that_cannot_be_read_does_not_keep_the_stream_off(daemon: Daemon) -> None:
    log = Path(daemon.engine.lake.path("item_sales"), "_delta_log")
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("x")
    assert daemon.tick() == "requested"


def _nightly(daemon: Daemon) -> str:
    """The reason why the schedule skips. A schedule does not get an instance that is in memory."""
    with dg.build_schedule_context(
        instance=daemon.instance, resources={"engine": daemon.engine}, repository_def=daemon.repository
    ) as context:
        return str(nightly.evaluate_tick(context).skip_message)


def test_the_other_sensors_and_the_schedule_give_way_while_a_stream_runs_or_starts(daemon: Daemon, tmp_path: Path) -> None:
    _land(daemon.engine, "1.jsonl")
    _commit(daemon.engine, START, START + 2 * DAY)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as daemon.instance:
        assert daemon.tick() == "requested"
        starting = f"run {daemon.run.run_id} of the job stream is starting"
        assert (daemon.tick(new_input), daemon.tick(ledger_moved), _nightly(daemon)) == (starting, starting, starting)
        with daemon.engine.lake.writer(writer_name(daemon.engine.folders)):
            daemon.clock.pass_ms(DAY)
            assert daemon.tick(new_input).startswith("ingest-")
            assert daemon.tick(ledger_moved).startswith("ingest-")
            assert _nightly(daemon).startswith("ingest-")
        daemon.end()
        stream = daemon.run
        assert daemon.tick(new_input) == "requested", "a stream that has failed blocks no other run"
        assert daemon.run.job_name == "ingest"
        assert stream.job_name == "stream"


def _switch_sensor(instance: dg.DagsterInstance, status: InstigatorStatus, location: str = "here") -> None:
    """Turn the sensor of a code location on or off."""
    of_location = InProcessCodeLocationOrigin(LoadableTargetOrigin(python_file="defs.py"), location_name=location)
    origin = RemoteInstigatorOrigin(RemoteRepositoryOrigin(of_location, "__repository__"), SUPERVISOR)
    state = InstigatorState(origin, InstigatorType.SENSOR, status)
    known = instance.get_instigator_state(origin.get_id(), origin.get_selector().get_id())
    instance.add_instigator_state(state) if known is None else instance.update_instigator_state(state)


@pytest.mark.parametrize("cause", ["cancelled", "law"])
def test_the_other_sensors_and_the_schedule_stay_off_with_a_supervised_stream(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cause: str
) -> None:
    _land(daemon.engine, "1.jsonl")
    _commit(daemon.engine, START, START + 2 * DAY)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as daemon.instance:
        daemon.launch({TAG: stream_of(daemon.engine), ".dagster/repository": "__repository__@here"})
        if cause == "cancelled":
            daemon.end(dg.DagsterEventType.PIPELINE_CANCELED)
            why = f"run {daemon.run.run_id} was cancelled; launch the job stream to go on"
        else:
            account = RecordedAccount([RecordedDay("orders", str(day_of(START)), 1, False, {})], 1)
            monkeypatch.setattr(Accounts, "recorded_account", lambda _, name: account if name == "order_wide" else None)
            daemon.end()
            why = "the recorded account of order_wide violates the conservation law"
        _switch_sensor(daemon.instance, InstigatorStatus.RUNNING)
        for sensor in (new_input, ledger_moved):
            reason = daemon.tick(sensor)
            assert reason.startswith(why)
            assert reason.endswith(". To go on without a stream, turn off the sensor stream_supervisor")
        assert _nightly(daemon).startswith(why)
        _switch_sensor(daemon.instance, InstigatorStatus.STOPPED)
        _switch_sensor(daemon.instance, InstigatorStatus.RUNNING, "elsewhere")
        assert daemon.tick(new_input) == "requested", "the sensor of another code location supervises another stream"


def test_a_stream_that_ends_with_the_present_files_is_started_when_there_are_new_ones(daemon: Daemon) -> None:
    daemon.sensor = stream_supervisor(Settings(lake=daemon.engine.lake.root, stream_trigger="availableNow"))
    assert daemon.tick() == "nothing new has landed"
    _land(daemon.engine, "1.jsonl")
    assert daemon.tick() == "requested"
    daemon.end(dg.DagsterEventType.PIPELINE_SUCCESS)
    assert daemon.tick().startswith(f"run {daemon.run.run_id} succeeded, but did not finish the work; the next is requested in")
    assert "ended with" not in daemon.tick(), "the run has not failed"
    _land(daemon.engine, "2.jsonl")
    assert daemon.tick() == "requested", "another file does not wait for a quarter of an hour"
    daemon.end(dg.DagsterEventType.PIPELINE_SUCCESS)
    assert "succeeded, but did not finish the work" in daemon.tick()
    daemon.clock.pass_ms(900 * S)
    assert daemon.tick() == "requested"


@dataclass
class Looks:
    """What the sensor finds when it looks at the topics."""

    ends: dict[str, int]
    unlisted: dict[str, str]
    missing: Sequence[str] = ()


@pytest.fixture
def looks(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Looks:
    found = Looks({}, {})
    monkeypatch.setattr(
        "platform_defs.engine.ingest.ingestion.new_records", lambda *_: NewRecords(found.ends, found.unlisted, found.missing)
    )
    daemon.sensor = stream_supervisor(Settings(lake=daemon.engine.lake.root, stream_trigger="availableNow"))
    return found


def test_topics_that_need_spark_are_looked_at_every_quarter_of_an_hour(daemon: Daemon, looks: Looks) -> None:
    """Only a run can know whether the topics have new records."""
    looks.unlisted = {"kafka:orders": "`kafka.ssl.keystore.location` can only be used by Java's client"}
    for _ in range(2):
        assert daemon.tick() == "requested"
        daemon.end(dg.DagsterEventType.PIPELINE_SUCCESS)
        assert "the next is requested in" in daemon.tick()
        daemon.clock.pass_ms(900 * S)
    assert daemon.tick(new_input) == "kafka:orders cannot be checked: `kafka.ssl.keystore.location` can only be used by Java's client"


def test_a_missing_topic_is_named(daemon: Daemon, looks: Looks) -> None:
    looks.missing = ["kafka:ordres"]
    assert [daemon.tick(), daemon.tick(new_input)] == ["kafka:ordres does not exist"] * 2


def test_a_folder_that_only_spark_can_list_is_looked_at_every_quarter_of_an_hour(daemon: Daemon) -> None:
    daemon.sensor = stream_supervisor(Settings(lake=daemon.engine.lake.root, stream_trigger="availableNow"))
    only_spark = HadoopFileFinder("orders", "gs://bucket/orders", daemon.engine.ledger)
    daemon.engine.ingestion.__dict__["file_finders"] = {**daemon.engine.ingestion.file_finders, "orders": only_spark}
    assert daemon.tick() == "requested"
    assert "cannot be listed: only Spark can list it; run the stream" in daemon.tick(new_input)


def test_new_records_start_a_run_at_once(daemon: Daemon, looks: Looks) -> None:
    assert daemon.tick() == "nothing new has landed"
    assert daemon.tick(new_input) == "nothing new has landed"
    for end in (5, 7):
        looks.ends = {"kafka:orders/0@id": end}
        assert daemon.tick() == "requested"
        daemon.end(dg.DagsterEventType.PIPELINE_SUCCESS)
        assert "succeeded, but did not finish the work" in daemon.tick()
    assert daemon.tick(new_input) == "requested"


@pytest.mark.parametrize(("cancelled_first", "reason"), [(True, None), (False, "was cancelled; launch the job stream to go on")])
def test_a_run_that_was_cancelled_in_the_queue_of_a_running_stream_does_not_end_its_supervision(
    cancelled_first: bool, reason: str | None
) -> None:
    engine: Any = SimpleNamespace(lake=SimpleNamespace(root="/lake"), folders={"l": "/landing/l"}, assets={})
    tags = {TAG: stream_of(engine)}

    @dg.op
    def stream() -> None: ...

    job = dg.JobDefinition(name="stream", graph_def=dg.GraphDefinition(name="stream", node_defs=[stream]))
    with dg.DagsterInstance.ephemeral() as instance:
        running, queued = (instance.create_run_for_job(job, tags=tags) for _ in range(2))
        ends = [partial(instance.report_run_canceled, queued), partial(instance.report_run_failed, running)]
        for end in ends if cancelled_first else reversed(ends):
            end()
            time.sleep(0.01)
        found = reason_not_to_stream(engine, newest_runs(instance, engine))
    assert found is None if reason is None else reason in str(found)
