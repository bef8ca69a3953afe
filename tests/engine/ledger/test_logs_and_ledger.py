"""Before anything is computed, the ledger and the logs must agree in both directions."""

from pathlib import Path

import pytest

from platform_defs.engine import Engine, LedgerError
from platform_defs.engine.inputs.stored_rows import read_log
from tests.conftest import CopyEngine, MakeEngine
from tests.support.kills import run_and_die
from tests.support.small_sources import DAY, Event, join, land, rows_of, source

SOURCES = [source("l"), source("r")]


def _land_part(engine: Engine, part: int) -> None:
    for name in engine.folders:
        land(engine, name, f"{part}.jsonl", [Event("a", part, part * DAY).line, "not JSON"])


@pytest.fixture(scope="module")
def prepared_engine(make_module_engine: MakeEngine) -> Engine:
    engine = make_module_engine(SOURCES, [join()])
    for part in range(2):
        _land_part(engine, part)
        engine.ingest()
    return engine


@pytest.fixture
def engine(prepared_engine: Engine, copy_engine: CopyEngine) -> Engine:
    return copy_engine(prepared_engine)


def _last_commit(engine: Engine, table: str) -> Path:
    return max(Path(engine.lake.path(table), "_delta_log").glob("*.json"))


@pytest.mark.parametrize("table", ["events/l", "quarantine/r"])
@pytest.mark.parametrize("how", ["deleted", "empty"])
def test_a_log_that_lost_its_last_commit_stops_every_computation_from_it(
    engine: Engine, make_engine: MakeEngine, table: str, how: str
) -> None:
    if how == "deleted":
        _last_commit(engine, table).unlink()
    else:
        _last_commit(engine, table).write_bytes(b"")
    restarted = make_engine(SOURCES, [join()])
    _land_part(restarted, 2)
    head = restarted.ledger.head
    why = rf"table {table} has lost rows: its newest commit is of batch 1, but the ledger records rows of batch 2 in it.*backup"
    computing = [lambda: restarted.advance("pairs")] if table == "events/l" else []  # no asset reads a quarantine
    for act in (restarted.ingest, *computing):
        with pytest.raises(LedgerError, match=why):
            act()
    assert restarted.ledger.head == head
    assert restarted.lake.delta("pairs") is None


def test_uncommitted_rows_of_a_removed_source_are_never_counted(engine: Engine, make_engine: MakeEngine) -> None:
    """While the source is removed, another batch gets the batch number of its uncommitted rows."""
    land(engine, "l", "2.jsonl", [Event("two", 2, 2 * DAY).line])
    run_and_die(engine.ingest, "ingest.before_ledger")
    without_source = make_engine(SOURCES[1:], [])
    land(without_source, "r", "2.jsonl", [Event("b", 2, 2 * DAY).line])
    [batch] = without_source.ingest()
    assert [row.source for row in batch] == ["r"]
    with_source = make_engine(SOURCES, [join()])
    assert rows_of(read_log(with_source.workspace, "l", with_source.ledger.head), "k") == [("a",), ("a",)]
    assert with_source.accounts.count_differences("pairs") == {}
    assert [row.accepted for [row] in with_source.ingest()] == [1]
    assert rows_of(read_log(with_source.workspace, "l", with_source.ledger.head), "seq", "k") == [(1, "a"), (2, "a"), (4, "two")]
    assert with_source.accounts.count_differences("pairs") == {}
    with_source.drain()
    with_source.advance("pairs")
    assert all(a.holds for a in with_source.accounts.days("pairs"))


def test_a_quarantine_that_lost_its_last_commit_allows_no_release_and_no_retry(engine: Engine, make_engine: MakeEngine) -> None:
    """A release would have the version of the lost commit, which a backup restores."""
    _last_commit(engine, "quarantine/r").unlink()
    restarted = make_engine(SOURCES, [])
    version, files = restarted.lake.version("quarantine/r"), len(list(Path(restarted.folders["r"]).glob("*")))
    for act in (restarted.ingestion.quarantine.release, restarted.ingestion.quarantine.retry):
        with pytest.raises(LedgerError, match="table quarantine/r has lost rows: its newest commit is of batch 1"):
            act("r")
    assert (restarted.lake.version("quarantine/r"), len(list(Path(restarted.folders["r"]).glob("*")))) == (version, files)
    assert [r.rows for r in restarted.ingestion.quarantine.release("l")] == [2]
