"""Lakes that are moved, clocks that jump, and rows of the years 1 and 9999."""

import json
import logging
import shutil
from pathlib import Path

import pytest

from platform_defs.cli import status as status_report
from platform_defs.engine import Engine
from platform_defs.engine.ingest import stream
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import FORMAT
from tests.conftest import MakeEngine
from tests.support.clock import NOON, Clock
from tests.support.small_sources import DAY, HOUR, START, Event, join, land, rows_of, source

YEAR = 365 * DAY


def _at(engine: Engine, lake: Path, landing: Path) -> Engine:
    """The engine of a new process with other landing folders."""
    return Engine(Lake(str(lake)), engine.sources, engine.assets, engine.connect, engine.clock, folders={"l": str(landing / "l")})


def test_a_moved_restored_or_remounted_lake_ingests_nothing_twice(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine([source("l")], [])
    land(engine, "l", "ä 1.jsonl", [Event("a", 1, 0).line])
    land(engine, "l", "empty.jsonl", [])
    engine.ingest()
    assert sorted(o.split("|")[0] for o in engine.ledger.offsets("l")) == ["./empty.jsonl", "./ä%201.jsonl"]
    (tmp_path / "renamed").mkdir()
    (tmp_path / "lake").rename(tmp_path / "renamed/lake")
    (tmp_path / "landing").rename(tmp_path / "renamed/landing")
    shutil.copytree(tmp_path / "renamed", tmp_path / "restored")
    shutil.copytree(tmp_path / "renamed/landing", tmp_path / "a%41b/mounted")
    moves = [("renamed/lake", "renamed/landing"), ("restored/lake", "restored/landing"), ("renamed/lake", "a%41b/mounted")]
    for n, (lake, landing) in enumerate(moves):
        moved = _at(engine, tmp_path / lake, tmp_path / landing)
        head = moved.ledger.head
        assert moved.ingest() == []
        land(moved, "l", f"new {n}.jsonl", [Event(f"new {n}", 1, 0).line])
        [[ingested]] = moved.ingest()
        assert (ingested.seq, ingested.rows_read, len(ingested.offsets)) == (head + 1, 1, 1)
    assert rows_of(read_log(moved.workspace, "l", 9), "k") == [("a",), ("new 0",), ("new 2",)]


def test_a_ledger_of_format_1_knows_its_files_before_and_after_the_lake_is_moved(make_engine: MakeEngine, tmp_path: Path) -> None:
    """Format 1 has absolute paths, and neither `clock` nor `spread`; the first commit upgrades the ledger to the present format."""
    from tests.engine.old_ledger import write_format_1

    engine = make_engine([source("l")], [])
    file = land(engine, "l", "1.jsonl", [Event("a", 1, 0).line])
    offset = f"file:{file}|{file.stat().st_mtime_ns // 1_000_000}|{file.stat().st_size}"
    write_format_1(engine.lake, [offset], NOON)
    assert engine.ingest() == []
    (tmp_path / "landing").rename(tmp_path / "moved")
    moved = _at(engine, tmp_path / "lake", tmp_path / "moved")
    assert moved.ingest() == []
    land(moved, "l", "2.jsonl", [Event("b", 1, 0).line])
    [[ingested]] = moved.ingest()
    assert (ingested.seq, [o.split("|")[0] for o in ingested.offsets]) == (2, ["./2.jsonl"])
    table = moved.lake.delta("ledger")
    assert table is not None
    assert table.metadata().description == f"Tidemark lake, format {FORMAT}"
    assert moved.ledger.offsets("l") == {offset, *ingested.offsets}
    assert _at(engine, tmp_path / "lake", tmp_path / "moved").ingest() == []


def test_a_landing_folder_with_a_percent_sign_or_given_as_a_uri_ingests_nothing_twice(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine([source("l")], [])
    land(engine, "l", "ä %41.jsonl", [Event("a", 1, 0).line])
    engine.ingest()
    folder = tmp_path / "a%41b/l"
    shutil.copytree(engine.folders["l"], folder)
    for n, spelling in enumerate((f"file://{folder}", str(folder))):
        moved = Engine(engine.lake, engine.sources, engine.assets, engine.connect, engine.clock, folders={"l": spelling})
        assert moved.ingest() == []
        (folder / f"new %41 {n}.jsonl").write_text(Event(f"new {n}", 1, 0).line + "\n")
        [[ingested]] = moved.ingest()
        assert ([o.split("|")[0] for o in ingested.offsets], ingested.rows_read) == ([f"./new%20%2541%20{n}.jsonl"], 1)
    assert rows_of(read_log(engine.workspace, "l", 9), "k") == [("a",), ("new 0",), ("new 1",)]


def test_links_below_a_landing_folder_ingest_nothing_twice(make_engine: MakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    engine = make_engine([source("l")], [])
    file = land(engine, "l", "1.jsonl", [Event("a", 1, 0).line, Event("b", 2, 0).line])
    folder = file.parent
    (folder / "day").mkdir()
    (folder / "day" / "2.jsonl").write_text(Event("c", 1, 0).line + "\n")
    (folder / "latest").symlink_to(folder / "day")
    (folder / "self").symlink_to(folder)
    (folder / "copy.jsonl").symlink_to(file)
    with caplog.at_level(logging.WARNING, stream.__name__):
        batches = engine.ingest()
    assert sum(s.rows_read for e in batches for s in e) == 3
    assert "latest of source 'l' is skipped: it is a link below the source's folder" in caplog.text
    assert rows_of(read_log(engine.workspace, "l", 9), "k") == [("a",), ("b",), ("c",)]
    assert engine.ingest() == []


def test_the_batch_after_a_clock_jump_uses_the_wall_clock(make_engine: MakeEngine, clock: Clock) -> None:
    """One batch is committed a year ahead: idleness, future times and key expiry use the true clock afterwards."""
    sources = [source(n, idle_timeout="1 hour", future_skew="1 day") for n in "lr"]
    engine = make_engine(sources, [join()])
    for name in "lr":
        land(engine, name, "1.jsonl", [Event("a", 1, 0).line])
    engine.ingest()
    clock.now = NOON + YEAR
    land(engine, "r", "2.jsonl", [Event("b", 1, HOUR).line])
    engine.ingest()
    clock.now = NOON + HOUR // 2
    land(engine, "l", "3.jsonl", [Event("c", 1, HOUR).line, Event("far", 1, 30 * DAY).line])
    [ingested] = [s for s in engine.ingest()[0] if s.source == "l"]
    assert (ingested.accepted, ingested.quarantined, ingested.clock) == (1, 1, None)
    assert engine.ledger.batches()[-1][0].clock == clock.now
    assert ingested.ingested_at > NOON + YEAR
    assert not any(s.idle for s in engine.ledger.newest_rows().values())
    clock.now += 2 * HOUR
    land(engine, "l", "4.jsonl", [Event("d", 1, HOUR).line])
    batch = engine.ingest()[0]
    assert {s.source: s.idle for s in batch} == {"l": False, "r": True}


def test_event_times_of_the_years_1_and_9999_are_ingested(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", future_skew=None), source("r", future_skew=None)], [join()])
    times = {"l": "0001-01-01T00:00:00Z", "r": "9999-12-31T23:59:59.999Z"}
    for name in "lr":
        land(engine, name, "1.jsonl", [json.dumps({"k": "a", "v": 1, "ts": times["l"]})])
    assert sum(s.accepted for s in engine.ingest()[0]) == 2
    status = status_report.recorded_status(engine, ["pairs"])
    assert status["sources"]["l"]["watermark"] == "0001-01-01 00:00:00.000Z"
    assert engine.pending.describe_progress("pairs")["watermark"] is not None
    engine.advance("pairs")
    land(engine, "r", "2.jsonl", [json.dumps({"k": "b", "v": 1, "ts": times["r"]})])
    engine.ingest()
    assert engine.pending.all_days() is None
    assert engine.drain() is not None
    assert status_report.recorded_status(engine, ["pairs"])["sources"]["r"]["watermark"] == "9999-12-31 23:59:59.999Z"
    assert engine.pending.all_days() is not None
    engine.advance("pairs")
    status = status_report.recounted_status(engine, ["pairs"])
    assert status["assets"]["pairs"]["law"]["holds"], status


def test_a_batch_with_an_old_row_has_quantiles(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", duplicate_horizon="1 day", unique_key=("k",)), source("r")], [])
    land(engine, "l", "1.jsonl", [Event(str(n), n, n).line for n in range(100)] + [Event("old", 1, -START).line])
    land(engine, "r", "1.jsonl", [Event(str(n), n, n).line for n in range(100)])
    engine.ingest()
    spread = {s.source: s.spread for s in engine.ledger.batches()[0]}
    assert spread["r"] == ()
    assert (spread["l"][0], spread["l"][-1], len(spread["l"])) == (0, START + 99, 11)
    assert spread["l"][3] >= START
