"""Deleted or corrupted data files: nothing is computed without them. The error names the table, a deleted file and its batches."""

import errno
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset
from platform_defs.engine import Engine, LedgerError, ProgressError
from platform_defs.engine.ingest.stream import Stream
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.missing_files import naming_lost_files
from platform_defs.engine.lake.tables import Lake
from tests.conftest import MakeEngine
from tests.support.clock import Clock
from tests.support.example_operators import RunningTotal, Spread
from tests.support.small_sources import DAY, HOUR, Event, join, land, replay, rows_of, source

SOURCES = [source("l"), source("r", unique_key=("k", "v"))]
LENIENT = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")


@pytest.fixture(scope="module")
def prepared_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake after two micro-batches, before any step."""
    root = tmp_path_factory.mktemp("prepared_lake")
    folders = {s.name: str(root / "landing" / s.name) for s in SOURCES}
    engine = Engine(Lake(str(root / "lake")), {s.name: s for s in SOURCES}, {"pairs": join()}, lambda: spark, Clock(), folders=folders)
    for part in range(2):
        for n, name in enumerate(engine.folders):
            land(engine, name, f"{part}.jsonl", [Event("a", n, part * HOUR).line])
        engine.ingest()
    return root / "lake"


@pytest.fixture
def engine(prepared_lake: Path, make_engine: MakeEngine, tmp_path: Path) -> Engine:
    """An engine on a copy of the lake."""
    shutil.copytree(prepared_lake, tmp_path / "lake")
    return make_engine(SOURCES, [join()])


def data_file(engine: Engine, table: str, seq: int) -> Path:
    """The data file of a batch."""
    delta = engine.lake.delta(table)
    assert delta is not None
    [file] = [f.path for f in delta.to_pyarrow_dataset().get_fragments() if f.to_table().column("seq")[0].as_py() == seq]
    return Path(engine.lake.path(table), file)


def missing_file(table: str, file: Path, seq: int) -> str:
    name = re.escape(file.name)
    return rf"^{table} lacks a data file: .*/{name} \(ledger batch {seq}\) is in the table's log.*Restore the file from a backup"


def test_a_running_stream_names_a_lost_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_session: Any = None
    engine = Engine(Lake(str(tmp_path / "lake")), {"l": source("l")}, {}, lambda: no_session)
    write_deltalake(engine.lake.path("events/l"), pa.table({"seq": pa.array([1], pa.int64())}))
    file = data_file(engine, "events/l", 1)

    def fail(_: Stream, every: str | None, *_others: object) -> None:
        raise PySparkException(f"{every}: no such file: {file}")

    monkeypatch.setattr(Stream, "run", fail)
    with pytest.raises(LakeError, match=missing_file("events/l", file, 1)):
        engine.ingest("1 second")


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(lambda file: OSError(errno.EMFILE, "Too many open files", file), id="of Python"),
        pytest.param(lambda file: DeltaError(f"Unable to open file {file}: Too many open files (os error 24)"), id="of deltalake"),
        pytest.param(lambda file: PySparkException(f"FileNotFoundException: {file} (Too many open files)"), id="of Spark"),
    ],
)
def test_a_fault_of_the_disk_that_may_pass_is_not_the_loss_of_a_file(tmp_path: Path, error: Callable[[str], Exception]) -> None:
    lake = Lake(str(tmp_path))
    write_deltalake(lake.path("t"), pa.table({"seq": pa.array([1], pa.int64())}))
    [file] = Path(lake.path("t")).glob("*.parquet")
    with (
        pytest.raises(LakeError, match=r"^t cannot be read now \(.*Too many open files.*\)\. Nothing was changed"),
        naming_lost_files(lake, ["t"]),
    ):
        raise error(str(file))


@pytest.mark.parametrize("damage", ["deleted", "cut"])
def test_the_errors_of_a_step_and_of_an_account_name_a_lost_file_of_a_log(engine: Engine, damage: str) -> None:
    file = data_file(engine, "events/l", 1)
    file.unlink() if damage == "deleted" else file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(LakeError, match=missing_file("events/l", file, 1)):
        engine.advance("pairs")
    assert engine.pending.progress("pairs").step == 0
    with pytest.raises(LakeError, match=missing_file("events/l", file, 1)):
        engine.accounts.count_differences("pairs")
    with pytest.raises(LakeError, match=missing_file("events/l", file, 1)):
        engine.accounts.days("pairs")


def test_the_duplicate_lookup_names_a_lost_file(engine: Engine) -> None:
    file = data_file(engine, "events/r", 1)
    file.unlink()
    land(engine, "r", "9.jsonl", [Event("a", 9, 2 * HOUR).line])
    with pytest.raises(LakeError, match=missing_file("events/r", file, 1)):
        engine.ingest()
    assert engine.ledger.head == 2


def test_the_count_of_pairs_and_the_law_name_a_lost_file_of_results(engine: Engine) -> None:
    land(engine, "l", "9.jsonl", [Event("b", 1, DAY).line])
    land(engine, "r", "9.jsonl", [Event("b", 1, DAY).line])
    engine.ingest()
    engine.advance("pairs")
    file = next(Path(engine.lake.path("pairs")).glob("commit-*/*.parquet"))
    file.unlink()
    with pytest.raises(LakeError, match=rf"^pairs lacks a data file: .*{re.escape(file.name)} is in the table's log"):
        engine.accounts.pairs("pairs")
    with pytest.raises(LakeError, match=rf"^pairs lacks a data file: .*{re.escape(file.name)} is in the table's log"):
        engine.accounts.days("pairs")


def test_a_batch_that_the_ledger_lost_is_found_by_the_progress_of_a_table(engine: Engine, make_engine: MakeEngine) -> None:
    """The commit of the newest batch is deleted by hand; the remaining ledger is consistent."""
    engine.advance("pairs")
    log = Path(engine.lake.path("ledger"), "_delta_log")
    max(log.glob("*.json")).unlink()
    restarted = make_engine(SOURCES, [join()])
    assert restarted.ledger.head == 1
    land(restarted, "l", "9.jsonl", [Event("a", 9, 2 * HOUR).line])
    for act in (restarted.ingest, restarted.drain, lambda: restarted.advance("pairs")):
        with pytest.raises(LedgerError, match=r"has lost batches: table .*/ledger ends at batch 1, but table pairs records batch 2"):
            act()
    assert rows_of(restarted.views.table("events/l"), "seq") == [(1,), (2,)], "the rows of the lost batch remain"


def test_two_batches_that_the_ledger_lost_are_found_by_the_event_logs(engine: Engine, make_engine: MakeEngine) -> None:
    log = Path(engine.lake.path("ledger"), "_delta_log")
    for _ in range(2):
        max(log.glob("*.json")).unlink()
    for left in (*log.iterdir(), *Path(engine.lake.path("ledger")).glob("*.parquet")):
        left.unlink()
    restarted = make_engine(SOURCES, [join()])
    assert restarted.ledger.head == 0
    with pytest.raises(LedgerError, match=r"ends at batch 0, but table events/l records batch 1"):
        restarted.ingestion.control_batches.watermark({"l": 1})
    assert restarted.lake.newest_commit("events/l", "attempt").value["seq"] == 2  # pyright: ignore[reportOptionalMemberAccess]


def test_a_table_written_by_another_program_does_not_stop_ingestion(engine: Engine) -> None:
    write_deltalake(engine.lake.path("pairs"), pa.table({"x": [1]}))
    land(engine, "l", "late.jsonl", [Event("a", 1, 2 * HOUR).line])
    assert len(engine.ingest()) == 1
    with pytest.raises(LakeError, match="no commit of pairs records its progress"):
        engine.advance("pairs")


def test_an_upserted_table_without_its_changelog_is_refused(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [DerivedAsset(name="totals", inputs=("l",), operator=RunningTotal())])
    replay(engine, [{"l": [Event("a", 1, 0)]}])
    engine.advance("totals")
    shutil.rmtree(engine.lake.path("changelog/totals"))
    with pytest.raises(
        ProgressError, match=r"up to step 1, but changelog/totals does not exist. Run `tidemark rebuild totals --downstream`"
    ):
        engine.advance("totals")
    assert [step.rows for _, step in engine.rebuild_tables(["totals"])] == [1]
    assert not [a for a in engine.accounts.days("totals") if not a.holds]


def test_a_deleted_upserted_table_is_rebuilt_from_its_changelog(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [DerivedAsset(name="spread", inputs=("l",), operator=Spread())])
    for part, rows in enumerate(([("a", 1), ("a", 5), ("b", 2)], [("b", 0), ("c", 3)], [("a", 9)])):
        land(engine, "l", f"{part}.jsonl", [Event(k, v, part * HOUR + n).line for n, (k, v) in enumerate(rows)])
        engine.ingest()
        engine.advance("spread")
    before = rows_of(engine.views.table("spread"))
    assert len(before) == 2, "a and c; b was deleted"
    shutil.rmtree(engine.lake.path("spread"))
    assert engine.advance("spread") == []
    assert rows_of(engine.views.table("spread")) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"PAR1" + b"x" * 100 + b"PAR1", r"FAILED_READ_FILE\.(NO_HINT|CANNOT_READ_FILE_FOOTER)", id="corrupted"),
        pytest.param(None, r"FAILED_READ_FILE\.FILE_NOT_EXIST|PATH_NOT_FOUND", id="missing"),
    ],
)
def test_a_corrupted_or_missing_file_is_an_error_although_the_session_ignores_such_files(
    engine: Engine, spark: SparkSession, content: bytes | None, message: str
) -> None:
    file = data_file(engine, "events/l", 1)
    Path(file.parent, f".{file.name}.crc").unlink(missing_ok=True)  # a wrong checksum would be another error
    file.write_bytes(content) if content else file.unlink()
    for key in LENIENT:
        spark.conf.set(key, "true")
    try:
        with pytest.raises((PySparkException, Py4JJavaError), match=message):
            read_log(engine.workspace, "l", 1).collect()
    finally:
        for key in LENIENT:
            spark.conf.set(key, "false")
