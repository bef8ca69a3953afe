"""The job `stream`: what a run materializes and checks, and how it ends."""

import signal
import socket
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest

from assets.contracts import DerivedAsset
from operators import Aggregate, Tumbling, WindowedAggregate
from platform_defs.dagster_home.instance import prepare
from platform_defs.engine import Engine
from platform_defs.engine.operations.stream_accounting import StreamAccounting
from platform_defs.orchestration.stream_runs import TAG, reason_of_end, running_process, stream_of
from platform_defs.settings import PROJECT, Settings
from platform_defs.setup.ports import free_ports
from platform_defs.stream.job import stream_job
from tests.conftest import MakeEngine
from tests.platform_defs.stream.live import DAGSTER, Rides, is_running, java_of, until
from tests.support.small_sources import DAY, HOUR, Event, land, source

COUNT = {"n": "count(*)"}
TABLES = [
    DerivedAsset(name="windows", inputs=("l",), operator=WindowedAggregate(by="k", window=Tumbling(size="10 minutes"), aggregates=COUNT)),
    DerivedAsset(name="totals", inputs=("l",), operator=Aggregate(by="k", aggregates=COUNT)),
]
DAYS = dg.DailyPartitionsDefinition("2026-02-01")
LAW = [dg.AssetCheckKey(dg.AssetKey(name), "conservation_law") for name in ("windows", "totals")]
ENDS_S = 60.0


def _run(instance: dg.DagsterInstance, engine: Engine | None, **config: Any) -> dg.ExecuteInProcessResult:
    job, run_config = stream_job(Settings(), DAYS), {"ops": {"run_stream": {"config": {"trigger": "availableNow", **config}}}}
    return job.execute_in_process(run_config, instance=instance, resources={"engine": engine}, raise_on_error=False)


def _partitions(instance: dg.DagsterInstance) -> Mapping[str, set[str]]:
    return {name: set(instance.get_materialized_partitions(dg.AssetKey(name))) for name in ("windows", "totals")}


def _stored(instance: dg.DagsterInstance, run: dg.ExecuteInProcessResult) -> list[str]:
    kinds = [e.dagster_event.event_type_value for e in instance.all_logs(run.run_id) if e.dagster_event is not None]
    return [kind for kind in kinds if kind.startswith("ASSET_")]


@pytest.mark.usefixtures("interpreted_plans")
def test_a_run_reports_the_changed_days_and_their_accounts_and_nothing_if_nothing_has_changed(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], TABLES)
    land(engine, "l", "1.jsonl", [Event("a", n, n * HOUR).line for n in range(30)])
    with dg.DagsterInstance.ephemeral() as instance:
        first = _run(instance, engine)
        assert first.success
        assert _partitions(instance) == {"windows": {"2026-03-01", "2026-03-02"}, "totals": set()}
        checks = instance.event_log_storage.get_latest_asset_check_execution_by_key(LAW)
        assert {key.asset_key.to_user_string(): record.status.value for key, record in checks.items()} == {
            "windows": "SUCCEEDED",
            "totals": "SUCCEEDED",
        }
        run = instance.get_run_by_id(first.run_id)
        assert run is not None
        assert run.tags[TAG] == stream_of(engine)
        again = _run(instance, engine)
        assert again.success
        assert _stored(instance, again) == []
        land(engine, "l", "2.jsonl", [Event("b", 1, 3 * DAY + HOUR).line])
        _run(instance, engine)
        assert _partitions(instance)["windows"] == {"2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04"}


