"""A standalone cluster that loses a worker, with the lake in S3 or on a shared disk, and Dagster Pipes, which starts a driver."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from platform_defs.cli import cluster as cluster_commands
from platform_defs.configured_engine import make_engine
from platform_defs.settings import PROJECT, Settings
from platform_defs.setup.jars import jars_folder
from platform_defs.stream.pipes import log_reported
from tests.cluster import child
from tests.support.cluster import SMALL_EXECUTORS, Cluster, cluster, hides_folders
from tests.support.quick_session import QUICK_CONNECTIONS
from tests.support.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, s3_server
from tests.support.small_sources import HOUR, Event

pytestmark = [pytest.mark.cluster, pytest.mark.s3, pytest.mark.filterwarnings("ignore:.*expected_writer_count")]
SPARK = yaml.safe_dump(
    {
        "spark": {
            **SMALL_EXECUTORS,
            **QUICK_CONNECTIONS["spark"],
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.leafNodeDefaultParallelism": "2",
            "spark.shuffle.io.maxRetries": "1",
            "spark.shuffle.io.retryWait": "100ms",
        }
    }
)
"""Executors and drivers that start fast, interpreted plans, and little waiting for a worker that was killed."""
PIPELINE = """
from assets.contracts import DerivedAsset
from assets.pipeline import Pipeline
from operators import Tumbling, WindowedAggregate
from tests.support.small_sources import source

windows = WindowedAggregate(by="k", window=Tumbling(size="10 minutes"), aggregates={"n": "count(*)"})
pipeline = Pipeline(sources=[source("l")], tables=[DerivedAsset(name="windows", inputs=("l",), operator=windows)])
"""
BIN = Path(sys.executable).parent
_COMMIT = re.compile(r"^PUT /\S+/_delta_log/\d{20}\.json (if-none-match=\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Started:
    """An S3 server and a cluster of two workers.

    Args:
        folder: the folder of their logs.
        drivers: a folder that the workers cannot see; they do not see the folder of the JARs either.
    """

    server: S3Server
    cluster: Cluster
    folder: Path
    drivers: Path

    def environment(self) -> dict[str, str]:
        """The settings of a driver, without those of the tests' process and without a lake."""
        return {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TIDEMARK_"))} | {
            "TIDEMARK_SPARK_MASTER": self.cluster.master,
            "TIDEMARK_DRIVER_MEMORY": "1g",
            "TIDEMARK_SHUFFLE_PARTITIONS": "2",
            "TMPDIR": str(self.drivers),
        }


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    folder = tmp_path_factory.mktemp("cluster")
    drivers = folder / "drivers"
    drivers.mkdir()
    with s3_server(folder / "server.log") as server, cluster(folder / "workers", 2, hidden=[drivers, jars_folder()]) as workers:
        yield Started(server, workers, folder, drivers)


@dataclass(frozen=True)
class Ran:
    """What the process with the lake in S3 printed, its errors, and the log of the server."""

    printed: dict[str, Any]
    errors: str
    requests: str

    @property
    def seen(self) -> dict[str, Any]:
        return self.printed["seen"]


@pytest.fixture(scope="module")
def ran(started: Started) -> Ran:
    (started.drivers / "connections.yaml").write_text(started.server.connections + SPARK)
    environment = started.environment() | {
        "KEY_OF_THE_LAKE": ACCESS_KEY,
        "SECRET_OF_THE_LAKE": SECRET_KEY,
        "TIDEMARK_LAKE": f"s3a://{BUCKET}/on-a-cluster/lake",
        "TIDEMARK_LANDING": f"s3a://{BUCKET}/on-a-cluster/landing",
        "TIDEMARK_CONNECTIONS": str(started.drivers / "connections.yaml"),
    }
    command = [sys.executable, "-m", "tests.cluster.child", json.dumps([started.cluster.workers[-1]])]
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=PROJECT)
    assert process.returncode == 0, process.stderr
    return Ran(json.loads(process.stdout), process.stderr, (started.folder / "server.log").read_text())


@pytest.fixture
def local(spark: SparkSession, tmp_path: Path) -> dict[str, Any]:
    """The same batches on local files in the tests' session. A kill, maintenance or a rebuild changes no result, so there is none."""
    settings = Settings(lake=str(tmp_path / "lake"))  # pyright: ignore[reportCallIssue]
    engine = make_engine(settings, child.PIPELINE, lambda: spark)
    child.begin(engine)
    child.complete(engine)
    return child.seen(engine)


