"""Bad files and bad rows among good ones: each is quarantined with its reason, and every good row is ingested."""

import gzip
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType

from platform_defs.engine import Engine
from platform_defs.engine.days import moment
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import SourceEntry
from tests.support.clock import Clock
from tests.support.shopkeeping import START, iso, source

pytestmark = pytest.mark.compiled
TIME = iso(START)
ROW = StructType().add("k", "string", nullable=False).add("v", "integer").add("ts", "timestamp").add("note", "string")
VALUES = (
    StructType()
    .add("k", "string")
    .add("amount", "decimal(10,2)")
    .add("ratio", "double")
    .add("paid", "boolean")
    .add("due", "date")
    .add("ts", "timestamp")
    .add("seen", "timestamp")
    .add("at", StructType().add("x", "integer"))
)


@dataclass(frozen=True)
class Bad:
    """A file, the keys of its accepted rows, and the reasons of its quarantined rows, in order."""

    id: str
    name: str
    content: bytes
    accepted: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The source of the format."""
        return self.name.split("/")[0]


def _line(k: str, /, **changes: object) -> str:
    return json.dumps({"k": k, "v": 1, "ts": TIME, **changes}, ensure_ascii=False)


def _lines(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _torn(content: bytes) -> bytes:
    return content[: len(content) * 2 // 3]


def _packed(content: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def _bytes(columns: dict[str, pa.Array]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="none", write_statistics=False)
    return sink.getvalue().to_pybytes()


def _damaged(content: bytes) -> bytes:
    """A Parquet file with an intact footer and a corrupted first page."""
    return content[:4] + b"\xff" * 64 + content[68:]


THOUSAND = [_line(f"row {n}", v=n) for n in range(1, 1001)]
PACKED = gzip.compress(_lines(*[_line(f"p{n}", note=struct.pack(">d", n / 7).hex()) for n in range(3000)]))
NO_JSON, NO_TEXT = "malformed: not a JSON object", "malformed: not UTF-8"
CUT = "malformed: the file cannot be read: EOFException: "
OTHER = "malformed: the file is not .csv, .json, .jsonl, .ndjson, .parquet, nor one of these packed as .gz"


def _block(content: bytes, codec: str) -> bytes:
    """One block in Hadoop's format: the lengths of its content and of its packed bytes, and these. A cut after a block is undetectable."""
    packed = pa.compress(content, codec=codec, asbytes=True)
    return struct.pack(">II", len(content), len(packed)) + packed