@pytest.mark.usefixtures("interpreted_plans")
def test_a_run_holds_its_lock_also_while_it_only_accounts(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By this lock the sensor knows that the run is alive; the lock of the ingest is free while the run only accounts."""
    engine, seen = make_engine([source("l")], TABLES), list[bool]()

    def rest(_: StreamAccounting) -> list[str]:
        seen.extend([running_process(engine) is not None, engine.ingestion.current_writer() is None])
        return []

    monkeypatch.setattr(StreamAccounting, "account_rest", rest)
    with dg.DagsterInstance.ephemeral() as instance:
        assert _run(instance, engine).success
    assert seen == [True, True]
    assert running_process(engine) is None


@pytest.mark.usefixtures("interpreted_plans")
def test_a_run_serves_its_metrics_at_the_port_of_the_settings_and_goes_on_if_the_port_is_taken(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, found = make_engine([source("l")], TABLES), list[bytes]()
    land(engine, "l", "1.jsonl", [Event("a", n, n * HOUR).line for n in range(3)])
    [port] = free_ports(1)
    values = Settings(stream_metrics_port=port)

    def rest(_: StreamAccounting) -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{values.stream_metrics_port}/metrics", timeout=30) as answer:
            found.append(answer.read())
        return []

    config = {"ops": {"run_stream": {"config": {"trigger": "availableNow"}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        run = stream_job(values, DAYS).execute_in_process
        with monkeypatch.context() as patch:
            patch.setattr(StreamAccounting, "account_rest", rest)
            assert run(config, instance=instance, resources={"engine": engine}).success
        assert b'tidemark_step_seconds_count{table="windows"}' in found[0]
        assert b"tidemark_up 1.0" in found[0]
        with socket.create_server(("127.0.0.1", values.stream_metrics_port or 0)):
            assert run(config, instance=instance, resources={"engine": engine}).success


@pytest.mark.usefixtures("interpreted_plans")
def test_a_lost_result_fails_the_run_and_its_check(make_engine: MakeEngine) -> None:
    from deltalake import DeltaTable

    engine = make_engine([source("l")], TABLES)
    land(engine, "l", "1.jsonl", [Event("a", n, n * HOUR).line for n in range(3)])
    with dg.DagsterInstance.ephemeral() as instance:
        assert _run(instance, engine).success
        DeltaTable(engine.lake.path("totals")).delete("k = 'a'")
        land(engine, "l", "2.jsonl", [Event("b", 1, 4 * HOUR).line])
        failed = _run(instance, engine)
        assert not failed.success
        checks = instance.event_log_storage.get_latest_asset_check_execution_by_key(LAW)
        assert checks[LAW[1]].status.value == "FAILED"
        assert reason_of_end(instance, failed.run_id).startswith("run_stream: totals breaks the conservation law: ")
    recorded = engine.accounts.recorded_account("totals")
    assert recorded is not None
    assert not recorded.holds, "so the sensor does not start the next run"


@pytest.mark.parametrize(
    ("config", "message"),
    [({"trigger": "once"}, "`trigger` is 'once'; legal: 'availableNow', or"), ({"summary": "soon"}, "`summary` is 'soon'")],
)
def test_an_illegal_configuration_is_named(config: dict[str, str], message: str) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        failed = _run(instance, None, **config)
        assert not failed.success
        [event] = [e for e in failed.all_events if e.is_step_failure]
        assert message in str(event.step_failure_data.user_failure_data)


@pytest.mark.spark
def test_a_cancelled_run_ends_its_jvm_and_releases_its_locks(tmp_path: Path) -> None:
    """The short form of `test_live_instance.py`: the run's process gets the signal that Dagster's launcher sends."""
    rides = Rides(tmp_path)
    prepare(str(tmp_path / "dagster"))
    rides.land(0)
    command = [DAGSTER, "job", "execute", "-m", "tests.platform_defs.stream.stream_location", "-j", "stream"]
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(command, cwd=PROJECT, env=rides.environment, stdout=log, stderr=log, start_new_session=True)
    try:
        process = psutil.Process(run.pid)
        until(lambda: rides.engine().ledger.head > 0)
        [jvm] = java_of(process)
        until(rides.is_advancing)
        with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
            [record] = instance.get_run_records(dg.RunsFilter(job_name="stream"))
            instance.report_run_canceling(record.dagster_run)  # as the launcher does; without this call, an interrupt is a failure
        run.send_signal(signal.SIGINT)
        assert run.wait(ENDS_S) != 0
        until(lambda: not is_running(jvm), 20.0)
    finally:
        run.kill()
        run.wait()
    engine = rides.engine()
    assert engine.ingestion.current_writer() is None
    assert engine.pending.current_writer() is None
    with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
        [record] = instance.get_run_records(dg.RunsFilter(job_name="stream"))
        assert record.dagster_run.status == dg.DagsterRunStatus.CANCELED
        assert instance.get_latest_materialization_event(dg.AssetKey(["events", "rides"])) is not None, "the run's last report is stored"
