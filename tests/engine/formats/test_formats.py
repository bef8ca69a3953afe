"""Files of every format: each row is ingested, or quarantined unchanged with its reason."""

import gzip
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from assets.contracts import RowRule
from assets.days import moment
from platform_defs.engine import Engine
from platform_defs.engine.ingest.quarantine_error import QuarantineError
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import SourceBatch
from tests.conftest import MakeEngine
from tests.operators.frames import tagged
from tests.support.clock import NOON, Clock
from tests.support.small_sources import DAY, MINUTE, START, iso, land, rows_of, source

pytestmark = pytest.mark.compiled
SCHEMA = StructType().add("k", "string", nullable=False).add("v", "integer").add("ts", "timestamp").add("note", "string")
RULES = (RowRule("v is positive", "v >= 0"), RowRule("v is small", "v < 1000", "warn"))
TIME = iso(START)


@dataclass(frozen=True)
class Line:
    """A JSON line and its outcome: ingested with its id as key, or quarantined with the reason."""

    id: str
    line: str
    reason: str | None = None


def _row(k: str, /, **changes: Any) -> str:
    import json

    return json.dumps({"k": k, "v": 1, "ts": TIME, **changes}, ensure_ascii=False)


MALFORMED = "malformed: not a JSON object"
FAR, OUT_OF_RANGE = "event time: more than 24 hours ahead of the clock", "event time: not in the years 1 to 9999"
LINES = [
    Line("plain", _row("plain")),
    Line("no JSON, in Unicode", 'das ist kein JSON: Größe 漢字 🐟 \u2028 \\ "', MALFORMED),
    Line("cut off", '{"k": "cut", "v": 1, "ts": "2026-', MALFORMED),
    Line("an array", f"[{_row('an array')}]", MALFORMED),
    Line("null", "null", MALFORMED),
    Line("a number", "12", MALFORMED),
    Line("two objects", _row("two objects") + " " + _row("two objects"), MALFORMED),
    Line("text after the object", _row("text after") + " and more", MALFORMED),
    Line("a brace too many", _row("a brace too many") + "}", MALFORMED),
    Line("braces in a text", _row("braces in a text", note="} {")),
    Line("spaces around", "  " + _row("spaces around") + "  "),
    Line("a nested value as text", '{"k": "a nested value as text", "v": 1, "ts": "2026-03-01T00:00:00Z", "note": {"a": {"b": 1}}}'),
    Line("an empty object", "{}", "missing: k"),
    Line("null in a column that is not nullable", _row("x", k=None, v=11), "missing: k"),
    Line("text for a number", _row("x", v="many"), "type: v is no int"),
    Line("a fraction for a whole number", _row("x", v=1.5), "type: v is no int"),
    Line("a number too large", _row("x", v=3_000_000_000), "type: v is no int"),
    Line("a number as text", _row("a number as text", v="7")),
    Line("null for a number", _row("null for a number", v=None)),
    Line("no time", _row("x", ts="yesterday, about noon"), "type: ts is no timestamp"),
    Line("month 13", _row("x", ts="2026-13-01T00:00:00Z"), "type: ts is no timestamp"),
    Line("a null time", _row("x", ts=None), "event time: missing"),
    Line("no time column", '{"k": "x", "v": 3}', "event time: missing"),
    Line("the year 2099", _row("x", ts="2099-01-01T00:00:00Z"), FAR),
    Line("as far ahead as allowed", _row("as far ahead as allowed", ts=iso(NOON + DAY))),
    Line("a millisecond further ahead", _row("x", ts=iso(NOON + DAY + 1)), FAR),
    Line("the year 10000", _row("x", ts="+10000-01-01T00:00:00Z"), OUT_OF_RANGE),
    Line("the year 12345", _row("x", ts="+12345-01-01T00:00:00Z"), OUT_OF_RANGE),
    Line("a number by accident", _row("x", ts=12345), "type: ts is no timestamp"),
    Line("before the year 1", _row("x", ts="0000-12-31T23:59:59Z"), OUT_OF_RANGE),
    Line("the first of the year 1", _row("the first of the year 1", ts="0001-01-01T00:00:00Z")),
    Line("another zone", _row("another zone", ts="2026-03-01T02:00:00.001+02:00")),
    Line("finer than a millisecond", _row("finer than a millisecond", ts="2026-03-01T00:00:00.123999Z")),
    Line("finer, before 1970", _row("finer, before 1970", ts="1969-12-31T23:59:59.999999Z")),
    Line("a rule violated", _row("x", v=-1), "rule: v is positive"),
    Line("a rule violated, and a missing time", _row("x", v=-1, ts=None), "event time: missing"),
    Line("a warning rule violated", _row("a warning rule violated", v=5000)),
    Line("a column of no contract", _row("a column of no contract", other=[1, {"a": 2}])),
    Line("a Windows line break", _row("a Windows line break") + "\r"),
    Line("Ünïcödé 漢字 🐟", _row("Ünïcödé 漢字 🐟", note="\u2028")),
]
BLANK = ["", "   ", "\r"]