JSON = [
    Bad("no bytes at all", "json/empty.jsonl", b"", reasons=("malformed: the file is empty",)),
    Bad("nothing but blank lines", "json/blank.jsonl", b"\n \n\t\n \t \r\n\x0c\n"),
    Bad("a packed file of no rows", "json/nothing.jsonl.gz", gzip.compress(b"")),
    Bad("a packed suffix in capitals", "json/upper.JSONL.GZ", gzip.compress(_lines(_line("packed"))), ("packed",)),
    Bad(
        "a torn packed file: none of its rows",
        "json/torn.jsonl.gz",
        _torn(PACKED),
        reasons=("malformed: the file cannot be read: EOFException: Unexpected end of input stream",),
    ),
    Bad(
        "bytes after a packed file's end: none of its rows",
        "json/trailing.jsonl.gz",
        PACKED + b"and more",
        reasons=("malformed: the file cannot be read: EOFException: Unexpected end of input stream",),
    ),
    Bad(
        "a plain file with a packed suffix",
        "json/plain.jsonl.gz",
        _lines(_line("x")),
        reasons=("malformed: the file cannot be read: IOException: not a gzip file",),
    ),
    Bad("a torn plain file: its last row alone", "json/torn.jsonl", _lines(_line("first"), _line("second"))[:-9], ("first",), (NO_JSON,)),
    Bad(
        "another type in row 1,000",
        "json/thousand.jsonl",
        _lines(*THOUSAND[:999], _line("row 1000", v="many")),
        tuple(f"row {n}" for n in range(1, 1000)),
        ("type: v is no int",),
    ),
    Bad("a field of 10 MB", "json/long.jsonl", _lines(_line("long", note="x" * 10_000_000), _line("after")), ("long", "after")),
    Bad(
        "Latin-1",
        "json/latin.jsonl",
        _line("café").encode("latin-1") + b"\n" + _lines(_line("plain")),
        ("plain",),
        (NO_TEXT,),
    ),
    Bad("UTF-16 with its mark", "json/wide.jsonl", f"{_line('a')}\n{_line('b')}\n".encode("utf-16"), reasons=(NO_TEXT, NO_JSON, NO_JSON)),
    Bad("a UTF-8 mark", "json/mark.jsonl", b"\xef\xbb\xbf" + _lines(_line("marked")), ("marked",)),
    Bad("NUL bytes between rows", "json/nul.jsonl", b"\0\0\0\n" + _lines(_line("after nul")), ("after nul",), (NO_JSON,)),
    Bad(
        "control characters: escaped ones are text, bare ones no JSON",
        "json/control.jsonl",
        _lines('{"k":"a\\u0000\\u0007b","ts":"' + TIME + '"}', '{"k":"a\tb","ts":"' + TIME + '"}'),
        ("a\x00\x07b",),
        (NO_JSON,),
    ),
    Bad(
        "half a surrogate pair; a whole one, and a backslash before it, are text",
        "json/half.jsonl",
        _lines(
            *[f'{{"k":"{k}","ts":"{TIME}"}}' for k in (r"\ud800", r"x\uDC00", r"\ud83d\ude00", r"\\ud800", r"\ud83d\u0041", r"\\\ud800")]
        ),
        ("\N{GRINNING FACE}", r"\ud800"),
        ("malformed: it holds half of a surrogate pair",) * 4,
    ),
    Bad(
        "nested deeper than the schema: kept as text, or left out",
        "json/deep.jsonl",
        _lines(_line("deep", note={"a": {"b": [1]}}, other={"c": {"d": 1}})),
        ("deep",),
    ),
    Bad("nested 1,200 deep", "json/abyss.jsonl", _lines('{"k":' * 1200 + "1" + "}" * 1200), reasons=(NO_JSON,)),
    Bad("a key twice: the last counts", "json/twice.jsonl", _lines('{"k":"one","k":"two","ts":"' + TIME + '"}'), ("two",)),
    Bad("arrays and bare values", "json/array.jsonl", _lines(f"[{_line('x')}]", "[]", '"x"', "7", "null"), reasons=(NO_JSON,) * 5),
    Bad(
        "one array over many lines",
        "json/pretty.json",
        b'[\n{"k": "a"},\n{"k": "b"}\n]\n',
        reasons=(NO_JSON, NO_JSON, "event time: missing", NO_JSON),
    ),
    Bad(
        "names of another case; harmless where the column has its value",
        "json/case.jsonl",
        _lines(f'{{"K":"x","ts":"{TIME}"}}', _line("both", V=2), f'{{"k":"V","ts":"{TIME}"}}', f'{{"k":"y","V":3,"ts":"{TIME}"}}'),
        ("both", "V"),
        (
            "malformed: it holds names of another case than the contract's: K",
            "malformed: it holds names of another case than the contract's: V",
        ),
    ),
    Bad("a bare NaN is no JSON", "json/nan.jsonl", _lines(f'{{"k":NaN,"ts":"{TIME}"}}'), reasons=(NO_JSON,)),
    Bad("carriage returns alone end lines", "json/mac.jsonl", f"{_line('m1')}\r{_line('m2')}\r".encode(), ("m1", "m2")),
    Bad(
        "noise with a known suffix",
        "json/noise.jsonl",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe",
        reasons=(NO_TEXT, NO_JSON, NO_JSON, NO_TEXT),
    ),
    Bad(
        "a stray picture",
        "json/logo.png",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        reasons=(OTHER,),
    ),
    Bad(
        "a packing that hides damage",
        "json/a.jsonl.bz2",
        b"BZh9 noise",
        reasons=(OTHER,),
    ),
    Bad("snappy, cut after its first block", "json/cut.jsonl.snappy", _block(_lines(_line("first block")), "snappy"), reasons=(OTHER,)),
    Bad("lz4, cut after its first block", "json/cut.jsonl.lz4", _block(_lines(_line("first block")), "lz4_raw"), reasons=(OTHER,)),
    Bad("lz4 as its own tool writes it", "json/tool.jsonl.lz4", _packed(_lines(_line("framed")), "lz4"), reasons=(OTHER,)),
    Bad("lz4 that claims a block of 2 GiB", "json/huge.jsonl.lz4", struct.pack(">II", 64, 2**31 - 1) + bytes(64), reasons=(OTHER,)),
    Bad(
        "zst, cut in its second frame",
        "json/cut.jsonl.zst",
        _packed(_lines(_line("zst")), "zstd") + _packed(_lines(_line("zst")), "zstd")[:-1],
        reasons=(OTHER,),
    ),
    Bad("gz of two parts, cut in the second", "json/parts.jsonl.gz", (gzip.compress(_lines(_line("part"))) * 2)[:-1], reasons=(CUT,)),
    Bad("gz of two parts", "json/two.jsonl.gz", gzip.compress(_lines(_line("part"))) * 2, ("part", "part")),
]

