"""`Sandbox`, with which users test their pipelines. No test starts Spark; the examples and the template run a sandbox with Spark."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

from assets.pipeline import Pipeline
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.testing import FolderNotEmpty, Sandbox
from tests.support.small_sources import join, source

PIPELINE = Pipeline(sources=[source("l"), source("r")], tables=[join()])
CONNECTIONS = """
kafka:
  options: {kafka.bootstrap.servers: "broker:9092"}
  sources: {l: {options: {subscribe: orders}}}
  sinks: {pairs: {topic: pairs}, of_another_pipeline: {topic: others}}
"""


def test_a_sandbox_has_no_topics_whatever_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "connections.yaml").write_text(CONNECTIONS)
    monkeypatch.setenv("TIDEMARK_CONNECTIONS", str(tmp_path / "connections.yaml"))
    engine = Sandbox(PIPELINE, tmp_path / "sandbox").engine
    assert (engine.topics, engine.sinks) == ({}, {})


def test_a_file_of_an_unknown_source_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    pipeline = Pipeline(sources=[source("orders")], tables=[])
    with pytest.raises(IngestError, match=r"no source is named 'oders'; the sources: orders; did you mean 'orders'\?"):
        Sandbox(pipeline, tmp_path).land("oders", "1.jsonl", "{}")


def test_a_folder_that_has_a_lake_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    with pytest.raises(FolderNotEmpty, match=r"which has a lake already; legal: an empty folder\. Delete it"):
        Sandbox(PIPELINE, tmp_path)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_times_are_in_utc_whatever_the_time_zone_of_the_machine(tmp_path: Path) -> None:
    sandbox = Sandbox(PIPELINE, tmp_path)
    utc = datetime.fromisoformat("2026-03-01T10:00:00")
    schema = StructType().add("at", "timestamp").add("local", "timestamp_ntz").add("amount", "decimal(4,2)")
    local = schema["at"].dataType.fromInternal(1_772_359_200_000_000)
    assert local == utc + timedelta(hours=1)
    frame = SimpleNamespace(schema=schema, collect=lambda: [(local, utc, Decimal("1.50")), (None, None, None)])
    sandbox.engine = cast(Any, SimpleNamespace(views=SimpleNamespace(table=lambda _: frame)))
    assert sandbox.rows("t") == [(utc, utc, 1.5), (None, None, None)]
