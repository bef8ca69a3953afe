"""Input files are never changed or deleted, whether their rows are ingested or rejected."""

import gzip
import os
from pathlib import Path

from assets.contracts import RowRule
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.small_sources import MINUTE, START, Event, join, land, rows_of, source

LINES = [Event("a", 1, START).line, Event("b", 50, START).line, "no JSON"]


def _files(engine: Engine) -> dict[str, tuple[bytes, int, int]]:
    """By path, the content, the time and the inode of each file in the sources' folders."""
    paths = [path for folder in engine.folders.values() for path in Path(folder).rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) for path in paths}


def test_no_operation_changes_or_deletes_an_input_file_and_a_hard_link_is_a_file_of_its_own(make_engine: MakeEngine) -> None:
    rule = RowRule("v is not 50", "v <> 50")
    engine = make_engine([source("l", rules=(rule,)), source("r")], [join()])
    landed = land(engine, "l", "1.jsonl", LINES)
    os.link(landed, landed.with_name("2.jsonl"))
    landed.with_name("torn.jsonl.gz").write_bytes(gzip.compress("\n".join(LINES).encode())[:-4])
    land(engine, "r", "1.jsonl", [Event("a", 2, START + MINUTE).line])
    before = _files(engine)

    counts = {row.source: (row.accepted, row.quarantined) for batch in engine.ingest() for row in batch}
    assert counts == {"l": (2, 5), "r": (1, 0)}, "the rows of a file with two names are ingested once for each name"
    assert len(engine.ingestion.quarantine.retry("l", ["torn.jsonl.gz"])) == 1
    assert [released.rows for released in engine.ingestion.quarantine.release("l", reasons=["rule: v is not 50"])] == [2]
    engine.ingest()
    engine.drain()
    engine.advance("pairs")
    engine.rebuild_days("pairs")
    engine.maintain()
    assert rows_of(engine.views.table("pairs"), "left_v", "right_v") == [(1, 2)] * 2

    after = _files(engine)
    assert {path: after.get(path) for path in before} == before
    assert {Path(path).name.partition("-")[0] for path in after.keys() - before.keys()} == {"released"}
