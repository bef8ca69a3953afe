"""The stream finds files of any age, each once, under whatever path its folder is given; one stream runs at a time."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

from platform_defs.engine import Engine, IngestError
from platform_defs.engine.ingest import stream
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.ingest import Ingest
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.inputs.timelines import operator_timeline
from platform_defs.engine.lake.errors import LakeBusy
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Batch
from tests.conftest import MakeEngine
from tests.support.clock import NOON, Clock
from tests.support.small_sources import DAY, HOUR, MINUTE, START, Event, join, land, rows_of, source


def test_a_file_is_ingested_by_one_process_only(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l"), source("r")], [])
    land(engine, "l", "ä 1.jsonl", [Event("a", 1, 0).line])
    land(engine, "r", "1.jsonl", [Event("a", 1, 0).line])
    assert len(engine.ingest()) == 1
    assert engine.ingest() == []
    version = engine.lake.version("ledger")
    other = make_engine([source("l"), source("r")], [])
    assert other.ingest() == []
    assert engine.lake.version("ledger") == version
    land(engine, "l", "2.jsonl", [Event("b", 2, 0).line])
    [[ingested]] = other.ingest()
    assert (ingested.source, ingested.seq, ingested.rows_read, len(ingested.offsets)) == ("l", 2, 1, 1)
    assert engine.ingest() == []
    assert rows_of(read_log(engine.workspace, "l", 2), "seq", "k") == [(1, "a"), (2, "b")]
    assert rows_of(read_log(engine.workspace, "r", 2), "seq", "k") == [(1, "a")]


def test_a_micro_batch_takes_max_files_of_each_source_oldest_first(make_engine: MakeEngine) -> None:
    engine = replace(make_engine([source("l"), source("r")], []), max_files=2)
    for name, count in (("l", 5), ("r", 3)):
        for n in range(count):
            file = land(engine, name, f"{9 - n}.jsonl", [Event(str(n), 1, 0).line])
            os.utime(file, ns=(0, (NOON + n) * 1_000_000))
    batches = engine.ingest()
    assert [{s.source: len(s.offsets) for s in batch} for batch in batches] == [{"l": 2, "r": 2}, {"l": 2, "r": 1}, {"l": 1}]
    assert rows_of(read_log(engine.workspace, "l", 9), "seq", "k") == [(1, "0"), (1, "1"), (2, "2"), (2, "3"), (3, "4")]


def test_an_error_blocks_no_later_ingest_and_one_process_ingests_at_a_time(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine([source("l")], [])
    land(engine, "l", "1.jsonl", [Event("b", 1, 0).line])

    def fail(*_: object) -> None:
        raise PySparkException("the store is unreachable")

    with monkeypatch.context() as patched:
        patched.setattr(Ingest, "files", fail)
        with pytest.raises(PySparkException, match="unreachable"):
            engine.ingest()
    name = stream.writer_name(engine.folders)
    with engine.lake.writer(name), pytest.raises(LakeBusy, match=r"^ingest-\w+ has a writer already: process \d+ "):
        engine.ingest()
    assert [s.accepted for [s] in engine.ingest()] == [1]


def test_a_file_is_ingested_once_under_every_path_to_its_folder(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine([source("l")], [])
    land(engine, "l", "1.jsonl", [Event("x", 1, 0).line])
    (tmp_path / "link").symlink_to(tmp_path / "landing")
    linked = replace(engine, folders={"l": str(tmp_path / "link/l")})
    [[ingested]] = linked.ingest()
    assert (ingested.rows_read, ingested.accepted, len(ingested.offsets)) == (1, 1, 1)
    assert linked.ingest() == engine.ingest() == []
    assert stream.writer_name(linked.folders) == stream.writer_name(engine.folders)


def test_old_files_are_ingested(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [])
    for name, days in (("new", 0), ("old", 5_000)):
        os.utime(land(engine, "l", f"{name}.jsonl", [Event(name, 1, 0).line]), ns=(0, (NOON - days * DAY) * 1_000_000))
        assert [s.accepted for [s] in engine.ingest()] == [1]
    assert rows_of(read_log(engine.workspace, "l", 9), "k") == [("new",), ("old",)]


def test_an_unlistable_folder_is_an_error_after_the_other_sources_are_ingested(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine([source("l")], [])
    file = land(engine, "l", "1.jsonl", [Event("a", 1, 0).line])
    bad = file.parent / "bad"
    bad.mkdir()
    (bad / "2.jsonl").write_text(Event("b", 1, 0).line + "\n")
    scandir = os.scandir

    def fail(path: str) -> object:
        if path == str(bad):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", fail)
        with pytest.raises(UnreadError, match=rf"{bad} cannot be listed: Permission denied") as raised:
            engine.ingest()
    assert [s.accepted for [s] in raised.value.batches] == [1]
    assert rows_of(read_log(engine.workspace, "l", 9), "k") == [("a",)]
    failed = engine.failures.of_source("l")
    assert failed is not None
    assert failed.message == f"{bad} cannot be listed: Permission denied"
    assert [s.accepted for [s] in engine.ingest()] == [1]
    assert engine.failures.of_source("l") is None


def test_a_missing_folder_given_as_a_uri_has_no_files(make_engine: MakeEngine, tmp_path: Path) -> None:
    folder = tmp_path / "later"
    engine = replace(make_engine([source("l")], []), folders={"l": f"file://{tmp_path}/later"})
    assert engine.ingest() == []
    folder.mkdir()
    assert engine.ingest() == []
    (folder / "1.jsonl").write_text(Event("a", 1, 0).line + "\n")
    assert [s.accepted for [s] in engine.ingest()] == [1]
    assert engine.ingest() == []


def test_a_store_that_does_not_answer_is_an_error_after_the_other_sources_are_ingested(
    make_engine: MakeEngine, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The other source is read by Spark's listing too. Port 1 refuses the connection."""
    folders = {"l": f"file://{tmp_path}/in/l", "r": "hdfs://127.0.0.1:1/in/r"}
    engine = replace(make_engine([source("l"), source("r")], []), folders=folders)
    spark.conf.set("ipc.client.connect.max.retries", "0")
    request.addfinalizer(lambda: spark.conf.unset("ipc.client.connect.max.retries"))
    file = tmp_path / "in/l/day=1/1.jsonl"
    for path in (file, file.parent / "_hidden.jsonl", file.parent.parent / "_day=2/2.jsonl"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Event("a", 1, 0).line + "\n")
    with pytest.raises(UnreadError, match=r"^hdfs://127\.0\.0\.1:1/in/r cannot be listed: java\.net\.ConnectException") as raised:
        engine.ingest()
    [[ingested]] = raised.value.batches
    assert (ingested.source, ingested.accepted, ingested.quarantined) == ("l", 1, 0)
    failed = {name: engine.failures.of_source(name) for name in "lr"}
    assert (failed["l"], failed["r"] is not None) == (None, True)


