"""`Sandbox`, with which users test their pipelines. No test starts Spark; examples and the template run it."""

from pathlib import Path

import pytest

from assets.pipeline import Pipeline
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.testing import Sandbox
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


def test_a_file_of_an_unknown_source_is_refused_with_the_near_one(tmp_path: Path) -> None:
    pipeline = Pipeline(sources=[source("orders")], tables=[])
    with pytest.raises(IngestError, match=r"no source is named 'oders'; the sources: orders; did you mean 'orders'\?"):
        Sandbox(pipeline, tmp_path).land("oders", "1.jsonl", "{}")