HEAD, LACKS = "k,v,ts,note", "malformed: the file's header lacks "
COUNT = "malformed: not 4 fields, as its file's header has"
OPEN = "malformed: a quoted field does not end on its line; a field may not hold a line break"
CSV = [
    Bad("names of another case", "csv/case.csv", _lines("K,V,TS,Note", f"cased,1,{TIME},n"), ("cased",)),
    Bad("a mark, and a name in quotes", "csv/mark.csv", b'\xef\xbb\xbf"k",v,ts,note\n' + _lines(f"marked,1,{TIME},n"), ("marked",)),
    Bad("a wrong header", "csv/wrong.csv", _lines("id,value", "1,2"), reasons=(f"{LACKS}k, v, ts, note",) * 2),
    Bad(
        "no header: its first row is kept too",
        "csv/none.csv",
        _lines(f"a,1,{TIME},n", f"b,2,{TIME},n"),
        reasons=(f"{LACKS}k, v, ts, note",) * 2,
    ),
    Bad("a column missing", "csv/lacks.csv", _lines("k,ts,note", f"a,{TIME},n"), reasons=(f"{LACKS}v",) * 2),
    Bad("a header alone", "csv/head.csv", _lines(HEAD)),
    Bad("a column too many", "csv/more.csv", _lines(f"{HEAD},w", f"more,1,{TIME},n,9"), ("more",)),
    Bad("names that are no names", "csv/odd.csv", _lines(f"{HEAD},,a b`c", f"odd,1,{TIME},n,,"), ("odd",)),
    Bad("fields too many and too few", "csv/count.csv", _lines(HEAD, f"a,1,{TIME},n,9", f"b,1,{TIME}", "c"), reasons=(COUNT,) * 3),
    Bad(
        "a name twice, but for its case",
        "csv/twice.csv",
        _lines(f"{HEAD},K", f"a,1,{TIME},n,b"),
        reasons=("malformed: the file's header holds a name twice",) * 2,
    ),
    Bad(
        "a field with a line break",
        "csv/break.csv",
        _lines(HEAD, f'a,1,{TIME},"one', 'two"', f'"b ""x""",1,{TIME},"n, m"'),
        ('b "x"',),
        (OPEN, COUNT),
    ),
    Bad("a field of 10 MB", "csv/long.csv", _lines(HEAD, f"long,1,{TIME},{'x' * 10_000_000}", f"after,1,{TIME},n"), ("long", "after")),
    Bad("more fields than any file has", "csv/commas.csv", _lines(HEAD, "," * 30_000, f"kept,1,{TIME},n"), ("kept",), (COUNT,)),
    Bad("a first line of 2 MB", "csv/head2mb.csv", _lines("k" * 2_000_000, "a"), reasons=(f"{LACKS}k, v, ts, note",) * 2),
    Bad("UTF-16", "csv/wide.csv", f"{HEAD}\na,1,{TIME},n\n".encode("utf-16"), reasons=(f"{LACKS}k, v, ts, note",) * 3),
    Bad("Latin-1 in one row", "csv/latin.csv", f"{HEAD}\ncafé,1,{TIME},n\nplain,1,{TIME},n\n".encode("latin-1"), ("plain",), (NO_TEXT,)),
    Bad("NUL and control characters are text", "csv/nul.csv", _lines(HEAD, f"a\0b,1,{TIME},\x07"), ("a\0b",)),
    Bad(
        "a torn packed file",
        "csv/torn.csv.gz",
        _torn(gzip.compress(_lines(HEAD, *[f"{n},1,{TIME},{n * 7919 % 9973}" for n in range(3000)]))),
        reasons=("malformed: the file cannot be read: EOFException: Unexpected end of input stream",),
    ),
    Bad(
        "a packed file torn in its first bytes",
        "csv/stub.csv.gz",
        gzip.compress(_lines(HEAD))[:5],
        reasons=("malformed: the file cannot be read: EOFException: ",),
    ),
]