def test_an_interrupted_run_on_a_cluster_that_loses_a_worker_equals_the_run_in_one_process(ran: Ran, local: dict[str, Any]):
    assert ran.errors.count("killed a worker") == 1, ran.errors
    assert local["rows"].keys() == {"events/l", "events/r", "pairs", "totals"}
    for part, expected in local.items():
        assert ran.seen[part] == json.loads(json.dumps(expected)), part
    assert local["holds"].keys() == local["accounts"].keys() == {"pairs", "totals"}
    assert {*local["holds"].values(), local["status"]} == {True}
    assert local["late"]
    assert {"k": "é x", "n": 2, "most": 1} in local["query"]


def test_workers_need_no_folder_of_the_driver(ran: Ran):
    if not hides_folders():
        pytest.skip("this user may not hide folders from the workers (unshare --mount)")
    assert ran.seen["rows"]


def test_objects_are_listed_in_the_states_that_spark_sees(ran: Ran):
    listed = ran.printed["listings"]
    assert len(listed["by_spark"]) == 2
    assert listed["by_pages"] == [listed["by_spark"][1]]  # the first file is in the ledger


def test_every_commit_is_a_conditional_put(ran: Ran):
    commits = _COMMIT.findall(ran.requests)
    assert len(commits) > 20
    assert set(commits) == {"if-none-match=*"}


def test_sparks_log_store_refuses_another_commit_of_a_version(ran: Ran):
    assert ran.printed["log_store"] == ["written", "written", "java.nio.file.FileAlreadyExistsException"]


def test_a_file_that_the_store_refuses_is_not_quarantined(ran: Ran):
    error, quarantined = ran.printed["refused"]
    assert "1 file could not be read" in error
    assert "The cause is the machine, the store or the network, not the content" in error
    assert quarantined == "0"


def test_credentials_are_neither_logged_nor_on_a_command_line(ran: Ran):
    assert not ran.printed["secret_is_visible"]
    for secret in (ACCESS_KEY, SECRET_KEY):
        assert secret not in ran.errors + json.dumps(ran.printed)


@dg.op
def launch(context: dg.OpExecutionContext, pipes: dg.PipesSubprocessClient) -> None:
    options = ["--properties-file", os.environ["SUBMIT_OPTIONS"]]
    command = [str(BIN / "spark-submit"), *options, str(PROJECT / "platform_defs/submit/tidemark.py"), "pipes"]
    log_reported(context, pipes.run(command=command, context=context, cwd=str(PROJECT)))


@dg.job(resource_defs={"pipes": dg.ResourceDefinition.hardcoded_resource(dg.PipesSubprocessClient())})
def launched() -> None:
    launch()


def test_a_process_launched_by_pipes_on_a_cluster_reports_days_and_the_law(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Dagster Pipes starts `tidemark pipes` by `spark-submit`, and the Dagster run gets its events."""
    landing = tmp_path / "lake/landing/l"
    landing.mkdir(parents=True)
    (landing / "1.jsonl").write_text("".join(f"{Event('a', n, n * HOUR).line}\n" for n in range(30)))
    for name, text in {"pipeline.py": PIPELINE, "connections.yaml": SPARK}.items():
        (tmp_path / name).write_text(text)
    settings = started.environment() | {
        "TIDEMARK_LAKE": str(tmp_path / "lake"),
        "TIDEMARK_PIPELINE": str(tmp_path / "pipeline.py"),
        "TIDEMARK_CONNECTIONS": str(tmp_path / "connections.yaml"),
        "TIDEMARK_SHARED_FOLDERS": "true",
        "SUBMIT_OPTIONS": str(tmp_path / "submit.conf"),
        "PYSPARK_PYTHON": sys.executable,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cluster_commands, "settings", Settings)
    printed = CliRunner().invoke(cluster_commands.app, ["spark-config"])
    assert printed.exit_code == 0, printed.output
    (tmp_path / "submit.conf").write_text(printed.stdout)
    earlier = _applications(started)
    with dg.DagsterInstance.ephemeral() as instance:
        run = launched.execute_in_process(instance=instance)
        assert run.success
        assert instance.get_materialized_partitions(dg.AssetKey("windows")) == {"2026-03-01", "2026-03-02"}
        assert instance.get_latest_materialization_event(dg.AssetKey(["events", "l"])) is not None
        law = dg.AssetCheckKey(dg.AssetKey("windows"), "conservation_law")
        [record] = instance.event_log_storage.get_latest_asset_check_execution_by_key([law]).values()
        assert record.status.value == "SUCCEEDED"
    assert _applications(started) == earlier + 1


def _applications(started: Started) -> int:
    """How many drivers have used the cluster."""
    return (started.folder / "workers/master.Master.log").read_text().count("Registered app tidemark")
