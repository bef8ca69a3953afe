"""The ledger: one total order of complete batches."""

import errno
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.table import TableAlterer, TableOptimizer

from platform_defs.engine.formats.files import File
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger import store as ledger_store
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.ledger import FORMAT, TABLE, Ledger, as_table, next_row
from platform_defs.engine.ledger.snapshot import LedgerSnapshot
from platform_defs.engine.ledger.store import DeltaLedgerStore
from tests.engine.source_batches import source_batch
from tests.support.clock import Clock

FULL = source_batch(
    "l",
    1,
    ingested_at=1_000,
    watermark=-1,
    max_event_time=0,
    first_event_time=-62_135_596_800_000,
    last_event_time=253_402_300_799_999,
    rows_read=10,
    accepted=1,
    duplicate=2,
    quarantined=3,
    markers=4,
    warned=1,
    idle=True,
    offsets=("file:///a%20b|1|2", "ü|3|4"),
)


def _ledger(tmp_path: Path, clock: Clock | None = None) -> Ledger:
    return Ledger(Lake(str(tmp_path / "lake")), clock or Clock(5))


def test_a_batch_is_read_back_unchanged(tmp_path: Path) -> None:
    batches = [(FULL, source_batch("r", 1, ingested_at=1_000)), (source_batch("l", 2, kind="drain", ingested_at=1_001, watermark=-1),)]
    _ledger(tmp_path).commit(batches)
    assert _ledger(tmp_path).batches() == batches


