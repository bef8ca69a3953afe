"""A Dagster instance with daemon and web server: the sensor starts the stream, which is killed, started again, and cancelled in the UI.

A backfill of a week runs beside it, and the lake at the end equals that of one clean batch run.
"""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from pyspark.sql import SparkSession

from platform_defs.dagster_home.instance import prepare
from platform_defs.engine import Engine
from platform_defs.settings import PROJECT
from platform_defs.setup.ports import free_ports
from tests.platform_defs.stream.live import Rides, is_running, java_of, until

pytestmark = pytest.mark.soak
ENGINE_COLUMNS = ("seq", "arrival")
"""Suffixes of the columns with a row's batch number and its position in the batch; both differ between a stream and one batch."""
WHERE = {"repositoryLocationName": "platform_defs.definitions", "repositoryName": "__repository__"}
TERMINATE = "mutation($id: String!) { terminateRun(runId: $id) { __typename } }"
START_SENSOR = "mutation($s: SensorSelector!) { startSensor(sensorSelector: $s) { __typename } }"
BACKFILL = (
    "mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) { __typename ... on PythonError { message } } }"
)


@dataclass
class Live:
    """A running instance.

    Args:
        rides: the lake.
        port: the port of the web server.
        daemon: the daemon, which starts the processes of runs.
        instance: the instance, for a look at its runs.
    """

    rides: Rides
    port: int
    daemon: psutil.Process
    instance: dg.DagsterInstance

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Send a query to the web server, as its UI does."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["data"]

    def is_up(self) -> bool:
        with suppress(OSError):
            return bool(self.ask("{ version }"))
        return False

    def runs(self, job: str) -> list[dg.DagsterRun]:
        return [*self.instance.get_runs(dg.RunsFilter(job_name=job))]

    def status_of(self, run_id: str) -> dg.DagsterRunStatus:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run.status

    def next_stream(self, earlier: list[str]) -> tuple[str, psutil.Process]:
        """Wait until a run of the stream that is not among the earlier ones is up to date; returns its id and its process."""
        run_id = until(lambda: [r.run_id for r in self.runs("stream") if r.run_id not in earlier], 240)[0]
        until(self.rides.is_streaming, 120)
        until(lambda: self.rides.is_current, 120)
        [process] = [jvm.parent() for jvm in java_of(self.daemon)]
        assert process is not None
        return run_id, process

    def stop_reason(self) -> str:
        """Why the supervising sensor requests no run, according to its newest tick."""
        [state] = [s for s in self.instance.all_instigator_state() if s.instigator_name == "stream_supervisor"]
        [tick] = self.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
        return tick.skip_reason or ""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """An instance whose processes end with the test."""
    rides, home = Rides(tmp_path), prepare(str(tmp_path / "dagster"))
    [port] = free_ports(1)
    with ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("wb"))
        instance = stack.enter_context(dg.DagsterInstance.from_config(str(home)))
        assert instance.get_runs() == []  # this query creates the databases, before the two processes would create them at once
        started = [
            subprocess.Popen(
                [str(Path(sys.executable).with_name(command[0])), *command[1:], "-w", "workspace.yaml"],
                cwd=PROJECT,
                env=rides.environment,
                stdout=log,
                stderr=log,
            )
            for command in (("dagster-daemon", "run"), ("dagster-webserver", "-h", "127.0.0.1", "-p", str(port)))
        ]
        for process in started:
            stack.callback(_end, process)
        made = Live(rides, port, psutil.Process(started[0].pid), instance)
        until(made.is_up)
        yield made


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process with its children."""
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    for child in [*children, process]:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            child.kill()
    process.wait()


def test_a_supervised_stream_is_killed_restarted_and_cancelled_beside_a_backfill(live: Live, spark: SparkSession) -> None:
    rides = live.rides
    for hour in range(0, 72, 6):
        rides.land(hour)
    live.ask(START_SENSOR, s={**WHERE, "sensorName": "stream_supervisor"})
    first, process = live.next_stream([])

    rides.land(75)
    process.kill()
    until(lambda: not is_running(process), 20)
    until(lambda: not java_of(live.daemon), 30)
    until(lambda: live.status_of(first) == dg.DagsterRunStatus.FAILURE, 30)
    until(lambda: "did not succeed, the last of 1 in a row" in live.stop_reason() or len(live.runs("stream")) > 1, 60)
    second, process = live.next_stream([first])

    tables = ("ride_fares", "rides_per_hour", "busy_zones")
    days = [f"2026-03-0{day}" for day in range(1, 8)]
    selection = {"assetSelection": [{"path": [name]} for name in tables], "partitionNames": days}
    answer = live.ask(BACKFILL, p=selection)
    assert answer["launchPartitionBackfill"]["__typename"] == "LaunchBackfillSuccess", answer
    [backfill] = until(lambda: [r for r in live.instance.get_runs() if r.tags.get("dagster/backfill")], 60)
    for hour in range(78, 174, 12):
        rides.land(hour)
        if live.status_of(backfill.run_id) == dg.DagsterRunStatus.SUCCESS:
            break
        until(lambda: rides.is_current or live.status_of(backfill.run_id) == dg.DagsterRunStatus.SUCCESS, 180)
    until(lambda: live.status_of(backfill.run_id) in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE), 240)
    assert live.status_of(backfill.run_id) == dg.DagsterRunStatus.SUCCESS
    assert live.status_of(second) == dg.DagsterRunStatus.STARTED, "the stream goes on"
    rides.land(180)
    until(lambda: rides.is_current, 120)

    jvms = java_of(process)
    assert live.ask(TERMINATE, id=second)["terminateRun"]["__typename"] == "TerminateRunSuccess"
    until(lambda: live.status_of(second) == dg.DagsterRunStatus.CANCELED, 60)
    until(lambda: not java_of(live.daemon) and not any(map(is_running, jvms)), 30)
    until(lambda: "was cancelled; launch the job stream to go on" in live.stop_reason(), 90)
    assert len(live.runs("stream")) == 2
    _assert_equal_to_a_batch(rides, spark)


def _assert_equal_to_a_batch(rides: Rides, spark: SparkSession) -> None:
    stream, batch = (replace(rides.engine(lake), connect=lambda: spark) for lake in ("lake", "batch"))
    batch.ingest()
    for name in batch.assets:
        assert stream.advance(name) == [], "the stream has left nothing to do"
        batch.advance(name)
        assert _rows(stream, name) == _rows(batch, name)
        assert _rows(stream, name)
        assert [a for a in stream.accounts.days(name) if not a.holds] == []
        assert stream.accounts.count_differences(name) == {}


def _rows(engine: Engine, name: str) -> list[str]:
    frame = engine.views.table(name)
    kept = [column for column in frame.columns if not column.endswith(ENGINE_COLUMNS)]
    return sorted(str(tuple(row)) for row in frame.select(*kept).collect())
