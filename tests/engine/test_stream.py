"""The stream: files found once whatever becomes of the checkpoint, by whichever name of their folder, however old; one stream at a time."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

from platform_defs.engine import Engine, IngestError, stream
from platform_defs.engine.ingest import Ingest
from platform_defs.engine.ledger import Entry
from platform_defs.resources.errors import LakeBusy
from platform_defs.resources.files import listing
from platform_defs.resources.lake import Lake
from tests.conftest import MakeEngine
from tests.support.clock import NOON, Clock
from tests.support.shopkeeping import DAY, HOUR, MINUTE, START, Event, join, land, rows_of, source


def test_the_same_files_after_a_lost_checkpoint_come_in_once(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine([source("l"), source("r")], [])
    land(engine, "l", "ä 1.jsonl", [Event("a", 1, 0).line])
    land(engine, "r", "1.jsonl", [Event("a", 1, 0).line])
    assert len(engine.let_in()) == 1
    assert engine.let_in() == []
    version = engine.lake.version("ledger")
    shutil.rmtree(tmp_path / "lake" / "_checkpoints")
    assert engine.let_in() == []
    assert engine.lake.version("ledger") == version
    shutil.rmtree(tmp_path / "lake" / "_checkpoints")
    land(engine, "l", "2.jsonl", [Event("b", 2, 0).line])
    [[said]] = make_engine([source("l"), source("r")], []).let_in()
    assert (said.source, said.seq, said.rows_read, len(said.offsets)) == ("l", 2, 1, 1)
    assert rows_of(engine.reading.log("l", 2), "seq", "k") == [(1, "a"), (2, "b")]
    assert rows_of(engine.reading.log("r", 2), "seq", "k") == [(1, "a")]


def test_a_checkpoint_that_a_killed_process_left_half_written_keeps_nothing_out(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine([source("l")], [])
    assert engine.let_in() == []
    halves = ["offsets/.0.0a1b.tmp", "metadata", "offsets/0", "sources/0/0", "commits/0"]
    for n, half in enumerate(halves):
        torn = _checkpoint(tmp_path) / half
        assert half.startswith("offsets/.") or torn.stat().st_size
        torn.write_bytes(b"")
        land(engine, "l", f"{n}.jsonl", [Event(half, n, 0).line])
        assert [s.accepted for [s] in engine.let_in()] == [1], half
        assert not torn.exists() or torn.stat().st_size, half
    assert rows_of(engine.reading.log("l", engine.ledger.head), "k") == [(half,) for half in sorted(halves)]


def test_what_is_no_fault_of_the_checkpoint_leaves_it_alone_and_is_raised_once(
    make_engine: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine([source("l")], [])
    land(engine, "l", "0.jsonl", [Event("a", 0, 0).line])
    assert len(engine.let_in()) == 1
    land(engine, "l", "1.jsonl", [Event("b", 1, 0).line])
    query, tried = (_checkpoint(tmp_path) / "metadata").read_text(), []

    def fail(*_: object) -> None:
        tried.append(1)
        raise PySparkException("the store is out of reach")

    for of, name in ((stream, "listing"), (Ingest, "files"), (stream._Query, "run")):
        with monkeypatch.context() as patched:
            patched.setattr(of, name, fail)
            with pytest.raises(PySparkException, match="out of reach"):
                engine.let_in()
    assert len(tried) == 3
    with engine.lake.writer(stream.place(engine.folders)), pytest.raises(LakeBusy, match=r"^ingest-\w+ has a writer already: process \d+ "):
        engine.let_in()
    assert [s.accepted for [s] in engine.let_in()] == [1]
    assert (_checkpoint(tmp_path) / "metadata").read_text() == query


def test_a_file_behind_a_link_comes_in_once_whichever_name_its_folder_goes_by(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine([source("l")], [])
    land(engine, "l", "1.jsonl", [Event("x", 1, 0).line])
    (tmp_path / "link").symlink_to(tmp_path / "landing")
    linked = replace(engine, folders={"l": str(tmp_path / "link/l")})
    [[said]] = linked.let_in()
    assert (said.rows_read, said.accepted, len(said.offsets)) == (1, 1, 1)
    assert linked.let_in() == engine.let_in() == []
    assert len(list((tmp_path / "lake/_checkpoints").iterdir())) == 1


def test_no_file_is_too_old_to_be_listed(spark: SparkSession, tmp_path: Path) -> None:
    listed: list[str] = []
    for name, days in (("new", 0), ("old", 5_000)):
        path = tmp_path / "in" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("a row")
        os.utime(path, ns=(0, (NOON - days * DAY) * 1_000_000))
        query = listing(spark, str(path.parent), "l", 9).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = query.foreachBatch(lambda batch, _: listed.extend(Path(row.path).name for row in batch.collect()))
        query.trigger(availableNow=True).start().awaitTermination()
    assert listed == ["new", "old"]


def test_a_folder_that_cannot_be_made_is_named_with_its_source(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("no folder")
    no_session: Any = None
    engine = Engine(Lake(str(tmp_path / "lake")), {"l": source("l")}, {}, lambda: no_session, folders={"l": str(tmp_path / "in/l")})
    with pytest.raises(IngestError, match=r"the folder .*/in/l of source 'l' cannot be used: Not a directory; legal: .*TIDEMARK_LANDING"):
        engine.let_in()


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("java.lang.IllegalStateException: Failed to read log file file:/lake/_checkpoints/0a1b2c/offsets/0. Incomplete log file", True),
        (
            "MismatchedInputException: No content\n\tat o.a.s.StreamMetadata$.read(StreamMetadata.scala)",
            True,
        ),
        ("The log file was malformed: failed to read correct log version from v0x.", True),
        ("java.net.SocketTimeoutException: connect timed out: s3a://landing/l", False),
        ("java.lang.OutOfMemoryError: Java heap space", False),
        ("[PATH_NOT_FOUND] Path does not exist: file:/lake/landing/l.", False),
    ],
)
def test_only_an_error_that_names_the_checkpoint_is_one_of_the_checkpoint(message: str, named: bool) -> None:
    assert stream._names_the_checkpoint(PySparkException(message), "/lake/_checkpoints/0a1b2c") is named


def _checkpoint(tmp_path: Path) -> Path:
    [found] = (tmp_path / "lake" / "_checkpoints").iterdir()
    return found


def test_a_stream_that_stays_records_a_silent_source_though_no_file_comes_and_calls_for_an_advance(
    make_engine: MakeEngine, clock: Clock
) -> None:
    engine = make_engine([source("l"), source("r", idle_timeout="1 hour")], [join()])
    for name in ("l", "r"):
        land(engine, name, "1.jsonl", [Event("a", 1, 0).line])

    def on_entry(entry: Entry) -> None:
        if entry[0].kind == "silent":
            raise TimeoutError("seen")
        land(engine, "l", "2.jsonl", [Event("b", 2, HOUR).line]) if entry[0].seq == 1 else clock.pass_ms(2 * HOUR)

    with pytest.raises(TimeoutError, match="seen"):
        engine.let_in("1 second", on_entry)
    assert [[(s.source, s.kind, s.idle) for s in e] for e in engine.ledger.entries()][2:] == [[("r", "silent", True)]]
    assert engine.reading.operator_timeline(engine.assets["pairs"]).after[-1] == START + HOUR - MINUTE - 1
    assert engine.ingesting() is None


def test_an_interrupt_gives_the_writers_place_back_when_its_commit_has_ended(
    make_engine: MakeEngine, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, join_of, asked = make_engine([], []), InheritableThread.join, list[str | None]()

    def interrupted(thread: InheritableThread) -> None:
        asked.append(engine.lake.busy("t"))
        if len(asked) == 1:
            raise KeyboardInterrupt("by hand")
        join_of(thread)

    monkeypatch.setattr(InheritableThread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt, match="by hand"), engine.lake.writer("t"):
        engine.lake.overwrite(spark.range(3).toDF("n"), "t", {"note": "whole"})
    assert all("t has a writer already" in (busy or "") for busy in asked)
    assert len(asked) == 2
    commit = engine.lake.newest("t", "note")
    assert commit is not None
    assert (commit.version, commit.value, commit.rows) == (0, "whole", 3)
    assert engine.lake.busy("t") is None
