"""A batch is committed only on the ledger version from which it began. A process fences the ledger before it deletes rows. No Spark."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from operators.engine_columns import SEQ
from platform_defs.engine import Engine, LedgerError
from platform_defs.engine.ingest.control_batches import ControlBatches
from platform_defs.engine.ingest.uncommitted import ATTEMPT, clear_uncommitted, require_logs, take_over
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.lake.commits import APPLICATION
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake, LakeSnapshot
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.engine.ledger.open_batch import OpenBatch
from platform_defs.engine.ledger.rows import table_of
from platform_defs.engine.ledger.store import DeltaLedgerStore, Version
from tests.engine.old_ledger import write_format_1
from tests.engine.source_batches import source_batch
from tests.support.clock import Clock
from tests.support.memory_ledger import Memory, MemoryLedgerStore
from tests.support.small_sources import join, source

NO_SESSION: Any = None
REFUSED = "ledger has a newer (batch|version) than this process started from"
TwoLedgers = tuple[Ledger, Ledger]


def _in_memory(_: Path) -> TwoLedgers:
    memory = Memory()
    one, other = (Ledger(NO_SESSION, Clock(5), MemoryLedgerStore(memory)) for _ in range(2))
    return one, other


def _in_a_lake(folder: Path) -> TwoLedgers:
    return Ledger(Lake(str(folder)), Clock(5)), Ledger(Lake(str(folder)), Clock(5))


def _behind_a_uri(folder: Path) -> TwoLedgers:
    return tuple(Ledger(Lake(f"file://{folder}", leases=True), Clock(5)) for _ in range(2))  # pyright: ignore[reportReturnType]


@pytest.fixture(params=[_in_memory, _in_a_lake, _behind_a_uri])
def empty_ledgers(request: pytest.FixtureRequest, tmp_path: Path) -> TwoLedgers:
    """Two processes on one ledger."""
    make: Callable[[Path], TwoLedgers] = request.param
    return make(tmp_path / "lake")


@pytest.fixture(params=[0, 1], ids=["no ledger yet", "a batch"])
def two_ledgers(request: pytest.FixtureRequest, empty_ledgers: TwoLedgers) -> TwoLedgers:
    """Two processes on one ledger, which may have a batch."""
    if request.param:
        empty_ledgers[0].commit([(source_batch("l", 1),)])
    return empty_ledgers


def test_one_of_two_concurrent_batches_is_committed(two_ledgers: TwoLedgers) -> None:
    one, other = (OpenBatch.begin(ledger) for ledger in two_ledgers)
    one.commit([(source_batch("l", one.seq),)])
    with pytest.raises(LakeError, match=REFUSED):
        other.commit([(source_batch("l", other.seq),)])
    assert [ledger.head for ledger in two_ledgers] == [one.seq, one.seq]


def test_one_of_two_concurrent_first_batches_is_committed(empty_ledgers: TwoLedgers) -> None:
    """Both have read an empty ledger before they commit."""
    assert [ledger.head for ledger in empty_ledgers] == [0, 0]
    empty_ledgers[0]._store.append(table_of([(source_batch("l", 1),)]))
    with pytest.raises(LakeError, match=REFUSED):
        empty_ledgers[1]._store.append(table_of([(source_batch("l", 1),)]))
    assert [len(ledger.batches()) for ledger in empty_ledgers] == [1, 1]


def test_a_batch_before_a_fence_is_not_committed_and_its_number_is_reused(two_ledgers: TwoLedgers) -> None:
    one, other = (OpenBatch.begin(ledger) for ledger in two_ledgers)
    other.fence()
    with pytest.raises(LakeError, match=REFUSED):
        one.commit([(source_batch("l", one.seq),)])
    with pytest.raises(LakeError, match=REFUSED):
        one.fence()
    other.fence()
    other.commit([(source_batch("r", other.seq),)])
    assert two_ledgers[0].head == other.seq
    assert [row.source for row in two_ledgers[0].batches()[-1]] == ["r"]


def test_a_fence_is_not_a_batch(two_ledgers: TwoLedgers) -> None:
    before = two_ledgers[0].head
    OpenBatch.begin(two_ledgers[0]).fence()
    assert [(ledger.head, len(ledger.batches())) for ledger in two_ledgers] == [(before, before)] * 2


def _rows(*seqs: int) -> pa.Table:
    return pa.table({SEQ: pa.array(seqs, pa.int64())})


def _batch_numbers(lake: Lake, table: str) -> list[int]:
    delta = lake.delta(table)
    assert delta is not None
    return sorted(delta.to_pyarrow_table()[SEQ].to_pylist())


ATTEMPTED = {"seq": 1, "input": "a file"}


def test_a_batch_whose_rows_were_deleted_cannot_be_committed(tmp_path: Path) -> None:
    """A writer is paused with its rows in the log. Another one removes them as uncommitted rows, and is killed before its own batch."""
    lake, contracts = Lake(str(tmp_path)), {"l": source("l")}
    paused, other = (OpenBatch.begin(Ledger(lake, Clock(5))) for _ in range(2))
    lake.append_small(_rows(1, 1), "events/l", {ATTEMPT: ATTEMPTED, "rows_of": {ATTEMPT: 2}})
    clear_uncommitted(NO_SESSION, lake, other, contracts)
    assert _batch_numbers(lake, "events/l") == []
    with pytest.raises(LakeError, match=REFUSED):
        paused.commit([(source_batch("l", 1, accepted=2),)])


def test_a_batch_looks_at_the_ledger_once_for_all_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, names = Lake(str(tmp_path)), [*"abcdefgh"]
    ledger, contracts = Ledger(lake, Clock(5)), {name: source(name, idle_timeout="1 hour") for name in names}
    ledger.commit([tuple(source_batch(name, 1) for name in names)])
    looks, refresh = list[None](), DeltaLedgerStore.refresh

    def count_and_refresh(store: DeltaLedgerStore) -> Version | None:
        looks.append(None)
        return refresh(store)

    def looks_of(work: Callable[[], object]) -> int:
        looks.clear()
        work()
        return len(looks)

    monkeypatch.setattr(DeltaLedgerStore, "refresh", count_and_refresh)
    batch = OpenBatch.begin(ledger)
    assert looks_of(lambda: OpenBatch.begin(ledger)) == 1
    assert looks_of(lambda: require_logs(lake, ledger, contracts)) == 1
    assert looks_of(lambda: clear_uncommitted(NO_SESSION, lake, batch, contracts)) == 0
    assert looks_of(ControlBatches(NO_SESSION, lake, ledger, contracts).record_idle_sources) == 1
    assert looks_of(lambda: [batch.known.file_records(name, []) for name in names]) == 0
    assert looks_of(lambda: batch.commit([tuple(source_batch(name, 2) for name in names)])) == 1


def test_rows_that_an_attempt_took_over_are_not_deleted(tmp_path: Path) -> None:
    """The same attempt reuses its rows while another process is about to delete them as uncommitted."""
    lake = Lake(str(tmp_path))
    lake.append_small(_rows(1, 1), "events/l", {ATTEMPT: ATTEMPTED, "rows_of": {ATTEMPT: 2}})
    other = LakeSnapshot.of(lake)
    assert other.newest_commit("events/l", ATTEMPT) is not None
    mine = LakeSnapshot.of(lake)
    left = mine.newest_commit("events/l", ATTEMPT)
    assert left is not None
    take_over(mine, "events/l", left)
    with pytest.raises(LakeError, match="newer version"):
        lake.delete(NO_SESSION, "events/l", f"{SEQ} > 0", {ATTEMPT: None}, other.delta("events/l"))  # pyright: ignore[reportArgumentType]
    newest = lake.newest_commit("events/l", ATTEMPT)
    assert newest is not None
    assert (newest.value, newest.rows, newest.version) == (ATTEMPTED, 2, left.version + 1)
    with pytest.raises(LakeError, match="newer attempt"):
        take_over(other, "events/l", left)


@pytest.mark.parametrize("assets", [[join()], []], ids=["in the pipeline", "not in the pipeline"])
@pytest.mark.parametrize("write", ["ingest", "watermark", "drain", "idle", "retry"])
def test_the_number_of_a_lost_batch_that_a_table_handled_is_not_reused(tmp_path: Path, write: str, assets: list[Any]) -> None:
    lake, clock = Lake(str(tmp_path / "lake")), Clock(5)
    contracts = {name: source(name, idle_timeout="1 hour") for name in "lr"}
    ledger = Ledger(lake, clock)
    offset = f"file:{tmp_path}/in/l/1.csv|1|2|unread"
    ledger.commit([tuple(source_batch(name, 1, max_event_time=0, watermark=-1, offsets=(offset,)) for name in "lr")])
    step = Progress(step=1, seq=2, closed_to=0, inputs={})
    properties = CommitProperties({"userMetadata": json.dumps(step.metadata(Progress()))}, app_transactions=[Transaction(APPLICATION, 1)])
    write_deltalake(lake.path("pairs"), _rows(1), commit_properties=properties)
    clock.pass_ms(10**8)
    folders = {name: str(tmp_path / "in" / name) for name in "lr"}
    engine = Engine(lake, contracts, {a.name: a for a in assets}, lambda: NO_SESSION, clock, folders=folders)
    acts: dict[str, Callable[[], Any]] = {
        "ingest": lambda: engine.ingestion.batches.files([]),
        "watermark": lambda: engine.ingestion.control_batches.watermark({"l": 7}),
        "drain": engine.drain,
        "idle": engine.ingestion.control_batches.record_idle_sources,
        "retry": lambda: engine.ingestion.quarantine._request_retry("l", [offset]),
    }
    with pytest.raises(LedgerError, match="table pairs records batch 2"):
        acts[write]()
    assert Ledger(lake, clock).head == 1


def test_a_corrupted_table_outside_the_pipeline_does_not_stop_a_writer(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    properties = CommitProperties({"userMetadata": "{}"}, app_transactions=[Transaction(APPLICATION, 1)])
    write_deltalake(lake.path("old"), _rows(1), commit_properties=properties)
    (tmp_path / "old/_delta_log/00000000000000000000.json").write_text("no JSON")
    engine = Engine(lake, {"l": source("l")}, {}, lambda: NO_SESSION, Clock(5))
    assert engine.ingestion.control_batches.watermark({"l": 7}) is not None


def test_the_ledger_format_is_raised_only_on_the_version_that_was_read(tmp_path: Path) -> None:
    """Another writer commits between the read and the commit that raises the format."""
    lake = Lake(str(tmp_path))
    write_format_1(lake, [], 1)
    one, other = Ledger(lake, Clock(5)), Ledger(lake, Clock(5))
    before = one.head
    store: Any = one._store
    append, at = lake.append_small, before + 1
    assert other.head == before
    append(table_of([(source_batch("r", at, ingested_at=2),)]), "ledger")
    with pytest.raises(LakeError, match=REFUSED):
        store.append(table_of([(source_batch("l", at, ingested_at=2),)]))
    assert Ledger(lake, Clock(5)).head == at