FAR, YEARS = "event time: more than 24 hours ahead of the clock", "event time: not in the years 1 to 9999"
_UTC = pa.timestamp("us", tz="UTC")
_GOOD = {"k": pa.array(["typed"]), "v": pa.array([1], pa.int32()), "ts": pa.array([moment(START)], _UTC), "note": pa.array(["n"])}
_LONG = {
    "k": pa.array([f"{n:09}" for n in range(5000)]),
    "v": pa.array(range(5000), pa.int32()),
    "ts": pa.array([moment(START)] * 5000, _UTC),
}
PARQUET = [
    Bad("good", "parquet/good.parquet", _bytes(_GOOD), ("typed",)),
    Bad("no rows", "parquet/none.parquet", _bytes({n: c.slice(0, 0) for n, c in _GOOD.items()})),
    Bad("torn", "parquet/torn.parquet", _torn(_bytes(_LONG)), reasons=("malformed: the file cannot be read",)),
    Bad("torn in its pages", "parquet/pages.parquet", _damaged(_bytes(_LONG)), reasons=("malformed: the file cannot be read",)),
    Bad("no Parquet", "parquet/no.parquet", b"k,v\n1,2\n", reasons=("malformed: the file cannot be read",)),
    Bad(
        "other types that can be read",
        "parquet/types.parquet",
        _bytes({"k": pa.array([7]), "v": pa.array(["8"]), "ts": pa.array([moment(START).replace(tzinfo=None)])}),
        ("7",),
    ),
    Bad("other types that cannot", "parquet/wrong.parquet", _bytes(_GOOD | {"v": pa.array(["x"])}), reasons=("type: v is no int",)),
    Bad(
        "a nested column for a plain one",
        "parquet/nested.parquet",
        _bytes(_GOOD | {"v": pa.array([{"a": 1}])}),
        reasons=("type: v is no int",),
    ),
    Bad(
        "times in nanoseconds",
        "parquet/nanos.parquet",
        _bytes(_GOOD | {"ts": pa.array([START * 1_000_000], pa.timestamp("ns", tz="UTC"))}),
        reasons=("malformed: the file cannot be read",),
    ),
    Bad(
        "typed times of all ages; the one of 1970 is ingested",
        "parquet/ages.parquet",
        _bytes(
            {
                "k": pa.array(["null", "1970", "2099", "year 10000", "year -44"]),
                "v": pa.array([1] * 5, pa.int32()),
                "ts": pa.array([None, 0, 4_070_908_800_000_000, 253_402_300_800_000_000, -63_549_446_400_000_000], pa.int64()).cast(_UTC),
            }
        ),
        ("1970",),
        ("event time: missing", FAR, YEARS, YEARS),
    ),
    Bad(
        "doubles where whole numbers are wanted, NaN among them",
        "parquet/nan.parquet",
        _bytes({"k": pa.array(["nan", "one"]), "v": pa.array([float("nan"), 1.0]), "ts": pa.array([moment(START)] * 2, _UTC)}),
        reasons=("type: v is no int",) * 2,
    ),
    Bad(
        "another case, a column too many, one missing",
        "parquet/case.parquet",
        _bytes({"K": pa.array(["cased"]), "TS": _GOOD["ts"], "w": pa.array([1])}),
        ("cased",),
    ),
]


@dataclass(frozen=True)
class Value:
    """One row's values, with the reason of its quarantine or, if it is ingested, the value of a column in the log (as text)."""

    id: str
    row: dict[str, object]
    reason: str | None = None
    holds: tuple[str, str] | None = None