NAMES = [
    "a b.jsonl",
    "100%.jsonl",
    "p%20q.jsonl",
    "[x]{y,z}.jsonl",
    "star*what?.jsonl",
    "ümläut 漢.jsonl",
    "می\u200cروم.jsonl",
    "👩\u200d👩.jsonl",
    "#hash+plus&amp;.jsonl",
    "dots.v1.2.json",
    "UPPER.JSON",
]

CSV = {
    "plain.csv": ["k,v,ts,note", f"plain,1,{TIME},n"],
    "order.csv": ["ts,note,extra,v,k", f"{TIME},n,e,2,another order"],
    "lacks.csv": ["k,v", "lacks,1", "lacks,2"],
    "fields.csv": ["k,v,ts,note", f"few,1,{TIME}", f"many,1,{TIME},n,m", f"just,1,{TIME},n"],
    "quoted.csv": ["k,v,ts,note", f'"a, b",1,{TIME},"say ""x"", y"'],
    "bom.csv": ["\ufeffk,v,ts,note", f"bom,1,{TIME},n"],
    "bomquoted.csv": ['\ufeff"k","v","ts","note"', f"bom and quotes,1,{TIME},n"],
    "twice.csv": ["k,k,v,ts,note", f"twice,x,1,{TIME},n"],
    "again.csv": ["k,v,ts,note", f"before,1,{TIME},n", "k,v,ts,note", f"after,1,{TIME},n"],
    "blank.csv": ["", "k,v,ts,note", "", f"blanks around,1,{TIME},n", "  "],
    "windows.csv": ["k,v,ts,note\r", f"windows,1,{TIME},n\r"],
    "empty.csv": [],
    "header.csv": ["k,v,ts,note"],
    "values.csv": [
        "k,v,ts,note",
        f",1,{TIME},n",
        f"null number,,{TIME},n",
        f"text,x,{TIME},n",
        "no time,1,,n",
        f"unicode 漢字 🐟,1,{TIME},ü",
    ],
}
CSV_ACCEPTED = {
    "plain",
    "another order",
    "just",
    "a, b",
    "bom",
    "bom and quotes",
    "before",
    "after",
    "blanks around",
    "windows",
    "null number",
    "unicode 漢字 🐟",
}
COUNT = "malformed: not 4 fields, as its file's header has"
CSV_QUARANTINED = {
    ("k,v", "malformed: the file's header lacks ts, note"),
    ("k,k,v,ts,note", "malformed: the file's header has a name twice"),
    ("empty.csv", "malformed: the file is empty"),
    ("lacks,1", "malformed: the file's header lacks ts, note"),
    ("lacks,2", "malformed: the file's header lacks ts, note"),
    (f"few,1,{TIME}", COUNT),
    (f"many,1,{TIME},n,m", COUNT),
    (f"twice,x,1,{TIME},n", "malformed: the file's header has a name twice"),
    (f",1,{TIME},n", "missing: k"),
    (f"text,x,{TIME},n", "type: v is no int"),
    ("no time,1,,n", "event time: missing"),
    ("k,v,ts,note", "type: v is no int"),
}

