"""A full disk, a read-only lake and a newer lake: there is one clear error and no partial work, and a later run continues."""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset
from platform_defs.engine import Engine
from platform_defs.engine.inputs.progress import PROGRESS
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import FORMAT, Ledger
from platform_defs.engine.ledger.store import SUMMARY_FORMAT
from tests.support.clock import Clock
from tests.support.example_operators import RunningTotal
from tests.support.small_sources import Event, land, rows_of, source

TOTAL = DerivedAsset(name="total", inputs=("l",), operator=RunningTotal())


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine does not allow mounts: {done.stderr.strip()}")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _engine(spark: SparkSession, lake: Path, landing: Path) -> Engine:
    return Engine(Lake(str(lake)), {"l": source("l")}, {}, lambda: spark, Clock(), folders={"l": str(landing)})


def _fill(ballast: Path) -> None:
    """Fill the file system that contains a file."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096):
            pass


def test_the_errors_of_a_full_disk_and_a_read_only_lake_name_the_cause(spark: SparkSession, small: Path, tmp_path: Path) -> None:
    engine = _engine(spark, small / "lake", tmp_path / "in")
    land(engine, "l", "1.jsonl", [Event("a", 1, 0).line])
    engine.ingest()
    ballast = small / "ballast"
    _fill(ballast)
    land(engine, "l", "2.jsonl", [Event("b", 2, 0).line])
    with pytest.raises(
        LakeError, match=r"no space is left for the lake .*Free some space, or enlarge the disk or the quota, and run again"
    ):
        engine.ingest()
    ballast.unlink()

    closed = tmp_path / "closed"
    closed.mkdir()
    _mount("--bind", str(small), str(closed))
    try:
        _mount("-o", "remount,ro,bind", str(closed))
        with pytest.raises(LakeError, match=r"the lake .*closed/lake cannot be written to: it is read-only; legal: .*choose another lake"):
            _engine(spark, closed / "lake", tmp_path / "in").ingest()
    finally:
        subprocess.run(["umount", "-l", str(closed)], check=True)

    restarted = _engine(spark, small / "lake", tmp_path / "in")
    assert [s.accepted for e in restarted.ingest() for s in e] == [1]
    assert rows_of(read_log(restarted.workspace, "l", 2), "seq", "k") == [(1, "a"), (2, "b")]


def test_a_lake_path_that_is_a_file_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("no folder")
    with pytest.raises(LakeError, match=r"the lake .*/lake cannot be written to: File exists; legal: a folder"):
        _engine(spark, tmp_path / "lake", tmp_path / "in").ingest()


@pytest.mark.parametrize("reason", ["[Errno 13] Permission denied: '/models/m.bin'", "File exists"])
def test_an_error_of_a_function_in_python_is_not_taken_for_one_of_the_lake(tmp_path: Path, reason: str) -> None:
    of_write = f"Job aborted. Caused by: org.apache.spark.api.python.PythonException: Traceback ... {reason}"
    for error in (PythonException(f"An exception was thrown from the Python worker. {reason}"), PySparkException(of_write)):
        with pytest.raises(type(error), match=re.escape(reason)), Lake(str(tmp_path / "lake")).opening():
            raise error
    with pytest.raises(LakeError, match=r"the lake .*/lake"), Lake(str(tmp_path / "lake")).opening():
        raise PySparkException(f"Job aborted. {reason}")


def test_a_lake_of_a_newer_version_is_neither_read_nor_written(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    newer = f"Tidemark lake, format {SUMMARY_FORMAT + 1}"
    write_deltalake(lake.path("ledger"), pa.table({"seq": pa.array([1], pa.int64())}), description=newer)
    known = f"this version of Tidemark knows formats up to {SUMMARY_FORMAT}"
    message = rf"format {SUMMARY_FORMAT + 1}, and {known}; .*Install the version that created it"
    with pytest.raises(LakeError, match=message):
        _ = Ledger(lake, Clock()).head
    engine = _engine_on_newer_lake(lake)
    for act in (engine.maintain, engine.ingest, engine.drain, lambda: engine.advance("total"), lambda: engine.rebuild_days("total")):
        with pytest.raises(LakeError, match=message):
            act()
    assert [lake.version(t) for t in ("ledger", TOTAL.changelog, "total")] == [0, 0, None]


def _engine_on_newer_lake(lake: Lake) -> Engine:
    """An engine without a session, on a lake with a changelog that is not applied yet."""
    properties = CommitProperties(custom_metadata={"userMetadata": json.dumps({PROGRESS: {"step": 1, "seq": 1}})})
    write_deltalake(lake.path(TOTAL.changelog), pa.table({"k": ["a"]}), commit_properties=properties)
    no_session: Any = None
    return Engine(lake, {"l": source("l")}, {"total": TOTAL}, lambda: no_session, Clock())


@pytest.mark.parametrize("description", [None, f"Tidemark lake, format {FORMAT}"])
def test_a_new_lake_records_its_format_and_one_without_a_format_is_accepted(tmp_path: Path, description: str | None) -> None:
    from tests.engine.source_batches import source_batch

    lake = Lake(str(tmp_path / "lake"))
    ledger = Ledger(lake, Clock())
    ledger.commit([(source_batch("l", 1),)])
    delta = lake.delta("ledger")
    assert delta is not None
    assert delta.metadata().description == f"Tidemark lake, format {FORMAT}"
    delta.alter.set_table_description(description or "a ledger")
    assert Ledger(lake, Clock()).head == 1
