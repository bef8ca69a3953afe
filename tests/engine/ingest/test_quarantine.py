"""Quarantined data is ingested once after a repair: files by a retry, rows by a release. The counts of every batch still add up."""

import gzip
import json
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import RowRule
from platform_defs.engine import Engine
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.unreadable_files import MISSING_LENGTH
from platform_defs.engine.ingest.quarantine import Quarantine
from platform_defs.engine.ingest.quarantine_error import QuarantineError
from platform_defs.engine.ingest.quarantine_list import QuarantinedFile
from platform_defs.engine.ingest.release import Release, is_named
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import SourceBatch
from tests.conftest import MakeEngine
from tests.support.clock import NOON
from tests.support.kills import run_and_die
from tests.support.small_sources import START, Event, iso, land, rows_of, source

TIME = iso(START)


def _write(engine: Engine, name: str, file: str, content: bytes, modified: int = NOON) -> Path:
    path = Path(engine.folders[name]) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(0, modified * 1_000_000))
    return path


def _gzipped(*keys: str) -> bytes:
    return gzip.compress("".join(f"{Event(k, 1, 0).line}\n" for k in keys).encode(), mtime=0)


def _keys(engine: Engine, name: str = "l") -> list[Any]:
    return [k for (k,) in rows_of(read_log(engine.workspace, name, engine.ledger.head), "k")]


def _counts_add_up(engine: Engine) -> bool:
    """Whether the ledger's totals equal the rows of the logs and the quarantines, batch by batch."""
    batches = [s for e in engine.ledger.batches() for s in e]
    if any(s.rows_read != s.accepted + s.duplicate + s.quarantined + s.markers for s in batches):
        return False
    tables = {c.log: (name, "accepted") for name, c in engine.sources.items()}
    tables |= {c.quarantine: (name, "quarantined") for name, c in engine.sources.items()}
    frames = [engine.views.table(table).select(F.lit(table), "seq") for table in tables if engine.lake.delta(table)]
    counted = {(table, s.seq): getattr(s, of) for table, (name, of) in tables.items() for s in batches if s.source == name}
    return Counter(map(tuple, reduce(DataFrame.union, frames).collect())) == Counter({at: rows for at, rows in counted.items() if rows})


def _accepted(batches: Sequence[Sequence[SourceBatch]]) -> list[tuple[str, int, int]]:
    return [(s.source, s.accepted, s.quarantined) for e in batches for s in e]


def test_a_header_that_was_rejected_is_not_released_as_a_row(make_engine: MakeEngine) -> None:
    """The file is rejected since it lacks a column, which the contract then no longer has. A later line like the header is a row."""
    text = {"schema": "k string, ts timestamp, gone string", "rules": ()}
    engine = make_engine([source("l", **text), source("r")], [])
    _write(engine, "l", "1.csv", f"k,ts\na,{TIME}\nk,ts\nb,{TIME}\n".encode())
    assert _accepted(engine.ingest()) == [("l", 0, 4)]
    repaired = make_engine([source("l", **text | {"schema": "k string, ts timestamp"}), source("r")], [])
    assert [r.rows for r in repaired.ingestion.quarantine.release("l")] == [4]
    assert _accepted(repaired.ingest()) == [("l", 2, 1)]
    assert _keys(repaired) == ["a", "b"]
    assert _counts_add_up(repaired)