_UTC = pa.timestamp("us", tz="UTC")
_AT = [moment(START)]
PARQUET = {
    "typed": {"k": pa.array(["typed"]), "v": pa.array([1], pa.int32()), "ts": pa.array(_AT, _UTC), "note": pa.array(["n"])},
    "no_v": {"k": pa.array(["no v"]), "ts": pa.array(_AT, _UTC)},
    "no_k": {"v": pa.array([41], pa.int32()), "ts": pa.array(_AT, _UTC)},
    "case": {"K": pa.array(["another case"]), "V": pa.array([1], pa.int32()), "TS": pa.array(_AT, _UTC)},
    "text": {"k": pa.array(["text that reads", "text that does not"]), "v": pa.array(["7", "x"]), "ts": pa.array([TIME, TIME])},
    "wide": {"k": pa.array(["wide that fits", "too wide"]), "v": pa.array([1, 3_000_000_000]), "ts": pa.array(_AT * 2, _UTC)},
    "number": {"k": pa.array([12]), "v": pa.array([1], pa.int32()), "ts": pa.array(_AT, pa.timestamp("ms"))},
    "a b%20[c]": {"k": pa.array(["odd name"]), "v": pa.array([1], pa.int32()), "ts": pa.array(_AT, _UTC)},
}
PARQUET_ACCEPTED = {
    ("typed", 1),
    ("no v", None),
    ("another case", 1),
    ("text that reads", 7),
    ("wide that fits", 1),
    ("12", 1),
    ("odd name", 1),
}
PARQUET_QUARANTINED = {("no_k", "missing: k"), ("text", "type: v is no int"), ("wide", "type: v is no int")}


@dataclass(frozen=True)
class Found:
    """The result of one batch of all files."""

    engine: Engine
    ingested: dict[str, SourceBatch]
    log: dict[str, list[Row]]
    quarantine: dict[str, list[Row]]

    def in_order(self, name: str) -> list[str]:
        return [r.k for r in sorted(self.log[name], key=lambda r: r.arrival)]


def _land_all(engine: Engine) -> None:
    half = len(LINES) // 2
    lines = [case.line for case in LINES]
    land(engine, "json", "lines.jsonl", [*BLANK, *lines[:half], *BLANK, *lines[half:], *BLANK])
    for file, content in CSV.items():
        land(engine, "csv", file, content)
    folder = Path(engine.folders["parquet"])
    folder.mkdir(parents=True)
    for file, columns in PARQUET.items():
        pq.write_table(pa.table(columns), folder / f"{file}.parquet")
    _land_names(engine)


