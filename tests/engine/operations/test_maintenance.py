"""Maintenance compacts files, loses no metadata, and does not disturb writers."""

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import obstore
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset
from platform_defs.engine import Engine
from platform_defs.engine.advance.running_queries import FOLDER
from platform_defs.engine.formats.connection_errors import ConnectionsError
from platform_defs.engine.ingest.stream import writer_name
from platform_defs.engine.ingest.uncommitted import ATTEMPT
from platform_defs.engine.inputs.changelog_reader import APPLIED
from platform_defs.engine.inputs.progress import PROGRESS
from platform_defs.engine.lake import compaction, merged_files, reads
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.interrupts import run_to_end
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.engine.operations.maintenance import Maintained, Maintenance, MaintenanceError
from tests.conftest import MakeEngine
from tests.support.bare_lake import bare_engine
from tests.support.clock import Clock
from tests.support.example_operators import RunningTotal
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import HOUR, Event, join, land, replay, rows_of, source

TOTAL = DerivedAsset(name="total", inputs=("l",), operator=RunningTotal())
KEYS = {
    "events/l": ATTEMPT,
    "quarantine/l": ATTEMPT,
    "events/r": ATTEMPT,
    "pairs": PROGRESS,
    TOTAL.changelog: PROGRESS,
    "total": APPLIED,
}
TABLES = [*KEYS, "ledger"]
RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


SOURCES = [source("l", unique_key=("k", "v")), source("r")]
ASSETS = [join(), TOTAL]


