"""Dagster Pipes starts `tidemark pipes` by `spark-submit` on a standalone cluster, and its run gets the events."""

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from platform_defs.settings import PROJECT
from platform_defs.stream.pipes import log_reported
from tests.support.cluster import SMALL_EXECUTORS, cluster
from tests.support.small_sources import HOUR, Event

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore:.*expected_writer_count")]
PIPELINE = """
from assets.contracts import DerivedAsset
from assets.pipeline import Pipeline
from operators import Tumbling, WindowedAggregate
from tests.support.small_sources import source

windows = WindowedAggregate(by="k", window=Tumbling(size="10 minutes"), aggregates={"n": "count(*)"})
pipeline = Pipeline(sources=[source("l")], tables=[DerivedAsset(name="windows", inputs=("l",), operator=windows)])
"""
BIN = Path(sys.executable).parent


@dg.op
def launch(context: dg.OpExecutionContext, pipes: dg.PipesSubprocessClient) -> None:
    options = ["--properties-file", os.environ["SUBMIT_OPTIONS"]]
    command = [str(BIN / "spark-submit"), *options, str(PROJECT / "platform_defs/submit/tidemark.py"), "pipes"]
    log_reported(context, pipes.run(command=command, context=context, cwd=str(PROJECT)))


@dg.job(resource_defs={"pipes": dg.ResourceDefinition.hardcoded_resource(dg.PipesSubprocessClient())})
def launched() -> None:
    launch()


def test_a_launched_process_on_a_cluster_reports_days_and_the_law(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    landing = tmp_path / "lake/landing/l"
    landing.mkdir(parents=True)
    (landing / "1.jsonl").write_text("".join(f"{Event('a', n, n * HOUR).line}\n" for n in range(30)))
    for name, text in {"pipeline.py": PIPELINE, "connections.yaml": SMALL_EXECUTORS}.items():
        (tmp_path / name).write_text(text)
    with cluster(tmp_path / "cluster", workers=1) as started, dg.DagsterInstance.ephemeral() as instance:
        settings = {
            "TIDEMARK_LAKE": str(tmp_path / "lake"),
            "TIDEMARK_PIPELINE": str(tmp_path / "pipeline.py"),
            "TIDEMARK_CONNECTIONS": str(tmp_path / "connections.yaml"),
            "TIDEMARK_SPARK_MASTER": started.master,
            "TIDEMARK_SHARED_FOLDERS": "true",
            "TIDEMARK_DRIVER_MEMORY": "1g",
            "SUBMIT_OPTIONS": str(tmp_path / "submit.conf"),
            "PYSPARK_PYTHON": sys.executable,
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        printed = subprocess.run([str(BIN / "tidemark"), "spark-config"], capture_output=True, text=True, check=True, cwd=PROJECT)
        (tmp_path / "submit.conf").write_text(printed.stdout)
        run = launched.execute_in_process(instance=instance)
        assert run.success
        assert instance.get_materialized_partitions(dg.AssetKey("windows")) == {"2026-03-01", "2026-03-02"}
        assert instance.get_latest_materialization_event(dg.AssetKey(["events", "l"])) is not None
        law = dg.AssetCheckKey(dg.AssetKey("windows"), "conservation_law")
        [record] = instance.event_log_storage.get_latest_asset_check_execution_by_key([law]).values()
        assert record.status.value == "SUCCEEDED"
    assert "Registered app tidemark" in (tmp_path / "cluster/master.Master.log").read_text()