VALUE = [
    Value("decimal that overflows", {"amount": "123456789.00"}, "type: amount is no decimal(10,2)"),
    Value("decimal at its limit", {"amount": "-99999999.99"}, holds=("amount", "-99999999.99")),
    Value("decimal finer than its scale is rounded", {"amount": "1.235"}, holds=("amount", "1.24")),
    Value("decimal as a number", {"amount": 0.1}, holds=("amount", "0.10")),
    Value("decimal NaN", {"amount": "NaN"}, "type: amount is no decimal(10,2)"),
    Value("decimal with a comma", {"amount": "1,5"}, "type: amount is no decimal(10,2)"),
    Value("double NaN as text is a number", {"ratio": "NaN"}, holds=("ratio", "NaN")),
    Value("double as no number", {"ratio": "nan?"}, "type: ratio is no double"),
    Value("boolean", {"paid": "maybe"}, "type: paid is no boolean"),
    Value("an object of another type inside", {"at": {"x": "y"}}, NO_JSON),
    Value("time null", {"ts": None}, "event time: missing"),
    Value("time NaN", {"ts": "NaN"}, "type: ts is no timestamp"),
    Value("time of nothing", {"ts": ""}, "type: ts is no timestamp"),
    Value("time 2099", {"ts": "2099-01-01T00:00:00Z"}, FAR),
    Value("time 1970", {"ts": "1970-01-01T00:00:00Z"}, holds=("ts", "1970-01-01 00:00:00")),
    Value("time in year 10000", {"ts": "10000-01-01T00:00:00Z"}, YEARS),
    Value("time in a negative year", {"ts": "-0044-03-15T00:00:00Z"}, YEARS),
    Value("another time in year 10000", {"seen": "10000-01-01T00:00:00Z"}, "type: seen is not in the years 1 to 9999"),
    Value("a date in year 10000", {"due": "10000-01-01"}, "type: due is not in the years 1 to 9999"),
    Value("another time in 2099 moves no watermark", {"seen": "2099-01-01T00:00:00Z"}, holds=("seen", "2099-01-01 00:00:00")),
    Value("time as epoch seconds", {"ts": 1772323200}, "type: ts is no timestamp"),
    Value("time as epoch ms in text", {"ts": "1772323200000"}, "type: ts is no timestamp"),
    Value("time of day alone", {"ts": "12:00:00"}, "type: ts is no timestamp"),
    Value("time of day alone, with a T", {"ts": "T12:00"}, "type: ts is no timestamp"),
    Value("time of day alone, after blanks", {"ts": "  12:00:00"}, "type: ts is no timestamp"),
    Value("time of day alone, after all that Spark trims", {"ts": "\t\n\x00\x1f\x7f T12:00 "}, "type: ts is no timestamp"),
    Value("a time after blanks", {"ts": " \t2026-03-01T00:00:00Z\x7f "}, holds=("ts", "2026-03-01 00:00:00")),
    Value("date alone is its midnight in UTC", {"ts": "2026-03-01"}, holds=("ts", "2026-03-01 00:00:00")),
    Value("29 February of a common year", {"ts": "2026-02-29T00:00:00Z"}, "type: ts is no timestamp"),
    Value("a leap second", {"ts": "2016-12-31T23:59:60Z"}, "type: ts is no timestamp"),
    Value("an offset", {"ts": "2025-10-26T02:30:00+14:00"}, holds=("ts", "2025-10-25 12:30:00")),
    Value("an offset that is none", {"ts": "2025-10-26T02:30:00+19:00"}, "type: ts is no timestamp"),
    Value("an hour that is twice, no offset: UTC", {"ts": "2025-10-26T02:30:00"}, holds=("ts", "2025-10-26 02:30:00")),
    Value("its first, by offset", {"ts": "2025-10-26T02:30:00+02:00"}, holds=("ts", "2025-10-26 00:30:00")),
    Value("its second, by offset", {"ts": "2025-10-26T02:30:00+01:00"}, holds=("ts", "2025-10-26 01:30:00")),
    Value("an hour that is twice, by zone: the first", {"ts": "2025-10-26T02:30:00 Europe/Berlin"}, holds=("ts", "2025-10-26 00:30:00")),
    Value("an hour that is not, by zone: an hour on", {"ts": "2025-03-30T02:30:00 Europe/Berlin"}, holds=("ts", "2025-03-30 01:30:00")),
]
CASES = [*JSON, *CSV, *PARQUET]