@pytest.fixture(scope="module")
def prepared_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake after two small micro-batches."""
    root = tmp_path_factory.mktemp("prepared_lake")
    folders = {s.name: str(root / "landing" / s.name) for s in SOURCES}
    named = {s.name: s for s in SOURCES}, {a.name: a for a in ASSETS}
    engine = Engine(Lake(str(root / "lake")), *named, lambda: spark, Clock(), folders=folders)
    for part in range(2):
        land(engine, "l", f"{part}.jsonl", [*[Event("a", n + 10 * part, part * HOUR + n).line for n in range(3)], "{cut"])
        land(engine, "r", f"{part}.jsonl", [Event("a", n, part * HOUR + n).line for n in range(2)])
        engine.ingest()
        for name in engine.assets:
            engine.advance(name)
    return root / "lake"


@pytest.fixture
def engine(prepared_lake: Path, make_engine: MakeEngine, tmp_path: Path) -> Engine:
    """An engine on a copy of the lake."""
    shutil.copytree(prepared_lake, tmp_path / "lake")
    return make_engine(SOURCES, ASSETS)


def content(engine: Engine) -> dict[str, object]:
    return {**json_rows_of({t: engine.views.table(t) for t in TABLES}), "batches": list(engine.ledger.batches())}


def commit_metadata(engine: Engine) -> dict[str, object]:
    return {t: (c.value, c.rows) for t, key in KEYS.items() if (c := engine.lake.newest_commit(t, key)) is not None}


def cut_history(engine: Engine) -> None:
    """Delete every Delta log file before the newest checkpoint, as Delta does after its log retention."""
    for table in TABLES:
        log = Path(engine.lake.path(table), "_delta_log")
        newest = max(int(f.name.split(".")[0]) for f in log.glob("*.checkpoint*.parquet"))
        for old in log.glob("*.json"):
            if int(old.stem) < newest:
                old.unlink()


def test_maintenance_compacts_files_and_changes_no_row_and_the_next_one_does_nothing(engine: Engine, make_engine: MakeEngine) -> None:
    """By default recent files are kept for readers. A retention of 0 hours deletes them."""
    before, known = content(engine), commit_metadata(engine)
    stale = Path(engine.lake.path("pairs"), "part-of-a-killed-writer.parquet")
    stale.write_bytes(b"left behind")
    os.utime(stale, (time.time() - 8 * 86_400,) * 2)
    compacted = {m.table: m for m in engine.maintain(small_files=2)}
    assert set(compacted) == {*TABLES, "quarantine/l"}
    assert {t: (m.after, m.left) for t, m in compacted.items()} == dict.fromkeys(compacted, (1, None))
    assert {t for t, m in compacted.items() if m.before > 1} >= {"events/l", "events/r", "quarantine/l", "ledger", TOTAL.changelog}
    assert {t: m.removed for t, m in compacted.items() if m.removed} == {"pairs": 1}
    assert not stale.exists()
    old = DeltaTable(engine.lake.path("pairs"), version=0)
    assert all(Path(uri.removeprefix("file://")).exists() for uri in old.file_uris())
    engine.spark.conf.set(RETENTION_CHECK, "true")
    done = {m.table: m for m in engine.maintain(small_files=2, retention_hours=0)}
    assert engine.spark.conf.get(RETENTION_CHECK) == "true", "a setting of the session is as before"
    assert {t: (m.before, m.after, m.left) for t, m in done.items()} == dict.fromkeys(compacted, (1, 1, None))
    assert [m for m in compacted.values() if m.before > 1 and done[m.table].removed < m.before] == []
    for table in TABLES:
        assert len([f for f in Path(engine.lake.path(table)).rglob("*.parquet") if "_delta_log" not in f.parts]) == 1, (
            "files that no version needs are deleted"
        )
        assert [f for f in Path(engine.lake.path(table)).glob("commit-*") if not any(f.iterdir())] == [], "and their folders"
    versions = {t: engine.lake.version(t) for t in TABLES}
    again = engine.maintain(small_files=2)
    assert again == [Maintained(t, 1, 1) for t in done]
    assert {t: engine.lake.version(t) for t in TABLES} == versions
    cut_history(engine)
    restarted = make_engine(SOURCES, ASSETS)
    assert content(restarted) == before
    assert commit_metadata(restarted) == known
    assert [restarted.advance(name) for name in restarted.assets] == [[], []], "no progress was lost"
    assert restarted.ingest() == []
    assert not [a for a in restarted.accounts.days("pairs") if not a.holds]


@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
def test_spark_compacts_only_tables_that_are_too_large_for_one_merge(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    tables, compacted_by_spark = ["events/l", TOTAL.changelog], list[Callable[[], object]]()

    def run(compact: Callable[[], object], spark: SparkSession) -> None:
        compacted_by_spark.append(compact)
        run_to_end(compact, spark)

    monkeypatch.setattr(compaction, "run_to_end", run)
    if is_large:
        monkeypatch.setattr(merged_files, "MOST_BYTES", 100)
    before = json_rows_of({table: engine.views.table(table) for table in tables})
    for table in tables:
        engine.lake.optimize(engine.spark, table)
    assert len(compacted_by_spark) == (len(tables) if is_large else 0)
    assert {len(DeltaTable(engine.lake.path(table)).file_uris()) for table in tables} == {1}
    assert json_rows_of({table: engine.views.table(table) for table in tables}) == before


def test_deletion_vectors_are_kept_after_the_retention(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine([source("l")], [TOTAL])
    for part, keys in enumerate(("abcdefgh", "a")):
        replay(engine, [{"l": [Event(k, 1 + part, part * HOUR) for k in keys]}])
        engine.advance("total")
        monkeypatch.setattr(reads, "SMALL_BYTES", 0)  # only large tables have deletion vectors
    folder, before = Path(engine.lake.path("total")), rows_of(engine.views.table("total"))
    stale = folder / "part-of-a-killed-writer.parquet"
    stale.write_bytes(b"left behind")
    vectors = list(folder.glob("deletion_vector_*.bin"))
    assert vectors, "the row of `a` is masked, and the other rows stay in their file"
    for path in folder.glob("*.*"):
        os.utime(path, (time.time() - 10 * 86_400,) * 2)
    assert {m.table: m.removed for m in engine.maintain()}["total"] == 1
    assert not stale.exists()
    assert all(path.exists() for path in vectors)
    assert rows_of(engine.views.table("total")) == before


def test_commit_metadata_is_kept_after_commits_of_other_programs_and_a_truncated_log(engine: Engine) -> None:
    known = commit_metadata(engine)
    engine.lake.optimize(engine.spark, "pairs")
    for _ in range(3):
        DeltaTable(engine.lake.path("pairs")).delete("k = 'nobody'")
        DeltaTable(engine.lake.path("events/l")).alter.set_table_description(f"{time.time()}")
    engine.maintain()
    cut_history(engine)
    assert commit_metadata(engine) == known


def test_maintenance_skips_a_table_with_a_concurrent_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, rows, no_session = Lake(str(tmp_path / "lake")), pa.table({"n": [1]}), cast(Any, None)
    progress = CommitProperties(custom_metadata={"userMetadata": json.dumps({PROGRESS: {"step": 1}})})
    for properties in (progress, None):
        write_deltalake(lake.path("pairs"), rows, mode="append", commit_properties=properties)
    maintenance = Maintenance(no_session, lake, Ledger(lake, Clock()), {}, {"pairs": join()})
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "check_leases", lambda _: write_deltalake(lake.path("pairs"), rows, mode="append"))
        [done] = maintenance()
    assert (done.table, done.left is None) == ("pairs", False)
    assert maintenance() == [Maintained("pairs", 3, 3)]
    newest = lake.newest_commit("pairs", PROGRESS)
    assert newest is not None
    assert (newest.value, newest.version) == ({"step": 1}, lake.version("pairs"))


def test_a_table_that_fails_or_has_a_writer_is_reported_and_the_others_are_maintained(engine: Engine) -> None:
    lost, *_ = sorted(Path(engine.lake.path("events/l")).rglob("part-*.parquet"))
    lost.unlink()
    log = Path(engine.lake.path("pairs"), "_delta_log")
    newer = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["nobodyKnowsThisOne"]}
    newest = max(int(f.stem) for f in log.glob("*.json"))
    (log / f"{newest + 1:020}.json").write_text(json.dumps({"protocol": newer}))
    with engine.lake.writer("total"):
        done = {m.table: m for m in engine.maintain(small_files=1, retention_hours=0)}
    for table in ("total", TOTAL.changelog):
        assert "total has a writer already: process" in (done[table].left or "")
        assert done[table] == Maintained(table, left=done[table].left)
    assert {t for t, m in done.items() if m.left} == {"total", TOTAL.changelog}
    assert lost.name in (done["events/l"].failed or "")
    assert "nobodyKnowsThisOne" in (done["pairs"].failed or "")
    assert {t for t, m in done.items() if m.failed} == {"events/l", "pairs"}
    maintained = [m for m in done.values() if not m.failed and not m.left]
    assert {m.after for m in maintained} == {1}
    assert {m.table for m in maintained if m.before > 1} >= {"events/r", "quarantine/l", "ledger"}
    assert [m for m in maintained if m.before > 1 and m.removed < m.before] == [], "files are deleted by the maintenance that replaces them"
    with pytest.raises(MaintenanceError, match=r"2 of the lake's tables could not be maintained.*events/l: .*; pairs: "):
        MaintenanceError.check(done.values())


@pytest.fixture(scope="module")
def marked_table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a deletion vector."""
    path = tmp_path_factory.mktemp("marked") / "marked"
    spark.range(0, 9, 1, 1).toDF("k").write.format("delta").option("delta.enableDeletionVectors", "true").save(str(path))
    spark.sql(f"DELETE FROM delta.`{path}` WHERE k = 1")
    return path


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_vacuum_deletes_no_file_of_a_table_in_a_subfolder(spark: SparkSession, tmp_path: Path, marked_table: Path, scheme: str) -> None:
    """A table at `events` above the log `events/orders`: a full vacuum would delete the log's files."""
    lake, rows = Lake(f"{scheme}{tmp_path}"), pa.table({"k": [1]})
    for table in ("events", "events/orders", "total"):
        write_deltalake(lake.path(table), rows, mode="append")
        write_deltalake(lake.path(table), rows, mode="overwrite")
    shutil.copytree(marked_table, tmp_path / "marked")
    write_deltalake(lake.path("marked/below"), rows)
    for below, _, names in os.walk(tmp_path):
        for name in names:
            os.utime(Path(below, name), (1.0, 1.0))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    found = {table: lake.count_unneeded_files(spark, table, 0) for table in ("events", "events/orders", "total", "marked")}
    for table in found:
        lake.vacuum(spark, table, 0)
    deleted = {path for path in before if not path.exists() and not path.name.endswith(".crc")}
    assert found == {"events": 1, "events/orders": 1, "total": 1, "marked": 0}
    assert sorted(str(path.parent.relative_to(tmp_path)) for path in deleted) == ["events", "events/orders", "total"]
    assert DeltaTable(lake.path("events/orders")).to_pyarrow_table().to_pylist() == [{"k": 1}]
    assert lake.read(spark, "marked/below").count() == 1