def test_a_folder_in_a_store_without_its_jars_is_refused(make_engine: MakeEngine) -> None:
    engine = replace(make_engine([source("l")], []), folders={"l": "gs://bucket/l"})
    with pytest.raises(IngestError, match=r"^the folder gs://bucket/l of source 'l' cannot be used") as raised:
        engine.ingest()
    assert str(raised.value) == (
        "the folder gs://bucket/l of source 'l' cannot be used: Spark has no file system for it "
        "(org.apache.hadoop.fs.UnsupportedFileSystemException). Nothing was ingested. "
        "Legal: a folder on this machine, an s3a:// URI once `make setup-s3` has fetched its JARs, or another store whose JARs "
        "TIDEMARK_CONNECTIONS lists (not tested); set TIDEMARK_LANDING"
    )


def test_a_folder_that_cannot_be_created_is_named_with_its_source(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("no folder")
    no_session: Any = None
    engine = Engine(Lake(str(tmp_path / "lake")), {"l": source("l")}, {}, lambda: no_session, folders={"l": str(tmp_path / "in/l")})
    with pytest.raises(IngestError, match=r"the folder .*/in/l of source 'l' cannot be used: Not a directory; legal: .*TIDEMARK_LANDING"):
        engine.ingest()


def test_a_running_stream_records_an_idle_source_and_requests_an_advance(make_engine: MakeEngine, clock: Clock) -> None:
    engine = make_engine([source("l"), source("r", idle_timeout="1 hour")], [join()])
    for name in ("l", "r"):
        land(engine, name, "1.jsonl", [Event("a", 1, 0).line])

    def on_batch(batch: Batch) -> None:
        if batch[0].kind == "inactive":
            raise TimeoutError("seen")
        land(engine, "l", "2.jsonl", [Event("b", 2, HOUR).line]) if batch[0].seq == 1 else clock.pass_ms(2 * HOUR)

    with pytest.raises(TimeoutError, match="seen"):
        engine.ingest("1 second", on_batch)
    assert [[(s.source, s.kind, s.idle) for s in e] for e in engine.ledger.batches()][2:] == [[("r", "inactive", True)]]
    assert operator_timeline(engine.workspace, engine.assets["pairs"]).after[-1] == START + HOUR - MINUTE - 1
    assert engine.ingestion.current_writer() is None


def test_an_interrupt_releases_the_lock_after_the_commit(
    make_engine: MakeEngine, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, join_thread, holders = make_engine([], []), InheritableThread.join, list[str | None]()

    def interrupted(thread: InheritableThread) -> None:
        holders.append(engine.lake.current_writer("t"))
        if len(holders) == 1:
            raise KeyboardInterrupt("by hand")
        join_thread(thread)

    monkeypatch.setattr(InheritableThread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt, match="by hand"), engine.lake.writer("t"):
        engine.lake.overwrite(spark.range(3).toDF("n"), "t", {"note": "whole"}, deletion_vectors=True)
    assert all("t has a writer already" in (busy or "") for busy in holders)
    assert len(holders) == 2
    commit = engine.lake.newest_commit("t", "note")
    assert commit is not None
    assert (commit.version, commit.value, commit.rows) == (0, "whole", 3)
    assert engine.lake.current_writer("t") is None