def test_an_empty_ledger_has_no_batches(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    assert (ledger.batches(), ledger.head, ledger.newest_rows(), ledger.offsets("l"), ledger.now()) == ([], 0, {}, set(), 5)


def test_the_last_row_and_all_offsets_of_a_source_are_returned(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    first = replace(FULL, ingested_at=1)
    ledger.commit([(first, source_batch("r", 1)), (source_batch("l", 2, watermark=-1, offsets=("c",)),)])
    assert {name: s.seq for name, s in ledger.newest_rows().items()} == {"l": 2, "r": 1}
    assert ledger.offsets("l") == {*FULL.offsets, "c"}
    assert ledger.offsets("r") == set()


_NO_SUCCESSORS = r"^batches \[[\d, ]+\] do not follow the ledger's newest, 1$"


@pytest.mark.parametrize(
    ("seqs", "error", "message"),
    [
        pytest.param([1], LakeError, "ledger has a newer batch than this process started from", id="the head again"),
        pytest.param([3], LedgerError, _NO_SUCCESSORS, id="a gap"),
        pytest.param([4], LedgerError, _NO_SUCCESSORS, id="a far gap"),
        pytest.param([2, 2], LedgerError, _NO_SUCCESSORS, id="twice"),
        pytest.param([2, 4], LedgerError, _NO_SUCCESSORS, id="a gap inside"),
        pytest.param([3, 2], LedgerError, _NO_SUCCESSORS, id="backwards"),
    ],
)
def test_batches_must_follow_the_newest(tmp_path: Path, seqs: list[int], error: type[Exception], message: str) -> None:
    ledger = _ledger(tmp_path)
    ledger.commit([(source_batch("l", 1),)])
    with pytest.raises(error, match=message):
        ledger.commit([(source_batch("l", n),) for n in seqs])
    assert _ledger(tmp_path).head == 1


def test_a_second_reader_sees_the_batches_of_the_first(tmp_path: Path) -> None:
    one, other = _ledger(tmp_path), _ledger(tmp_path)
    assert other.head == 0
    one.commit([(source_batch("l", 1),)])
    assert other.head == 1
    with pytest.raises(LakeError, match="ledger has a newer batch than this process started from"):
        other.commit([(source_batch("l", 1),)])


def test_batch_times_increase_even_if_the_clock_is_set_back(tmp_path: Path) -> None:
    clock = Clock(100)
    ledger = _ledger(tmp_path, clock)
    times = []
    for seq, time in enumerate([100, 100, 40, 500], 1):
        clock.now = time
        ledger.commit([(source_batch("l", seq, ingested_at=ledger.now()),)])
        times.append(ledger.newest_rows()["l"].ingested_at)
    assert times == [100, 101, 102, 500]
    assert ledger.now(after=900) == 901


def test_a_long_ledger_has_few_files_and_is_read_incrementally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are compacted after 6 and after 11 batches; the other reader reads before the first compaction and before the second."""
    monkeypatch.setattr(ledger_store, "MANY_FILES", 6)
    lake, ledger, other = Lake(str(tmp_path / "lake")), _ledger(tmp_path), _ledger(tmp_path)
    read: list[int] = []
    rows = DeltaLedgerStore.rows

    def counted(self: DeltaLedgerStore, columns: Sequence[str], *within: int) -> Iterator[pa.Table]:
        found = list(rows(self, columns, *within))
        if "offsets" not in columns:  # offsets are read separately
            read.append(sum(part.num_rows for part in found))
        return iter(found)

    monkeypatch.setattr(DeltaLedgerStore, "rows", counted)
    for seq in range(1, 15):
        ledger.commit([(source_batch("l", seq, offsets=(f"l{seq}",)), source_batch("r", seq))])
        assert ledger.head == seq
        if seq in (4, 8):
            assert other.batches() == ledger.batches()
    assert max(read) == 8, "another reader reads only the batches since its last read"
    assert sum(read) == 2 * 14 + 2 * 8 + 3 * 2, "each reader reads every row once, and the newest rows again if they are in several files"
    batches = _ledger(tmp_path).batches()
    assert [(s.source, s.seq) for e in batches for s in e] == [(n, seq) for seq in range(1, 15) for n in ("l", "r")]
    assert batches == ledger.batches()
    assert ledger.offsets("l") == {f"l{seq}" for seq in range(1, 15)}
    assert len(lake.delta(TABLE).file_uris()) < 6  # pyright: ignore[reportOptionalMemberAccess]


def test_a_file_of_a_ledger_behind_a_uri_is_opened_without_a_look_at_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, closed = Lake(f"file://{tmp_path}/lake", leases=True), list[bool]()
    for seq in (1, 2):
        Ledger(lake, Clock(5)).commit([(source_batch("l", seq),)])

    def look_at_all(*_: object) -> None:
        raise AssertionError("all files are listed")

    def close(file: pq.ParquetFile) -> None:
        close_file(file)
        closed.append(file.closed)

    close_file = pq.ParquetFile.close
    monkeypatch.setattr(DeltaTable, "to_pyarrow_dataset", look_at_all)
    monkeypatch.setattr(pq.ParquetFile, "close", close)
    assert [b.seq for (b,) in Ledger(lake, Clock(5)).batches()] == [1, 2]
    assert {*closed} == {True}


def test_a_recreated_ledger_is_read_from_its_start(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    for seq in (1, 2, 3):
        ledger.commit([(source_batch("l", seq),)])
    assert ledger.head == 3
    shutil.rmtree(tmp_path / "lake" / TABLE)
    assert (ledger.head, ledger.newest_rows()) == (0, {})
    _ledger(tmp_path).commit([(source_batch("r", 1),)])
    assert list(ledger.newest_rows()) == ["r"]


ADVICE = r"Nothing was written. Restore the lake's folder from a backup, .* into a new lake \(TIDEMARK_LAKE\)"


@pytest.mark.parametrize("known", [False, True], ids=["read at once", "read incrementally"])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"seq": 4}, "at batch 4: it follows batch 2, so batches between them are missing"),
        ({"seq": 2}, "at batch 2: it records a source twice"),
        ({"seq": 0}, "at batch 0: its number is not above 0"),
    ],
    ids=["a gap", "a batch repeated", "a number below 1"],
)
def test_the_error_of_an_inconsistent_ledger_names_the_batch_and_the_file(
    tmp_path: Path, row: dict[str, Any], message: str, known: bool
) -> None:
    """Whatever is wrong with a batch, the error names it: `test_ledger_in_memory` has all cases."""
    ledger = _ledger(tmp_path)
    ledger.commit([(source_batch("l", 1, watermark=10),), (source_batch("l", 2, watermark=20),)])
    reader = ledger if known else _ledger(tmp_path)
    assert reader.head == 2 or not known
    rows = [asdict(source_batch(**{"source": "l", "watermark": 20, **row}))]
    Lake(str(tmp_path / "lake")).append_small(as_table(rows), TABLE)
    for _ in range(2):
        with pytest.raises(LedgerError, match=rf"the ledger is corrupted {message}.*/ledger, file part-.*parquet\)\. {ADVICE}"):
            reader.batches()


def test_the_error_of_a_missing_ledger_file_names_the_file(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    for seq in (1, 2):
        ledger.commit([(source_batch("l", seq),)])
    file = sorted((tmp_path / "lake" / TABLE).glob("*.parquet"), key=lambda p: p.stat().st_mtime_ns)[-1]
    file.unlink()
    with pytest.raises(LedgerError, match=rf"cannot be read after batch 0: file {file.name} of table .*/ledger is missing or .*{ADVICE}"):
        _ledger(tmp_path).batches()


def test_the_error_of_a_ledger_file_that_is_no_parquet_names_the_file(tmp_path: Path) -> None:
    _ledger(tmp_path).commit([(source_batch("l", 1),)])
    [file] = (tmp_path / "lake" / TABLE).glob("*.parquet")
    file.write_bytes(b"PAR1 and no more")
    with pytest.raises(LedgerError, match=rf"cannot be read after batch 0: file {file.name} of table"):
        _ledger(tmp_path).batches()


def test_the_error_of_a_damaged_ledger_log_names_the_log(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    for seq in (1, 2, 3):
        ledger.commit([(source_batch("l", seq),)])
    log = tmp_path / "lake" / TABLE / "_delta_log"
    (log / f"{2:020}.json").write_text('{"add": {"pa')
    with pytest.raises(LedgerError, match=rf"file .*/ledger/_delta_log of table .*/ledger is missing or unreadable .*{ADVICE}"):
        _ledger(tmp_path).batches()
    (log / f"{1:020}.json").unlink()
    with pytest.raises(LedgerError, match=r"file .*/ledger/_delta_log of table"):
        _ledger(tmp_path).batches()


def test_a_batch_that_a_table_has_handled_is_required(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    ledger.commit([(source_batch("l", 1),)])
    ledger.require(1, "table pairs")
    with pytest.raises(LedgerError, match=rf"ledger ends at batch 1, but table pairs records batch 3, .*/ledger/_delta_log .*{ADVICE}"):
        ledger.require(3, "table pairs")


def test_a_row_without_new_rows_keeps_watermark_and_idleness_but_no_counts() -> None:
    after = next_row(FULL, seq=2, kind="watermark", ingested_at=2_000)
    assert after == source_batch("l", 2, kind="watermark", ingested_at=2_000, watermark=-1, max_event_time=0, idle=True)
    assert next_row(FULL, seq=2, idle=False, watermark=7) == replace(after, kind="rows", ingested_at=1_000, idle=False, watermark=7)


def test_a_new_format_whose_commit_got_no_answer_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = _ledger(tmp_path)
    ledger.commit([(source_batch("l", 1),)])
    ledger_of_format_1 = DeltaTable(str(tmp_path / "lake" / TABLE))
    ledger_of_format_1.alter.set_table_description("Tidemark lake, format 1")
    describe = TableAlterer.set_table_description

    def lose(*args: Any, **more: Any) -> None:
        describe(*args, **more)
        raise OSError("the connection was reset")

    monkeypatch.setattr(TableAlterer, "set_table_description", lose)
    ledger.commit([(source_batch("l", 2),)])
    assert _ledger(tmp_path).head == 2
    assert DeltaTable(str(tmp_path / "lake" / TABLE)).metadata().description == f"Tidemark lake, format {FORMAT}"


@contextmanager
def _failing(name: str, error: Exception) -> Iterator[None]:
    """Let a method of the lake or of deltalake raise an error while the block runs."""
    owner: Any = next(owner for owner in (Lake, DeltaLedgerStore, TableOptimizer) if hasattr(owner, name))

    def fail(*_: object, **__: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fail)
        yield


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(OSError(errno.EIO, "Input/output error"), id="an I/O error"),
        pytest.param(OSError(errno.EMFILE, "Too many open files"), id="too many open files"),
        pytest.param(DeltaError("Generic LocalFileSystem error: Stale file handle (os error 116)"), id="a stale file handle"),
    ],
)
@pytest.mark.parametrize("method", ["log_end", "_parts"])
def test_a_fault_of_the_disk_that_may_pass_is_not_the_loss_of_the_ledger(tmp_path: Path, method: str, error: Exception) -> None:
    ledger, other = _ledger(tmp_path), _ledger(tmp_path)
    for seq in (1, 2):
        ledger.commit([(source_batch("l", seq),)])
        if seq == 1:
            assert other.head == 1
    with (
        _failing(method, error),
        pytest.raises(LakeError, match=r"^ledger cannot be read now \(.*\)\. Nothing was changed; run the command"),
    ):
        _ = other.head
    assert other.head == 2


def test_the_error_of_a_lost_log_names_no_batch(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path)
    ledger.commit([(source_batch("l", 1),)])
    with (
        _failing("log_end", OSError(errno.EACCES, "Permission denied")),
        pytest.raises(LedgerError, match="the ledger cannot be read: file"),
    ):
        _ = ledger.head


def test_after_a_failed_look_up_the_known_rows_are_still_read(tmp_path: Path) -> None:
    """A thread that publishes looks up the head, and fails, between another thread's look-up of the head and its read of the rows."""
    writer, ledger = _ledger(tmp_path), _ledger(tmp_path)
    for seq in (1, 2):
        writer.commit([(source_batch("l", seq, accepted=1, rows_read=1, offsets=(f"./{seq}|1|1",)),)])
    head, snapshot = ledger.head, LedgerSnapshot.of(ledger)
    with _failing("log_end", OSError(errno.EIO, "Input/output error")), pytest.raises(LakeError, match="cannot be read now"):
        _ = ledger.head
    files = [File(1, f"file:///in/{n}", 1, "l", folder="/in") for n in (1, 2)]
    records = ledger._files.files_of("l", head).records_of(files)
    assert all(records.has_present_state(file) for file in files)
    assert snapshot.totals("l")["accepted"] == 2
    assert snapshot.offsets("l") == {"./1|1|1", "./2|1|1"}
    assert ledger.head == 2


def test_a_fault_of_the_compaction_after_a_commit_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ledger_store, "MANY_FILES", 2)
    ledger = _ledger(tmp_path)
    with _failing("compact", OSError(errno.ENOSPC, "No space left on device")):
        for seq in (1, 2, 3):
            ledger.commit([(source_batch("l", seq),)])
    assert _ledger(tmp_path).head == ledger.head == 3
    assert "the batch is committed, but the ledger was not compacted: [Errno 28] No space left on device" in caplog.text
    ledger.commit([(source_batch("l", 4),)])
    assert len(list(Lake(str(tmp_path / "lake")).delta(TABLE).file_uris())) == 1  # pyright: ignore[reportOptionalMemberAccess]


def test_two_compactions_at_the_same_time_double_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes ingest different sources, and both compact the ledger after their commits."""
    ledger, other, points = _ledger(tmp_path), _ledger(tmp_path), list[str]()
    for seq in range(1, 4):
        ledger.commit([(source_batch("l", seq),)])

    def meanwhile(point: str) -> None:
        points.append(point)
        if points == ["ledger.before_compact"]:
            other.compact()

    monkeypatch.setattr(ledger_store, "point", meanwhile)
    ledger.compact()
    assert points == ["ledger.before_compact", *["ledger.before_compact", "ledger.after_compact"], "ledger.after_compact"]
    actions = Lake(str(tmp_path / "lake")).delta(TABLE).get_add_actions(flatten=True)  # pyright: ignore[reportOptionalMemberAccess]
    assert actions["num_records"].to_pylist() == [3]
    assert [len(reader.batches()) for reader in (_ledger(tmp_path), ledger, other)] == [3, 3, 3]
