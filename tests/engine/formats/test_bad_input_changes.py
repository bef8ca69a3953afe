"""Input that changes: files that grow, are replaced or disappear, new columns, many rows of one key, and clocks that step back."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from assets.contracts import ContractError
from platform_defs.engine import Engine, IngestError
from platform_defs.engine.formats.files import File
from platform_defs.engine.ingest.schema_evolution import MOST_ADDED
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.ledger.ledger import SourceBatch
from tests.conftest import MakeEngine
from tests.support.clock import NOON, Clock
from tests.support.small_sources import DAY, HOUR, MINUTE, ROW, START, Event, iso, join, land, replay, rows_of, source

CHANGED = "malformed: the file changed after it was read; its new rows can be ingested under another name"
EMPTY, MISSING = "malformed: the file is empty", "malformed: the file was deleted before it was read"
TIME = iso(START)


def _line(k: str, /, **changes: Any) -> str:
    return json.dumps({"k": k, "v": 1, "ts": TIME, **changes})


def _bytes(*keys: str) -> bytes:
    return "".join(_line(k) + "\n" for k in keys).encode()


def _write(engine: Engine, name: str, file: str, content: bytes, modified: int) -> Path:
    path = Path(engine.folders[name]) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, ns=(0, modified * 1_000_000))
    return path


def _quarantine_reasons(engine: Engine, name: str, seq: int) -> list[tuple[str, str]]:
    found = engine.views.table(f"quarantine/{name}").where(f"seq = {seq}").collect()
    return sorted((Path(r.path).name, r.reason) for r in found)


def _keys(engine: Engine, name: str = "l") -> list[Any]:
    return [k for (k,) in rows_of(read_log(engine.workspace, name, engine.ledger.head), "k")]


def test_files_with_non_utf8_names_are_refused_once_and_ingested_after_a_rename(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [])
    latin = [_write(engine, "l", name, _bytes(k), NOON) for name, k in (("m\udcfcller.jsonl", "a"), ("m\udcf6ller.jsonl", "b"))]
    _write(engine, "l", "müller �.jsonl", _bytes("c"), NOON)
    [[ingested]] = engine.ingest()
    assert (ingested.accepted, ingested.quarantined) == (1, 2)
    fault = "malformed: its name is not UTF-8, and Spark cannot open it; rename the file"
    assert _quarantine_reasons(engine, "l", 1) == [("m%F6ller.jsonl", fault), ("m%FCller.jsonl", fault)]
    assert engine.ingest() == engine.ingest() == []
    assert [f.file.path.rpartition("/")[2] for f in engine.ingestion.quarantine_list.files("l")] == ["m%F6ller.jsonl", "m%FCller.jsonl"]
    for path, name in zip(latin, ("ü.jsonl", "ö.jsonl"), strict=True):
        path.rename(path.with_name(name))
    [[ingested]] = engine.ingest()
    assert (ingested.accepted, ingested.quarantined) == (2, 0)
    assert _keys(engine) == ["a", "b", "c"]
    assert engine.ingest() == []


def test_files_that_change_before_or_during_a_read_are_detected(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [])
    whole = gzip.compress(_bytes("healed"))
    for file, content in {
        "grown.jsonl": _bytes("a"),
        "replaced.jsonl": _bytes("b"),
        "touched.jsonl": _bytes("c"),
        "filled.jsonl": b"",
        "healed.jsonl.gz": whole[:-8],
        "kept.jsonl": _bytes("d"),
        "written.parquet": _parquet("written")[:-4],
        "renamed.jsonl.gz": whole[:-8],
    }.items():
        _write(engine, "l", file, content, NOON)
    deleted = File(NOON, f"file:{engine.folders['l']}/gone.jsonl", 10, "l")
    batch = engine.ingestion.batches.files([*_listed(engine), deleted])
    assert batch is not None
    torn = "malformed: the file cannot be read: EOFException: Unexpected end of input stream"
    accepted = ["a", "b", "c", "d"]
    assert _keys(engine) == accepted
    assert _quarantine_reasons(engine, "l", 1) == [
        ("filled.jsonl", EMPTY),
        ("gone.jsonl", MISSING),
        ("healed.jsonl.gz", torn),
        ("renamed.jsonl.gz", torn),
        ("written.parquet", "malformed: the file cannot be read as Parquet"),
    ]
    assert engine.ingest() == []

    _write(engine, "l", "grown.jsonl", _bytes("a", "more"), NOON + 1)
    _write(engine, "l", "replaced.jsonl", _bytes("z"), NOON + 1)
    _write(engine, "l", "touched.jsonl", _bytes("c"), NOON + 1)
    _write(engine, "l", "filled.jsonl", _bytes("filled"), NOON + 1)
    _write(engine, "l", "gone.jsonl", _bytes("back"), NOON)
    _write(engine, "l", "healed.jsonl.gz", whole, NOON + 1)
    _write(engine, "l", "written.parquet", _parquet("written"), NOON + 1)
    _write(engine, "l", "renamed again.jsonl.gz", gzip.compress(_bytes("renamed")), NOON + 1)
    ingested = [source_batch for batch in engine.ingest() for source_batch in batch]
    assert sorted(_quarantine_reasons(engine, "l", 2) + (_quarantine_reasons(engine, "l", 3) if len(ingested) > 1 else [])) == [
        ("grown.jsonl", CHANGED),
        ("replaced.jsonl", CHANGED),
        ("touched.jsonl", CHANGED),
    ]
    assert _keys(engine) == sorted([*accepted, "filled", "back", "healed", "renamed", "written"])
    assert (sum(s.accepted for s in ingested), sum(s.quarantined for s in ingested)) == (5, 3)
    assert engine.ingest() == []


def _parquet(*keys: str) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": keys, "v": [1] * len(keys), "ts": [TIME] * len(keys)}), out)
    return out.getvalue().to_pybytes()


def _listed(engine: Engine) -> list[File]:
    folder = Path(engine.folders["l"])
    return [File(NOON, f"file:{p}", p.stat().st_size, "l") for p in folder.iterdir()]


WIDE = StructType([*ROW.fields]).add("w", "string")


def test_new_columns_are_ignored_refused_or_added(make_engine: MakeEngine) -> None:
    options = {"allowUnquotedFieldNames": "true"}
    sources = [
        source("l", new_columns="add", options=options),
        source("r", options=options),
        source("out", new_columns="quarantine", options=options),
    ]
    engine = make_engine(sources, [join()])
    replay(engine, [{name: [Event("a", 1, 0)] for name in ("l", "r", "out")}])  # two batches: the rows, and the watermarks
    engine.advance("pairs")

    odd = {"_x": 1, "seq": 2, "a b": 3, "": 4}
    for name in ("l", "r", "out"):
        land(engine, name, "2.jsonl", [_line("b", w=7, ts=iso(START + HOUR)).replace('"w"', "w"), _line("c", ts=iso(START + HOUR))])
    land(engine, "out", "2.csv", ["k,v,ts,w", f"d,1,{TIME},8"])
    land(engine, "l", "2.csv", ["k,v,ts,W", f"d,1,{TIME},8"])
    land(engine, "l", "odd.jsonl", [_line(f"no {n}", **{n: v}) for n, v in odd.items()])
    table = pa.table({"k": ["p"], "v": [1], "ts": [TIME], "n": [5]})
    for name in ("l", "out"):
        pq.write_table(table, Path(engine.folders[name]) / "2.parquet")
    [batch] = engine.ingest()
    counts = {s.source: (s.accepted, s.quarantined) for s in batch}
    assert counts == {"l": (4, 4), "r": (2, 0), "out": (1, 3)}
    reason = "malformed: it has columns that the contract does not name: "
    assert _quarantine_reasons(engine, "out", 3) == [("2.csv", f"{reason}w"), ("2.jsonl", f"{reason}w"), ("2.parquet", f"{reason}n")]
    assert {found for _, found in _quarantine_reasons(engine, "l", 3)} == {reason + n for n in odd}
    added = [("a", None, None), ("b", "7", None), ("c", None, None), ("d", "8", None), ("p", None, 5)]
    assert rows_of(engine.views.table("events/l"), "k", "w", "n") == added
    assert read_log(engine.workspace, "l", 3).columns == ["seq", "arrival", "event_time", "event_time_raw", "k", "v", "ts"]

    fix = "the first file with this column had that type: send it as that type, or under another name"
    land(engine, "l", "3.jsonl", [_line("e", n="six", w=None, ts=iso(START + 3 * HOUR))])
    land(engine, "r", "3.jsonl", [_line("e", ts=iso(START + 3 * HOUR))])
    engine.ingest()
    assert _quarantine_reasons(engine, "l", 4) == [("3.jsonl", f"type: n is no bigint; {fix}")]
    engine.drain()
    engine.advance("pairs")
    assert all(account.holds for account in engine.accounts.days("pairs"))
    assert rows_of(engine.views.table("pairs").where("right_v is not null and left_v is not null"), "k") == [("a",), ("b",), ("c",)]

    declared = make_engine([source("l", schema=WIDE), source("r"), source("out")], [join()])
    assert rows_of(read_log(declared.workspace, "l", 4).where("w is not null"), "k", "w") == [("b", "7"), ("d", "8")]
    later = make_engine([source("l"), source("r", schema=WIDE), source("out")], [join()])
    land(later, "r", "4.jsonl", [_line("f", w=9, ts=iso(START + 3 * HOUR))])
    later.ingest()
    assert rows_of(read_log(later.workspace, "r", later.ledger.head).where("w is not null"), "k", "w") == [("f", "9")]


def test_at_most_a_fixed_number_of_columns_is_added(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", new_columns="add")], [])
    land(engine, "l", "1.jsonl", [_line("fits", **{f"c{n:04}": n for n in range(MOST_ADDED)}), _line("too many", c9999=1)])
    [[ingested]] = engine.ingest()
    assert (ingested.accepted, ingested.quarantined) == (1, 1)
    assert len(engine.views.table("events/l").columns) == 4 + len(ROW) + MOST_ADDED


def test_a_refused_new_column_is_named_with_its_file_and_the_fix(make_engine: MakeEngine) -> None:
    with pytest.raises(ContractError, match="`new_columns` is 'merge'; legal: ignore, quarantine, refuse, add"):
        source("l", new_columns="merge")
    engine = make_engine([source("l", new_columns="refuse")], [])
    land(engine, "l", "1.jsonl", [_line("a")])
    paths = [_write(engine, "l", file, f"{_line('b', w=1)}\n".encode(), NOON + n) for n, file in enumerate(["2.jsonl", "0.jsonl"])]
    message = r"source 'l' refuses new columns and file:.*/2\.jsonl has 'w'; nothing .* committed\. Add the column .* or take the file away"
    with pytest.raises(IngestError, match=message):
        engine.ingest()
    assert engine.ledger.head == 0
    for path in paths:
        path.unlink()
    restarted = make_engine([source("l", new_columns="refuse")], [])
    assert [s.accepted for e in restarted.ingest() for s in e] == [1]
    assert _keys(restarted) == ["a"]


def test_a_clock_step_late_rows_and_an_empty_day_keep_the_law(make_engine: MakeEngine, clock: Clock) -> None:
    engine = make_engine([source("l", future_skew="7 days"), source("r", idle_timeout="12 hours")], [join()])
    land(engine, "l", "1.jsonl", [Event("a", 1, 5 * HOUR).line])
    land(engine, "r", "1.jsonl", [Event("a", 1, 5 * HOUR).line])
    [first] = engine.ingest()
    engine.advance("pairs")
    clock.now = NOON - 3 * DAY
    land(engine, "l", "2.jsonl", [Event("a", 2, HOUR).line, Event("b", 3, 2 * HOUR).line])
    [late] = engine.ingest()
    assert late[0].ingested_at == first[0].ingested_at + 1
    assert (late[0].accepted, late[0].quarantined, late[0].watermark) == (2, 0, first[0].watermark)
    assert rows_of(engine.views.late("pairs", "l"), "v") == [(2,), (3,)]
    clock.now = NOON + DAY
    [idle] = engine.ingest()
    assert [(s.source, s.kind, s.idle) for s in idle] == [("r", "inactive", True)]
    land(engine, "l", "3.jsonl", [Event("c", 4, 30 * HOUR).line])
    engine.ingest()
    engine.advance("pairs")
    assert engine.pending.describe_progress("pairs")["watermark"] == START + 30 * HOUR - MINUTE - 1
    assert all(account.holds for account in engine.accounts.days("pairs"))


def _ingest_one_key(engine: Engine, file: str, rows: int, step: int, key: str) -> SourceBatch:
    """Ingest many rows of one key, `step` ms apart."""
    folder = Path(engine.folders["l"])
    folder.mkdir(parents=True, exist_ok=True)
    times = pa.array(range(START, START + rows * step, step) if step else [START] * rows, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    pq.write_table(pa.table({"k": pa.array([key] * rows), "v": pa.array(range(rows), pa.int32()), "ts": times}), folder / file)
    [[ingested]] = engine.ingest()
    return ingested


@pytest.mark.parametrize("same_rows", [20_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_many_rows_of_one_key_are_ingested(make_engine: MakeEngine, same_rows: int) -> None:
    """With 100,000 rows, work that grows with the square of the rows of a key would not end; 20,000 rows check the counts.

    For so many rows, Spark finds the duplicates.
    """
    apart_rows = same_rows // 2
    engine = make_engine([source("l", unique_key=("k",), duplicate_horizon="1 second")], [])
    same = _ingest_one_key(engine, "same.parquet", same_rows, 0, "same")
    assert (same.rows_read, same.accepted, same.duplicate) == (same_rows, 1, same_rows - 1)
    apart = _ingest_one_key(engine, "apart.parquet", apart_rows, 1_001, "apart")
    assert (apart.accepted, apart.duplicate) == (apart_rows, 0)
    assert read_log(engine.workspace, "l", 2).count() == apart_rows + 1


@pytest.mark.parametrize(("rows", "step"), [(20_000, 40), pytest.param(100_000, 8, marks=pytest.mark.soak)])
def test_many_rows_of_one_key_are_joined_and_counted(make_engine: MakeEngine, rows: int, step: int) -> None:
    """The left rows, `step` ms apart, are more than the join's interval holds."""
    assert rows * step > 10 * MINUTE
    engine = make_engine([source("l"), source("r")], [join()])
    assert _ingest_one_key(engine, "hot.parquet", rows, step, "hot").accepted == rows
    land(engine, "r", "1.jsonl", [Event("hot", 1, 5 * MINUTE).line])
    engine.ingest()
    engine.drain()
    engine.advance("pairs")
    matched = 10 * MINUTE // step + 1
    found = engine.views.table("pairs").groupBy(F.col("right_v").isNotNull()).count().collect()
    assert dict(map(tuple, found)) == {True: matched, False: rows - matched}
    assert all(account.holds for account in engine.accounts.days("pairs"))