@dataclass(frozen=True)
class Found:
    """The result of one batch of all files."""

    ingested: dict[str, SourceEntry]
    log: dict[str, list[Row]]
    quarantine: dict[str, list[Row]]


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """One batch of all sources."""
    root = tmp_path_factory.mktemp("bad")
    sources = {n: source(n, schema=ROW, future_skew="24 hours") for n in ("json", "csv", "parquet")}
    sources["values"] = source("values", schema=VALUES, future_skew="24 hours")
    engine = Engine(Lake(str(root / "lake")), sources, {}, lambda: spark, Clock(), folders={n: str(root / "in" / n) for n in sources})
    for case in CASES:
        _write(root / "in" / case.name, case.content)
    _write(root / "in/values/values.jsonl", _lines(*[json.dumps({"k": v.id, "ts": TIME, **v.row}) for v in VALUE]))
    [entry] = engine.ingest()
    columns = [f"cast({c} as string) {c}" for c in VALUES.fieldNames()]
    file_rank = "cast(shiftright(arrival, 42) as int) AS file"
    log = {n: engine.reading.log(n, 1).selectExpr("k", file_rank, "arrival").collect() for n in ("json", "csv", "parquet")}
    log["values"] = engine.reading.log("values", 1).selectExpr(*columns).collect()
    quarantine = {n: engine.views.table(f"quarantine/{n}").orderBy("arrival").collect() for n in sources}
    return Found({s.source: s for s in entry}, log, quarantine)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _names(entry: SourceEntry) -> list[str]:
    """The files of a batch in the order of their arrival."""
    return [Path(unquote(o.split("|")[0])).name for o in entry.offsets]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_good_rows_are_ingested_and_the_others_quarantined(found: Found, case: Bad) -> None:
    file_rank = _names(found.ingested[case.source]).index(Path(case.name).name)
    accepted = [r.k for r in sorted(found.log[case.source], key=lambda r: r.arrival) if r.file == file_rank]
    reasons = [r.reason for r in found.quarantine[case.source] if r.arrival >> 42 == file_rank]
    assert accepted == list(case.accepted)
    assert [t[: len(c)] for t, c in zip(reasons, case.reasons, strict=True)] == list(case.reasons)


@pytest.mark.parametrize("case", VALUE, ids=lambda c: c.id)
def test_a_value_is_ingested_unchanged_or_quarantined(found: Found, case: Value) -> None:
    reasons = [r.reason for r in found.quarantine["values"] if json.loads(r.raw)["k"] == case.id]
    accepted = [r for r in found.log["values"] if r.k == case.id]
    assert reasons == ([] if case.reason is None else [case.reason])
    assert [r[case.holds[0]] for r in accepted] == [case.holds[1]] if case.holds else not accepted


@pytest.mark.parametrize("name", ["json", "csv", "parquet", "values"])
def test_the_ledger_records_every_file_and_every_row(found: Found, name: str) -> None:
    ingested, cases = found.ingested[name], [c for c in CASES if c.source == name]
    assert (ingested.accepted, ingested.quarantined) == (len(found.log[name]), len(found.quarantine[name]))
    assert ingested.rows_read == ingested.accepted + ingested.quarantined
    assert sorted(_names(ingested)) == (sorted(Path(c.name).name for c in cases) or ["values.jsonl"])
    assert ingested.last_event_time == START


def test_a_row_that_is_no_text_is_kept_byte_for_byte(found: Found) -> None:
    kept = [r.raw for r in found.quarantine["json"] if r.path.endswith("latin.jsonl")]
    assert [bytes.fromhex(r.removeprefix("hex:")) for r in kept] == [_line("café").encode("latin-1")]


def test_no_row_of_a_refused_file_is_ingested(found: Found) -> None:
    keys: Sequence[str] = [r.k for r in found.log["json"] + found.log["parquet"]]
    assert not {"p0", "p1", "000000000"} & set(keys)