def _land_names(engine: Engine) -> None:
    """Write two rows to each file; three files share each modification time, and later names have earlier times."""
    for n, file in enumerate(sorted(NAMES)):
        path = land(engine, "names", file, [_row(f"{file}|{i}") for i in range(2)])
        os.utime(path, ns=(0, (NOON - n // 3 * MINUTE) * 1_000_000))
    folder = Path(engine.folders["names"])
    (folder / "packed.jsonl.gz").write_bytes(gzip.compress(f"{_row('packed|0')}\n{_row('packed|1')}\n".encode()))
    (folder / "bom.jsonl").write_text(f"\ufeff{_row('bom|0')}\n{_row('bom|1')}\n", encoding="utf-8")
    (folder / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    (folder / "notes.bz2").write_bytes(b"one")
    (folder / "nosuffix").write_text("one\n", encoding="utf-8")
    for hidden in (".hidden.jsonl", "_hidden.jsonl"):
        (folder / hidden).write_text(_row("hidden"), encoding="utf-8")


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """One batch of all sources."""
    root = tmp_path_factory.mktemp("formats")
    sources = {n: source(n, schema=SCHEMA, rules=RULES, future_skew="24 hours") for n in ("json", "csv", "parquet", "names")}
    engine = Engine(Lake(str(root / "lake")), sources, {}, lambda: spark, Clock(), folders={n: str(root / "landing" / n) for n in sources})
    _land_all(engine)
    batches = engine.ingestion.stream.run()
    assert len(batches) == 1
    logs = {n: read_log(engine.workspace, n, 1).selectExpr("k", "v", "note", "arrival", "cast(ts as string) AS ts") for n in sources}
    quarantines = {n: engine.views.table(s.quarantine) for n, s in sources.items()}
    return Found(engine, {s.source: s for s in batches[0]}, _rows_by_source(logs), _rows_by_source(quarantines))


def _rows_by_source(tables: Mapping[str, DataFrame]) -> dict[str, list[Row]]:
    """The rows of several tables, which one query reads."""
    rows = tagged(tables).collect()
    return {name: [row for row in rows if row.tag == name] for name in tables}


@pytest.mark.parametrize("case", LINES, ids=lambda c: c.id)
def test_a_json_line_is_ingested_or_quarantined_unchanged(found: Found, case: Line) -> None:
    quarantined = [r for r in found.quarantine["json"] if r.raw == case.line.removesuffix("\r")]
    accepted = [r for r in found.log["json"] if r.k == case.id]
    assert [r.reason for r in quarantined] == ([] if case.reason is None else [case.reason])
    assert len(accepted) == (case.reason is None)


def test_json_lines_keep_their_order_and_blank_lines_are_skipped(found: Found) -> None:
    assert found.in_order("json") == [case.id for case in LINES if case.reason is None]
    assert [r.raw for r in sorted(found.quarantine["json"], key=lambda r: r.arrival)] == [c.line for c in LINES if c.reason]
    assert found.ingested["json"].rows_read == len(LINES)
    assert found.ingested["json"].warned == 1


@pytest.mark.parametrize(
    ("k", "time", "raw"),
    [
        ("finer than a millisecond", "2026-03-01 00:00:00.123000", "2026-03-01 00:00:00.123999"),
        ("finer, before 1970", "1969-12-31 23:59:59.999000", "1969-12-31 23:59:59.999999"),
        ("another zone", "2026-03-01 00:00:00.001000", "2026-03-01 00:00:00.001000"),
    ],
)
def test_times_are_floored_to_a_millisecond_and_the_raw_time_is_kept(found: Found, k: str, time: str, raw: str) -> None:
    log = read_log(found.engine.workspace, "json", 1).where(f"k = '{k}'")
    times = log.selectExpr(
        "date_format(event_time, 'yyyy-MM-dd HH:mm:ss.SSSSSS')", "date_format(event_time_raw, 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
    )
    assert [tuple(r) for r in times.collect()] == [(time, raw)]


def test_csv_columns_are_matched_by_the_header_of_each_file(found: Found) -> None:
    assert {r.k for r in found.log["csv"]} == CSV_ACCEPTED
    assert len(found.log["csv"]) == len(CSV_ACCEPTED)
    assert {(r.raw.split("/")[-1], r.reason) for r in found.quarantine["csv"]} == CSV_QUARANTINED
    assert len(found.quarantine["csv"]) == len(CSV_QUARANTINED)
    by_key = {r.k: (r.v, r.note) for r in found.log["csv"]}
    assert by_key["another order"] == (2, "n")
    assert by_key["a, b"] == (1, 'say "x", y')
    assert by_key["null number"] == (None, "n")


def test_comments_and_spaces_around_fields_are_skipped_if_the_options_say_so(make_engine: MakeEngine) -> None:
    options = {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true", "comment": "#"}
    engine = make_engine([source("l", options=options, rules=(RowRule("small", "v < 10"),))], [])
    row = f"b, 20, {TIME}"
    land(engine, "l", "1.csv", ["# by hand", ' k, "v" , ts', f"a , 1, {TIME}", "# a comment", row])
    land(engine, "l", "2.csv", ["\ufeff# a byte order mark", "k,v,ts", f"c,1,{TIME}"])
    [[ingested]] = engine.ingest()
    assert (ingested.rows_read, ingested.accepted, ingested.quarantined) == (3, 2, 1)
    fixed = make_engine([source("l", options=options)], [])
    [released] = fixed.ingestion.quarantine.release("l")
    assert (Path(fixed.folders["l"]) / released.name).read_text() == f' k, "v" , ts\n{row}\n'
    assert [s.accepted for [s] in fixed.ingest()] == [1]
    assert rows_of(read_log(fixed.workspace, "l", 2), "k", "v") == [("a", 1), ("b", 20), ("c", 1)]


def test_parquet_values_are_converted_to_the_types_of_the_contract(found: Found) -> None:
    assert {(r.k, r.v) for r in found.log["parquet"]} == PARQUET_ACCEPTED
    assert len(found.log["parquet"]) == len(PARQUET_ACCEPTED)
    assert {(Path(r.path).stem, r.reason) for r in found.quarantine["parquet"]} == PARQUET_QUARANTINED
    assert {r.ts for r in found.log["parquet"]} == {"2026-03-01 00:00:00"}
    assert '"v":41' in next(r.raw for r in found.quarantine["parquet"] if r.reason == "missing: k")


def test_any_file_name_is_read_and_unknown_formats_are_reported(found: Found) -> None:
    files = [*NAMES, "packed", "bom"]
    assert sorted(found.in_order("names")) == sorted(f"{f}|{i}" for f in files for i in range(2))
    reason = "malformed: the file is not .csv, .json, .jsonl, .ndjson, .parquet, nor one of these packed as .gz"
    unknown = ["nosuffix", "notes.bz2", "notes.txt"]
    assert sorted((Path(r.path).name, r.reason) for r in found.quarantine["names"]) == [(name, reason) for name in unknown]
    assert sorted(o.split("|")[0] for o in found.ingested["names"].offsets if o.endswith("|unread")) == [f"./{n}" for n in unknown]
    quarantined = found.engine.ingestion.quarantine_list.files("names")
    assert [(Path(f.file.path).name, f.reason) for f in quarantined] == [(name, reason) for name in unknown]
    with pytest.raises(QuarantineError, match=r"notes\.bz2' of source 'names', which would be refused again: the file is not \.csv"):
        found.engine.ingestion.quarantine.retry("names", ["notes.bz2"])


def test_rows_arrive_by_modification_time_then_path_then_position(found: Found) -> None:
    from urllib.parse import unquote

    offsets = [o.split("|") for o in found.ingested["names"].offsets]
    ordered = sorted(offsets, key=lambda o: (int(o[1]), o[0]))
    names = [unquote(Path(o[0]).name) for o in ordered]
    expected = [
        f"{n.removesuffix('.jsonl.gz').removesuffix('.jsonl') if n.startswith(('packed', 'bom')) else n}|{i}"
        for n in names
        for i in range(2)
    ]
    assert found.in_order("names") == [e for e in expected if not e.startswith(("notes", "nosuffix"))]


@pytest.mark.parametrize("name", ["json", "csv", "parquet", "names"])
def test_the_counts_of_the_ledger_add_up(found: Found, name: str) -> None:
    ingested = found.ingested[name]
    assert ingested.rows_read == ingested.accepted + ingested.duplicate + ingested.quarantined + ingested.markers
    assert (ingested.accepted, ingested.quarantined) == (len(found.log[name]), len(found.quarantine[name]))
    assert (ingested.duplicate, ingested.markers, ingested.seq) == (0, 0, 1)
    arrivals = [r.arrival for r in found.log[name] + found.quarantine[name]]
    assert len(set(arrivals)) == len(arrivals)
    assert len(ingested.offsets) == {"json": 1, "csv": len(CSV), "parquet": len(PARQUET), "names": len(NAMES) + 5}[name]
