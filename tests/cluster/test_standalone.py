"""A pipeline's whole run on a standalone cluster, with the lake in S3 and a worker that is killed: it equals the run in one process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from platform_defs.configured_engine import make_engine
from platform_defs.engine.lake import small_queries
from platform_defs.settings import PROJECT, Settings
from tests.cluster import child
from tests.support.cluster import SMALL_EXECUTORS, cluster, hides_folders
from tests.support.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, s3_server

pytestmark = [pytest.mark.cluster, pytest.mark.s3]
SPARK = f"""{SMALL_EXECUTORS}
  spark.shuffle.io.maxRetries: "1"
  spark.shuffle.io.retryWait: 100ms
  spark.sql.leafNodeDefaultParallelism: "2"
"""


@dataclass(frozen=True)
class Ran:
    """What the process on the cluster printed, and its errors."""

    seen: dict[str, Any]
    errors: str


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("cluster")
    mine = folder / "mine"
    mine.mkdir()
    with s3_server(folder / "server.log") as server, cluster(folder / "workers", 1, hidden=[mine, PROJECT / ".tidemark"]) as started:
        workers = [started.start_worker()]
        (mine / "connections.yaml").write_text(server.connections + SPARK)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TIDEMARK_"))} | {
            "KEY_OF_THE_LAKE": ACCESS_KEY,
            "SECRET_OF_THE_LAKE": SECRET_KEY,
            "TIDEMARK_SPARK_MASTER": started.master,
            "TIDEMARK_LAKE": f"s3a://{BUCKET}/on-a-cluster/lake",
            "TIDEMARK_LANDING": f"s3a://{BUCKET}/on-a-cluster/landing",
            "TIDEMARK_CONNECTIONS": str(mine / "connections.yaml"),
            "TIDEMARK_DRIVER_MEMORY": "1g",
            "TIDEMARK_SHUFFLE_PARTITIONS": "2",
            "TMPDIR": str(mine),
        }
        command = [sys.executable, "-m", "tests.cluster.child", json.dumps(workers)]
        process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=PROJECT)
        assert process.returncode == 0, process.stderr
        yield Ran(json.loads(process.stdout), process.stderr)


@pytest.fixture
def local(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The same run in the session of the tests."""
    monkeypatch.setattr(small_queries, "SMALL_INPUT_BYTES", small_queries.SMALL_INPUT_BYTES)
    settings = Settings(lake=str(tmp_path / "lake"))  # pyright: ignore[reportCallIssue]
    engine = make_engine(settings, child.PIPELINE, lambda: spark)
    child.run(engine)
    return child.seen(engine)


def test_a_run_on_a_cluster_that_loses_a_worker_equals_the_run_in_one_process(ran: Ran, local: dict[str, Any]):
    assert ran.errors.count("killed a worker") == 1, ran.errors
    assert local["rows"].keys() == {"events/l", "events/r", "pairs", "sums", "totals"}
    for part, expected in local.items():
        assert ran.seen[part] == expected, part
    assert set(local["holds"].values()) == {True}
    assert local["late"] > 0


def test_workers_need_no_folder_of_the_driver(ran: Ran):
    if not hides_folders():
        pytest.skip("this user may not hide folders from the workers (unshare --mount)")
    assert ran.seen["rows"]