def test_a_refused_file_is_read_again_at_each_retry(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l"), source("r")], [])
    torn = _gzipped("a", "b")[:-4] + b"\0\0\0\0"
    for file in ("1.jsonl.gz", "deep/2.jsonl.gz", "3.jsonl.gz"):
        _write(engine, "l", file, torn)
    _write(engine, "l", "empty.jsonl", b"")
    _write(engine, "l", "grown.jsonl", f"{Event('g', 1, 0).line}\n".encode())
    assert _accepted(engine.ingest()) == [("l", 1, 4)]
    _write(engine, "l", "grown.jsonl", f"{Event('g', 1, 0).line}\n{Event('h', 1, 0).line}\n".encode(), NOON + 1)
    engine.ingest()
    found = {Path(f.file.path).name: f.reason for f in engine.ingestion.quarantine_list.files("l")}
    assert list(found) == ["1.jsonl.gz", "3.jsonl.gz", "2.jsonl.gz", "empty.jsonl", "grown.jsonl"]
    assert found["1.jsonl.gz"].startswith("malformed: the file cannot be read: IOException: ")
    assert found["grown.jsonl"].startswith("malformed: the file changed after it was read")
    listed = engine.ingestion.quarantine_list
    assert listed.rows("l") == listed.files("r") == listed.rows("r") == []

    with pytest.raises(QuarantineError, match=r"`source` is 'x'; legal: l, r"):
        engine.ingestion.quarantine.retry("x")
    with pytest.raises(
        QuarantineError, match=r"`file` is '9\.jsonl', but no such file of source 'l' is in quarantine; legal: file:.*1\.json"
    ):
        engine.ingestion.quarantine.retry("l", ["9.jsonl"])
    with pytest.raises(
        QuarantineError, match=r"grown\.jsonl' of source 'l', which would be refused again: the file changed after it was read"
    ):
        engine.ingestion.quarantine.retry("l", ["grown.jsonl"])
    assert engine.ledger.head == 2

    _write(engine, "l", "1.jsonl.gz", _gzipped("a", "b"))
    assert len(engine.ingestion.quarantine.retry("l", ["1.jsonl.gz", "deep/2.jsonl.gz"])) == 2
    assert [(s.kind, s.accepted, len(s.offsets)) for s in engine.ledger.batches()[-1]] == [("retry", 0, 2)]
    assert [f.is_retry_requested for f in engine.ingestion.quarantine_list.files("l")] == [True, False, True, False, False]
    assert engine.ingestion.quarantine.retry("l", ["1.jsonl.gz"]) == []
    assert _accepted(engine.ingest()) == [("l", 2, 1)]
    assert engine.ingest() == []

    _write(engine, "l", "deep/2.jsonl.gz", _gzipped("c", "d"))
    assert [Path(f.file.path).name for f in engine.ingestion.quarantine.retry("l")] == ["3.jsonl.gz", "2.jsonl.gz"]
    _write(engine, "l", "1.jsonl.gz", _gzipped("a", "b", "c"), NOON + 9)  # it was read in its state of noon
    restarted = make_engine([source("l"), source("r")], [])
    assert _accepted(restarted.ingest()) == [("l", 2, 2)]
    assert restarted.ingest() == []
    assert _keys(restarted) == ["a", "b", "c", "d", "g"]
    refused = ["1.jsonl.gz", "3.jsonl.gz", "empty.jsonl", "grown.jsonl"]
    assert sorted(Path(f.file.path).name for f in restarted.ingestion.quarantine_list.files("l")) == refused
    assert _counts_add_up(restarted)


def test_the_list_needs_no_session_and_names_a_lost_data_file(make_engine: MakeEngine) -> None:
    def fail() -> Any:
        raise AssertionError("a session is started")

    engine = make_engine([source("l", rules=STRICT), source("r")], [])
    land(engine, "l", "1.jsonl", [Event("a", 99, 0).line, Event("b", 50, 0).line, Event("c", 50, 0).line])
    _write(engine, "l", "2.jsonl.gz", b"torn")
    engine.ingest()
    listed = replace(engine, connect=fail).ingestion.quarantine_list
    assert [(r.reason, r.rows, r.released) for r in listed.rows("l")] == [("rule: v is not 50", 2, 0), ("rule: v is small", 1, 0)]
    assert [(f.seq, Path(f.file.path).name, f.reason[:9]) for f in listed.files("l")] == [(1, "2.jsonl.gz", "malformed")]
    assert listed.rows("r") == listed.files("r") == []
    with pytest.raises(QuarantineError, match=r"`source` is 'x'; legal: l, r"):
        listed.rows("x")
    for file in Path(engine.lake.path("quarantine/l")).rglob("*.parquet"):
        file.unlink()
    for read in (listed.rows, listed.files, engine.ingestion.quarantine.release):
        with pytest.raises(LakeError, match=r"quarantine/l lacks a data file: .*\.parquet \(ledger batch 1\)"):
            read("l")


STRICT = (RowRule("v is small", "v < 90"), RowRule("v is not 50", "v != 50"))
ODD = "b\n\u2028|"


def _sources(fixed: bool) -> list[Any]:
    rules = {"rules": () if fixed else STRICT}
    return [source("l", **rules), source("c", options={"sep": "||"} | ({"nullValue": "x"} if fixed else {})), source("p", **rules)]


def _land_rows(engine: Engine) -> None:
    rows = [("a", 1), (ODD, 50), ("c", 99)]
    land(engine, "l", "1.jsonl", [json.dumps({"k": k, "v": v, "ts": TIME}, ensure_ascii=False) for k, v in rows])
    _write(engine, "l", "2.json", f'{{"k":"ü","v":50,"ts":"{TIME}"}}\nno JSON\n'.encode() + b"\xff\xfe\n")
    _write(engine, "l", "torn.jsonl.gz", b"torn")
    land(engine, "c", "1.csv", ["k||v||ts", f"a||1||{TIME}", f'"b||b"||x||{TIME}', "few||1"])
    land(engine, "c", "2.csv", ["ts||v||k", f"{TIME}||x||c"])
    times = pa.array([START * 1000 + 1, START * 1000 + 999_999], pa.timestamp("us", tz="UTC"))
    _write(engine, "p", "1.parquet", b"")
    pq.write_table(pa.table({"K": ["a", "b"], "V": pa.array([1, 99], pa.int32()), "TS": times}), Path(engine.folders["p"]) / "1.parquet")


def test_released_rows_are_ingested_once_after_the_contract_is_fixed(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(_sources(fixed=False), [])
    _land_rows(engine)
    assert engine.ingestion.quarantine.release("l") == []
    assert sorted(_accepted(engine.ingest())) == [("c", 1, 3), ("l", 1, 6), ("p", 1, 1)]
    counts = [(r.reason, r.rows, r.released) for r in engine.ingestion.quarantine_list.rows("l")]
    assert counts == [
        ("rule: v is not 50", 2, 0),
        ("malformed: not UTF-8", 1, 0),
        ("malformed: not a JSON object", 1, 0),
        ("rule: v is small", 1, 0),
    ]

    fixed = make_engine(_sources(fixed=True), [])
    released = fixed.ingestion.quarantine.release("l", reasons=["rule: v is not 50", "malformed: not UTF"])
    assert [(r.name.startswith("released-20260301T120000"), r.name.endswith("-1.jsonl"), r.rows) for r in released] == [(True, True, 3)]
    assert fixed.ingestion.quarantine.release("l", reasons=["rule: v is not 50"]) == []
    assert [r.rows for r in fixed.ingestion.quarantine.release("c")] == [2, 1]
    assert [r.rows for r in fixed.ingestion.quarantine.release("p")] == [1]
    assert sorted(_accepted(fixed.ingest())) == [("c", 2, 1), ("l", 2, 1), ("p", 1, 0)]
    assert rows_of(read_log(fixed.workspace, "l", fixed.ledger.head), "k", "v") == [("a", 1), (ODD, 50), ("ü", 50)]
    assert rows_of(read_log(fixed.workspace, "c", fixed.ledger.head), "k", "v") == [("a", 1), ("b||b", None), ("c", None)]
    raw_times = fixed.views.table("events/p").selectExpr("unix_micros(event_time_raw) AS t", "k", "v")
    assert rows_of(raw_times) == [(START * 1000 + 1, "a", 1), (START * 1000 + 999_999, "b", 99)]
    assert [(r.reason, r.rows, r.released) for r in fixed.ingestion.quarantine_list.rows("l")] == [
        ("malformed: not UTF-8", 2, 1),
        ("rule: v is not 50", 2, 2),
        ("malformed: not a JSON object", 1, 0),
        ("rule: v is small", 1, 0),
    ]
    assert fixed.ingest() == []

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt("by hand")

    for owner, method in ((Lake, "update"), (Release, "_make_visible")):
        with monkeypatch.context() as patched:
            patched.setattr(owner, method, interrupt)
            with pytest.raises(KeyboardInterrupt, match="by hand"):
                fixed.ingestion.quarantine.release("l", reasons=["rule: v is small"])
        assert fixed.ingest() == []
    [finished] = make_engine(_sources(fixed=True), []).ingestion.quarantine.release("l", reasons=["rule: v is small"])
    assert finished.rows == 1
    land(fixed, "c", "3.csv", ["k||v||ts", "few", "fewer"])
    assert sorted(_accepted(fixed.ingest())) == [("c", 0, 2), ("l", 1, 0)]
    assert _keys(fixed) == ["a", ODD, "c", "ü"]
    assert fixed.ingestion.quarantine.release("l", reasons=["rule: v is small"]) == []
    assert [p.name for p in Path(fixed.folders["l"]).glob(".*releasing*")] == []

    (Path(fixed.folders["c"]) / "3.csv").unlink()
    message = r"rows of source 'c' cannot be released: .* in the header of file:.*/3\.csv, but it cannot be read \(FileNotFound"
    with pytest.raises(QuarantineError, match=message):
        fixed.ingestion.quarantine.release("c", names=["3.csv"])
    released_files = [path.name for path in Path(fixed.folders["c"]).glob("released-*.csv")]
    assert [r.rows for r in fixed.ingestion.quarantine.release("c", names=released_files)] == [1]
    assert _accepted(fixed.ingest()) == [("c", 0, 1)]
    assert _counts_add_up(fixed)


def test_uncommitted_rows_are_neither_listed_nor_released(make_engine: MakeEngine) -> None:
    """Their file is still new, so after a correction of the contract their release would double them."""
    first = make_engine([source("l", rules=STRICT)], [])
    land(first, "l", "1.jsonl", [Event("a", 99, 0).line])
    run_and_die(first.ingest, "ingest.after_quarantine")
    without = make_engine([source("r")], [])
    land(without, "r", "1.jsonl", [Event("b", 1, 0).line])
    assert _accepted(without.ingest()) == [("r", 1, 0)]
    fixed = make_engine([source("l"), source("r")], [])
    assert fixed.ingestion.quarantine_list.rows("l") == []
    assert fixed.ingestion.quarantine.release("l") == []
    assert _accepted(fixed.ingest()) == [("l", 1, 0)]


def test_a_release_marks_no_uncommitted_row(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", rules=STRICT)], [])
    land(engine, "l", "1.jsonl", [Event("a", 99, 0).line])
    engine.ingest()
    land(engine, "l", "2.jsonl", [Event("b", 99, 0).line])
    run_and_die(engine.ingest, "ingest.after_quarantine")
    without = make_engine([source("r")], [])
    land(without, "r", "1.jsonl", [Event("c", 1, 0).line])
    without.ingest()
    [released] = make_engine([source("l", rules=STRICT)], []).ingestion.quarantine.release("l")
    assert released.rows == 1
    assert rows_of(engine.views.table("quarantine/l"), "seq", "released") == [(1, released.name), (2, None)]


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("b c.csv", True),
        ("a/b c.csv", True),
        ("/in/a/b c.csv", True),
        ("file:/in/a/b%20c.csv", True),
        ("file:///in/a/b%20c.csv", True),
        ("c.csv", False),
        ("b%20c.csv", False),
    ],
)
def test_a_file_is_selected_by_its_path_or_the_last_parts_of_it(name: str, fits: bool) -> None:
    assert is_named("file:/in/a/b%20c.csv", name) is fits


def test_a_deleted_file_is_not_retried_and_an_error_if_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: Any = SimpleNamespace(files=lambda _: [QuarantinedFile(File(1, "file:/in/l/lost.csv", MISSING_LENGTH, "l"), 1)])
    ledger: Any = SimpleNamespace(file_records=lambda *_: None)
    nothing: Any = None
    monkeypatch.setattr(Quarantine, "_writing", lambda *_: nullcontext())
    quarantine = Quarantine(nothing, nothing, ledger, {}, listed=listed)
    assert quarantine.retry("l") == []
    with pytest.raises(QuarantineError, match=r"lost\.csv' of source 'l', which was deleted before it was read"):
        quarantine.retry("l", ["lost.csv"])