def test_one_process_maintains_a_lake_at_a_time(engine: Engine) -> None:
    with engine.lake.writer("maintenance", "maintenance"), pytest.raises(LakeError, match="maintenance has a writer already"):
        engine.maintain()


def test_a_writer_continues_during_maintenance(engine: Engine, make_engine: MakeEngine) -> None:
    stop, failed, rounds = threading.Event(), list[BaseException](), list[int]()

    def maintain() -> None:
        try:
            while not stop.is_set():
                rounds.append(len(engine.maintain(small_files=1, retention_hours=1)))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=maintain)
    thread.start()
    try:
        writer = make_engine(SOURCES, ASSETS)
        land(writer, "l", "new.jsonl", [Event("a", 5, 5 * HOUR).line])
        assert len(writer.ingest()) == 1
        for name in writer.assets:
            writer.advance(name)
    finally:
        stop.set()
        thread.join()
    assert failed == []
    assert rounds
    assert not [a for a in writer.accounts.days("pairs") if not a.holds]
    assert writer.accounts.count_differences("pairs") == {}


def test_the_files_of_queries_of_a_killed_stream_are_deleted_unless_a_stream_runs(engine: Engine) -> None:
    left = [Path(engine.lake.path(f"{FOLDER}/{table}/a1/input/rows.parquet")) for table in ("pairs", "of_an_earlier_pipeline")]
    for file in left:
        file.parent.mkdir(parents=True)
        file.write_text("rows")
    maintain = Maintenance(engine.spark, engine.lake, engine.ledger, {}, {}, folders=engine.folders)
    assert [done.table for done in maintain()] == ["ledger"], "a stream that is not found may use new files"
    for file in left:
        os.utime(file, (0, time.time() - 3700))
    with engine.lake.writer(writer_name(engine.folders)):
        assert [done.table for done in maintain()] == ["ledger"]
        assert all(file.exists() for file in left), "its queries may run, also between two steps"
    with engine.lake.writer("pairs"):
        [ledger, other, busy] = maintain()
    assert (ledger.table, other) == ("ledger", Maintained(f"{FOLDER}/of_an_earlier_pipeline", removed=1))
    assert (busy.table, busy.removed, "writer" in str(busy.left)) == (f"{FOLDER}/pairs", 0, True)
    assert maintain()[1:] == [Maintained(f"{FOLDER}/pairs", removed=1)]
    assert engine.lake.folders(FOLDER) == []


