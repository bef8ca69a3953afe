"""Before anything is computed, the ledger and the logs must agree in both directions."""

from pathlib import Path

import pytest

from platform_defs.engine import Engine, LedgerError
from tests.conftest import CopyEngine, MakeEngine
from tests.support.kills import run_and_die
from tests.support.shopkeeping import DAY, Event, join, land, rows_of, source

SOURCES = [source("l"), source("r")]


def _feed(engine: Engine, part: int) -> None:
    for name in engine.folders:
        land(engine, name, f"{part}.jsonl", [Event("a", part, part * DAY).line, "not JSON"])


@pytest.fixture(scope="module")
def fed(make_module_engine: MakeEngine) -> Engine:
    engine = make_module_engine(SOURCES, [join()])
    for part in range(2):
        _feed(engine, part)
        engine.ingest()
    return engine


@pytest.fixture
def engine(fed: Engine, copy_engine: CopyEngine) -> Engine:
    return copy_engine(fed)


def _last_commit(engine: Engine, table: str) -> Path:
    return max(Path(engine.lake.path(table), "_delta_log").glob("*.json"))


@pytest.mark.parametrize("table", ["events/l", "quarantine/r"])
@pytest.mark.parametrize("how", ["deleted", "of no bytes"])
def test_a_log_that_lost_its_last_commit_stops_every_computation_from_it(
    engine: Engine, make_engine: MakeEngine, table: str, how: str
) -> None:
    if how == "deleted":
        _last_commit(engine, table).unlink()
    else:
        _last_commit(engine, table).write_bytes(b"")
    anew = make_engine(SOURCES, [join()])
    _feed(anew, 2)
    head = anew.ledger.head
    why = rf"table {table} has lost rows: its newest commit is of batch 1, but the ledger records rows of batch 2 in it.*backup"
    computing = [lambda: anew.advance("pairs")] if table == "events/l" else []  # no asset reads a quarantine
    for act in (anew.ingest, *computing):
        with pytest.raises(LedgerError, match=why):
            act()
    assert anew.ledger.head == head
    assert anew.lake.delta("pairs") is None


def test_uncommitted_rows_of_a_removed_source_never_count(engine: Engine, make_engine: MakeEngine) -> None:
    """While the source is absent, another batch takes the number of its uncommitted rows."""
    land(engine, "l", "2.jsonl", [Event("two", 2, 2 * DAY).line])
    run_and_die(engine.ingest, "ingest.before_ledger")
    without = make_engine(SOURCES[1:], [])
    land(without, "r", "2.jsonl", [Event("b", 2, 2 * DAY).line])
    [entry] = without.ingest()
    assert [of_source.source for of_source in entry] == ["r"]
    back = make_engine(SOURCES, [join()])
    assert rows_of(back.reading.log("l", back.ledger.head), "k") == [("a",), ("a",)]
    assert back.accounts.count_differences("pairs") == {}
    assert [of_source.accepted for [of_source] in back.ingest()] == [1]
    assert rows_of(back.reading.log("l", back.ledger.head), "seq", "k") == [(1, "a"), (2, "a"), (4, "two")]
    assert back.accounts.count_differences("pairs") == {}
    back.drain()
    back.advance("pairs")
    assert all(a.holds for a in back.accounts.days("pairs"))


def test_nothing_comes_out_of_a_quarantine_that_lost_its_last_commit(engine: Engine, make_engine: MakeEngine) -> None:
    """A release would take the place of the commit that a backup is to bring back."""
    _last_commit(engine, "quarantine/r").unlink()
    anew = make_engine(SOURCES, [])
    version, files = anew.lake.version("quarantine/r"), len(list(Path(anew.folders["r"]).glob("*")))
    for act in (anew.ingestion.quarantine.release, anew.ingestion.quarantine.retry):
        with pytest.raises(LedgerError, match="table quarantine/r has lost rows: its newest commit is of batch 1"):
            act("r")
    assert (anew.lake.version("quarantine/r"), len(list(Path(anew.folders["r"]).glob("*")))) == (version, files)
    assert [r.rows for r in anew.ingestion.quarantine.release("l")] == [2]