REFUSED = "403: <Error><Code>AccessDenied</Code><Message>No.</Message><AWSAccessKeyId>AKIA1</AWSAccessKeyId></Error>"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionsError.no_variable("THE_KEY"), r"ConnectionsError: .*variable THE_KEY, which is not set.*"),
        (pa.ArrowInvalid("a has other columns"), "ArrowInvalid: a has other columns"),
        (obstore.exceptions.GenericError("503 Slow Down"), "GenericError: 503 Slow Down"),
        (DeltaError(REFUSED), "DeltaError: AccessDenied: No."),
        (OSError(REFUSED), "OSError: AccessDenied: No."),
    ],
    ids=["secret", "columns", "store", "delta", "os"],
)
def test_an_error_stops_the_maintenance_of_its_table_only_and_is_reported_without_keys(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def maintain(_: Maintenance, table: Any) -> Maintained:
        if table.name == "events/l":
            raise error
        return Maintained(table.name)

    monkeypatch.setattr(Maintenance, "_maintain_existing", maintain)
    engine = bare_engine(tmp_path, clock, [source("l")], [])
    done = Maintenance(cast(Any, None), engine.lake, engine.ledger, engine.sources, engine.assets)()
    failed = {m.table: m.failed for m in done if m.failed}
    assert [*failed] == ["events/l"]
    assert re.fullmatch(reason, failed["events/l"] or "")
    assert "ledger" in {m.table for m in done}
