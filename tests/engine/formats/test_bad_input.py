"""Bad files and bad rows among good ones: each is quarantined with its reason, and every good row is ingested."""

import gzip
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from assets.days import moment
from platform_defs.engine import Engine
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import SourceBatch
from tests.operators.frames import tagged
from tests.support.clock import Clock
from tests.support.small_sources import START, iso, source

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
class InputFile:
    """A file, the keys of its accepted rows, and the reasons of its quarantined rows, in order."""

    id: str
    name: str
    content: bytes
    accepted: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The source, which has the files of one format.

        Files that cannot be read to their end have sources of their own, with some good files: to find each of them, the engine reads the
        files of a source again and again, and half as many each time.
        """
        return self.name.split("/")[0]


def _line(k: str, /, **changes: object) -> str:
    return json.dumps({"k": k, "v": 1, "ts": TIME, **changes}, ensure_ascii=False)


def _lines(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _torn(content: bytes) -> bytes:
    return content[: len(content) * 2 // 3]


def _compressed(content: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def _parquet(columns: dict[str, pa.Array]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="none", write_statistics=False)
    return sink.getvalue().to_pybytes()


def _damaged(content: bytes) -> bytes:
    """The Parquet file with its footer intact and its first page corrupted."""
    return content[:4] + b"\xff" * 64 + content[68:]


THOUSAND_LINES = [_line(f"row {n}", v=n) for n in range(1, 1001)]
PACKED = gzip.compress(_lines(*[_line(f"p{n}", note=struct.pack(">d", n / 7).hex()) for n in range(3000)]))
NO_JSON, NO_UTF8 = "malformed: not a JSON object", "malformed: not UTF-8"
CUT = "malformed: the file cannot be read: EOFException: "
OTHER = "malformed: the file is not .csv, .json, .jsonl, .ndjson, .parquet, nor one of these packed as .gz"


def _block(content: bytes, codec: str) -> bytes:
    """A block in Hadoop's format: two lengths (unpacked, packed) and the packed bytes; a cut after a block cannot be detected."""
    packed = pa.compress(content, codec=codec, asbytes=True)
    return struct.pack(">II", len(content), len(packed)) + packed


JSON = [
    InputFile("an empty file", "json/empty.jsonl", b"", reasons=("malformed: the file is empty",)),
    InputFile("only blank lines", "json/blank.jsonl", b"\n \n\t\n \t \r\n\x0c\n"),
    InputFile("a packed file without rows", "json/nothing.jsonl.gz", gzip.compress(b"")),
    InputFile("a packed suffix in capitals", "damaged_json/upper.JSONL.GZ", gzip.compress(_lines(_line("packed"))), ("packed",)),
    InputFile(
        "a torn packed file: none of its rows",
        "damaged_json/torn.jsonl.gz",
        _torn(PACKED),
        reasons=("malformed: the file cannot be read: EOFException: Unexpected end of input stream",),
    ),
    InputFile(
        "bytes after a packed file's end: none of its rows",
        "damaged_json/trailing.jsonl.gz",
        PACKED + b"and more",
        reasons=("malformed: the file cannot be read: EOFException: Unexpected end of input stream",),
    ),
    InputFile(
        "a plain file with a packed suffix",
        "damaged_json/plain.jsonl.gz",
        _lines(_line("x")),
        reasons=("malformed: the file cannot be read: IOException: not a gzip file",),
    ),
    InputFile(
        "a torn plain file: its last row alone", "json/torn.jsonl", _lines(_line("first"), _line("second"))[:-9], ("first",), (NO_JSON,)
    ),
    InputFile(
        "another type in row 1,000",
        "json/thousand.jsonl",
        _lines(*THOUSAND_LINES[:999], _line("row 1000", v="many")),
        tuple(f"row {n}" for n in range(1, 1000)),
        ("type: v is no int",),
    ),
    InputFile("a field of 10 MB", "json/long.jsonl", _lines(_line("long", note="x" * 10_000_000), _line("after")), ("long", "after")),
    InputFile(
        "Latin-1",
        "json/latin.jsonl",
        _line("café").encode("latin-1") + b"\n" + _lines(_line("plain")),
        ("plain",),
        (NO_UTF8,),
    ),
    InputFile(
        "UTF-16 with a byte order mark",
        "json/wide.jsonl",
        f"{_line('a')}\n{_line('b')}\n".encode("utf-16"),
        reasons=(NO_UTF8, NO_JSON, NO_JSON),
    ),
    InputFile("a UTF-8 byte order mark", "json/mark.jsonl", b"\xef\xbb\xbf" + _lines(_line("marked")), ("marked",)),
    InputFile("NUL bytes between rows", "json/nul.jsonl", b"\0\0\0\n" + _lines(_line("after nul")), ("after nul",), (NO_JSON,)),
    InputFile(
        "control characters: escaped ones are text, unescaped ones are not JSON",
        "json/control.jsonl",
        _lines('{"k":"a\\u0000\\u0007b","ts":"' + TIME + '"}', '{"k":"a\tb","ts":"' + TIME + '"}'),
        ("a\x00\x07b",),
        (NO_JSON,),
    ),
    InputFile(
        "half a surrogate pair; a whole pair, and an escaped backslash before ud800, are text",
        "json/half.jsonl",
        _lines(
            *[
                f'{{"k":"{k}","ts":"{TIME}"}}'
                for k in (r"\ud800", r"x\uDC00", r"\ud83d\ude00", r"\\ud800", r"\ud83d\u0041", r"\\\ud800", r"\\ud83d\ude00")
            ]
        ),
        ("\N{GRINNING FACE}", r"\ud800"),
        ("malformed: it contains half of a surrogate pair",) * 5,
    ),
    InputFile(
        "nested deeper than the schema: read as text, or left out",
        "json/deep.jsonl",
        _lines(_line("deep", note={"a": {"b": [1]}}, other={"c": {"d": 1}})),
        ("deep",),
    ),
    InputFile("nested 1,200 deep", "json/abyss.jsonl", _lines('{"k":' * 1200 + "1" + "}" * 1200), reasons=(NO_JSON,)),
    InputFile("a name twice: the last value counts", "json/twice.jsonl", _lines('{"k":"one","k":"two","ts":"' + TIME + '"}'), ("two",)),
    InputFile("arrays and single values", "json/array.jsonl", _lines(f"[{_line('x')}]", "[]", '"x"', "7", "null"), reasons=(NO_JSON,) * 5),
    InputFile(
        "one array over many lines",
        "json/pretty.json",
        b'[\n{"k": "a"},\n{"k": "b"}\n]\n',
        reasons=(NO_JSON, NO_JSON, "event time: missing", NO_JSON),
    ),
    InputFile(
        "names of another case: accepted where the column has a value",
        "json/case.jsonl",
        _lines(f'{{"K":"x","ts":"{TIME}"}}', _line("both", V=2), f'{{"k":"V","ts":"{TIME}"}}', f'{{"k":"y","V":3,"ts":"{TIME}"}}'),
        ("both", "V"),
        (
            "malformed: it has names in another case than the contract's: K",
            "malformed: it has names in another case than the contract's: V",
        ),
    ),
    InputFile("an unquoted NaN is not JSON", "json/nan.jsonl", _lines(f'{{"k":NaN,"ts":"{TIME}"}}'), reasons=(NO_JSON,)),
    InputFile("carriage returns alone end lines", "json/mac.jsonl", f"{_line('m1')}\r{_line('m2')}\r".encode(), ("m1", "m2")),
    InputFile(
        "noise with a known suffix",
        "json/noise.jsonl",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe",
        reasons=(NO_UTF8, NO_JSON, NO_JSON, NO_UTF8),
    ),
    InputFile(
        "a picture",
        "json/logo.png",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        reasons=(OTHER,),
    ),
    InputFile(
        "bz2",
        "json/a.jsonl.bz2",
        b"BZh9 noise",
        reasons=(OTHER,),
    ),
    InputFile(
        "snappy, cut after its first block", "json/cut.jsonl.snappy", _block(_lines(_line("first block")), "snappy"), reasons=(OTHER,)
    ),
    InputFile("lz4, cut after its first block", "json/cut.jsonl.lz4", _block(_lines(_line("first block")), "lz4_raw"), reasons=(OTHER,)),
    InputFile("lz4 in the format of its own tool", "json/tool.jsonl.lz4", _compressed(_lines(_line("framed")), "lz4"), reasons=(OTHER,)),
    InputFile("lz4 that claims a block of 2 GiB", "json/huge.jsonl.lz4", struct.pack(">II", 64, 2**31 - 1) + bytes(64), reasons=(OTHER,)),
    InputFile(
        "zst, cut in its second frame",
        "json/cut.jsonl.zst",
        _compressed(_lines(_line("zst")), "zstd") + _compressed(_lines(_line("zst")), "zstd")[:-1],
        reasons=(OTHER,),
    ),
    InputFile(
        "gz of two parts, cut in the second", "damaged_json/parts.jsonl.gz", (gzip.compress(_lines(_line("part"))) * 2)[:-1], reasons=(CUT,)
    ),
    InputFile("gz of two parts", "damaged_json/two.jsonl.gz", gzip.compress(_lines(_line("part"))) * 2, ("part", "part")),
]

HEADER, LACKS = "k,v,ts,note", "malformed: the file's header lacks "
LACKS_ALL = f"{LACKS}k, v, ts, note; for files without a header, set the source's option `header` to `false`"
COUNT = "malformed: not 4 fields, as its file's header has"
OPEN = "malformed: an odd number of quotes: a line break in a field, or a quote that is not escaped"
CSV = [
    InputFile("names of another case", "csv/case.csv", _lines("K,V,TS,Note", f"cased,1,{TIME},n"), ("cased",)),
    InputFile(
        "a byte order mark, and a name in quotes",
        "damaged_csv/mark.csv",
        b'\xef\xbb\xbf"k",v,ts,note\n' + _lines(f"marked,1,{TIME},n"),
        ("marked",),
    ),
    InputFile("a wrong header", "csv/wrong.csv", _lines("id,value", "1,2"), reasons=(LACKS_ALL,) * 2),
    InputFile(
        "no header: its first row is quarantined too",
        "csv/none.csv",
        _lines(f"a,1,{TIME},n", f"b,2,{TIME},n"),
        reasons=(LACKS_ALL,) * 2,
    ),
    InputFile("a missing column", "csv/lacks.csv", _lines("k,ts,note", f"a,{TIME},n"), reasons=(f"{LACKS}v",) * 2),
    InputFile("only a header", "csv/head.csv", _lines(HEADER)),
    InputFile("an unknown column", "csv/more.csv", _lines(f"{HEADER},w", f"more,1,{TIME},n,9"), ("more",)),
    InputFile(
        "an empty name, and a name with a space and a backtick", "csv/odd.csv", _lines(f"{HEADER},,a b`c", f"odd,1,{TIME},n,,"), ("odd",)
    ),
    InputFile("fields too many and too few", "csv/count.csv", _lines(HEADER, f"a,1,{TIME},n,9", f"b,1,{TIME}", "c"), reasons=(COUNT,) * 3),
    InputFile(
        "a name twice, in different case",
        "csv/twice.csv",
        _lines(f"{HEADER},K", f"a,1,{TIME},n,b"),
        reasons=("malformed: the file's header has a name twice",) * 2,
    ),
    InputFile(
        "a field with a line break",
        "csv/break.csv",
        _lines(HEADER, f'a,1,{TIME},"one', 'two"', f'"b ""x""",1,{TIME},"n, m"', f'c,1,{TIME},5" pipe'),
        ('b "x"',),
        (OPEN, COUNT, OPEN),
    ),
    InputFile(
        "a field of 10 MB", "csv/long.csv", _lines(HEADER, f"long,1,{TIME},{'x' * 10_000_000}", f"after,1,{TIME},n"), ("long", "after")
    ),
    InputFile("30,001 fields", "csv/commas.csv", _lines(HEADER, "," * 30_000, f"good,1,{TIME},n"), ("good",), (COUNT,)),
    InputFile("a first line of 2 MB", "csv/head2mb.csv", _lines("k" * 2_000_000, "a"), reasons=(LACKS_ALL,) * 2),
    InputFile("UTF-16", "csv/wide.csv", f"{HEADER}\na,1,{TIME},n\n".encode("utf-16"), reasons=(LACKS_ALL,) * 3),
    InputFile(
        "Latin-1 in one row", "csv/latin.csv", f"{HEADER}\ncafé,1,{TIME},n\nplain,1,{TIME},n\n".encode("latin-1"), ("plain",), (NO_UTF8,)
    ),
    InputFile("NUL and control characters are text", "csv/nul.csv", _lines(HEADER, f"a\0b,1,{TIME},\x07"), ("a\0b",)),
    InputFile(
        "a torn packed file",
        "damaged_csv/torn.csv.gz",
        _torn(gzip.compress(_lines(HEADER, *[f"{n},1,{TIME},{n * 7919 % 9973}" for n in range(3000)]))),
        reasons=("malformed: the file cannot be read: EOFException: Unexpected end of input stream",),
    ),
    InputFile(
        "a packed file torn in its first bytes",
        "damaged_csv/stub.csv.gz",
        gzip.compress(_lines(HEADER))[:5],
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
    InputFile("good", "parquet/good.parquet", _parquet(_GOOD), ("typed",)),
    InputFile("no rows", "parquet/none.parquet", _parquet({n: c.slice(0, 0) for n, c in _GOOD.items()})),
    InputFile("torn", "damaged_parquet/torn.parquet", _torn(_parquet(_LONG)), reasons=("malformed: the file cannot be read",)),
    InputFile(
        "torn in its pages", "damaged_parquet/pages.parquet", _damaged(_parquet(_LONG)), reasons=("malformed: the file cannot be read",)
    ),
    InputFile("not Parquet", "damaged_parquet/no.parquet", b"k,v\n1,2\n", reasons=("malformed: the file cannot be read",)),
    InputFile(
        "other types that can be read",
        "damaged_parquet/types.parquet",
        _parquet({"k": pa.array([7]), "v": pa.array(["8"]), "ts": pa.array([moment(START).replace(tzinfo=None)])}),
        ("7",),
    ),
    InputFile(
        "other types that cannot be read", "parquet/wrong.parquet", _parquet(_GOOD | {"v": pa.array(["x"])}), reasons=("type: v is no int",)
    ),
    InputFile(
        "a nested column for a plain one",
        "parquet/nested.parquet",
        _parquet(_GOOD | {"v": pa.array([{"a": 1}])}),
        reasons=("type: v is no int",),
    ),
    InputFile(
        "times in nanoseconds",
        "damaged_parquet/nanos.parquet",
        _parquet(_GOOD | {"ts": pa.array([START * 1_000_000], pa.timestamp("ns", tz="UTC"))}),
        reasons=("malformed: the file cannot be read",),
    ),
    InputFile(
        "typed times of all ages; the time in 1970 is ingested",
        "parquet/ages.parquet",
        _parquet(
            {
                "k": pa.array(["null", "1970", "2099", "year 10000", "year -44"]),
                "v": pa.array([1] * 5, pa.int32()),
                "ts": pa.array([None, 0, 4_070_908_800_000_000, 253_402_300_800_000_000, -63_549_446_400_000_000], pa.int64()).cast(_UTC),
            }
        ),
        ("1970",),
        ("event time: missing", FAR, YEARS, YEARS),
    ),
    InputFile(
        "doubles, one of them NaN, for whole numbers",
        "parquet/nan.parquet",
        _parquet({"k": pa.array(["nan", "one"]), "v": pa.array([float("nan"), 1.0]), "ts": pa.array([moment(START)] * 2, _UTC)}),
        reasons=("type: v is no int",) * 2,
    ),
    InputFile(
        "names of another case, an unknown column, a missing one",
        "parquet/case.parquet",
        _parquet({"K": pa.array(["cased"]), "TS": _GOOD["ts"], "w": pa.array([1])}),
        ("cased",),
    ),
]


@dataclass(frozen=True)
class Value:
    """The values of a row, with the reason of its quarantine, or a column of the log and its value as text if the row is ingested."""

    id: str
    row: dict[str, object]
    reason: str | None = None
    stored: tuple[str, str] | None = None


VALUE_CASES = [
    Value("decimal that overflows", {"amount": "123456789.00"}, "type: amount is no decimal(10,2)"),
    Value("decimal at its limit", {"amount": "-99999999.99"}, stored=("amount", "-99999999.99")),
    Value("decimal finer than its scale is rounded", {"amount": "1.235"}, stored=("amount", "1.24")),
    Value("decimal as a number", {"amount": 0.1}, stored=("amount", "0.10")),
    Value("decimal NaN", {"amount": "NaN"}, "type: amount is no decimal(10,2)"),
    Value("decimal with a comma", {"amount": "1,5"}, "type: amount is no decimal(10,2)"),
    Value("double NaN as text is a number", {"ratio": "NaN"}, stored=("ratio", "NaN")),
    Value("double that is no number", {"ratio": "nan?"}, "type: ratio is no double"),
    Value("boolean that is none", {"paid": "maybe"}, "type: paid is no boolean"),
    Value("an object of another type inside", {"at": {"x": "y"}}, "type: at is no struct<x:int>"),
    Value("null time", {"ts": None}, "event time: missing"),
    Value("NaN as a time", {"ts": "NaN"}, "type: ts is no timestamp"),
    Value("empty text as a time", {"ts": ""}, "type: ts is no timestamp"),
    Value("time 2099", {"ts": "2099-01-01T00:00:00Z"}, FAR),
    Value("time 1970", {"ts": "1970-01-01T00:00:00Z"}, stored=("ts", "1970-01-01 00:00:00")),
    Value("time in year 10000", {"ts": "10000-01-01T00:00:00Z"}, YEARS),
    Value("time in a negative year", {"ts": "-0044-03-15T00:00:00Z"}, YEARS),
    Value("time in year 10000 in another column", {"seen": "10000-01-01T00:00:00Z"}, "type: seen is not in the years 1 to 9999"),
    Value("a date in year 10000", {"due": "10000-01-01"}, "type: due is not in the years 1 to 9999"),
    Value("a time in 2099 in another column moves no watermark", {"seen": "2099-01-01T00:00:00Z"}, stored=("seen", "2099-01-01 00:00:00")),
    Value("time as epoch seconds", {"ts": 1772323200}, "type: ts is no timestamp"),
    Value("time as epoch ms in text", {"ts": "1772323200000"}, "type: ts is no timestamp"),
    Value("time as a small number", {"ts": 1200}, "type: ts is no timestamp"),
    Value("time as a year in text", {"ts": "2026"}, "type: ts is no timestamp"),
    Value("time as digits after blanks and a sign", {"ts": " \t+02026 "}, "type: ts is no timestamp"),
    Value("date as a number", {"due": 2026}, "type: due is no date"),
    Value("date as digits in text", {"due": "20586"}, "type: due is no date"),
    Value("a date and a month without a day", {"ts": "2026-3-1", "due": "2026-11"}, stored=("due", "2026-11-01")),
    Value("time of day alone", {"ts": "12:00:00"}, "type: ts is no timestamp"),
    Value("time of day alone, with a T", {"ts": "T12:00"}, "type: ts is no timestamp"),
    Value("time of day alone, after blanks", {"ts": "  12:00:00"}, "type: ts is no timestamp"),
    Value("time of day alone, after all characters that Spark trims", {"ts": "\t\n\x00\x1f\x7f T12:00 "}, "type: ts is no timestamp"),
    Value("a time after blanks", {"ts": " \t2026-03-01T00:00:00Z\x7f "}, stored=("ts", "2026-03-01 00:00:00")),
    Value("date alone is its midnight in UTC", {"ts": "2026-03-01"}, stored=("ts", "2026-03-01 00:00:00")),
    Value("29 February of a common year", {"ts": "2026-02-29T00:00:00Z"}, "type: ts is no timestamp"),
    Value("a leap second", {"ts": "2016-12-31T23:59:60Z"}, "type: ts is no timestamp"),
    Value("an offset", {"ts": "2025-10-26T02:30:00+14:00"}, stored=("ts", "2025-10-25 12:30:00")),
    Value("an offset that is none", {"ts": "2025-10-26T02:30:00+19:00"}, "type: ts is no timestamp"),
    Value("a repeated hour without an offset: UTC", {"ts": "2025-10-26T02:30:00"}, stored=("ts", "2025-10-26 02:30:00")),
    Value("the first of a repeated hour, by offset", {"ts": "2025-10-26T02:30:00+02:00"}, stored=("ts", "2025-10-26 00:30:00")),
    Value("the second of a repeated hour, by offset", {"ts": "2025-10-26T02:30:00+01:00"}, stored=("ts", "2025-10-26 01:30:00")),
    Value("a repeated hour, by zone: the first", {"ts": "2025-10-26T02:30:00 Europe/Berlin"}, stored=("ts", "2025-10-26 00:30:00")),
    Value("a skipped hour, by zone: an hour later", {"ts": "2025-03-30T02:30:00 Europe/Berlin"}, stored=("ts", "2025-03-30 01:30:00")),
]
CASES = [*JSON, *CSV, *PARQUET]
FILES = (*dict.fromkeys(case.source for case in CASES),)


@dataclass(frozen=True)
class Found:
    """The result of one batch of all files."""

    ingested: dict[str, SourceBatch]
    log: dict[str, list[Row]]
    quarantine: dict[str, list[Row]]


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """One batch of all sources."""
    root = tmp_path_factory.mktemp("bad")
    sources = {n: source(n, schema=ROW, future_skew="24 hours") for n in FILES}
    sources["values"] = source("values", schema=VALUES, future_skew="24 hours")
    engine = Engine(Lake(str(root / "lake")), sources, {}, lambda: spark, Clock(), folders={n: str(root / "in" / n) for n in sources})
    for case in CASES:
        _write(root / "in" / case.name, case.content)
    _write(root / "in/values/values.jsonl", _lines(*[json.dumps({"k": v.id, "ts": TIME, **v.row}) for v in VALUE_CASES]))
    [batch] = engine.ingest()
    columns = [f"cast({c} as string) {c}" for c in VALUES.fieldNames()]
    log = _rows_by_source({n: read_log(engine.workspace, n, 1).select("k", "arrival") for n in FILES})
    log["values"] = read_log(engine.workspace, "values", 1).selectExpr(*columns).collect()
    quarantine = _rows_by_source({n: engine.views.table(f"quarantine/{n}").select("arrival", "path", "raw", "reason") for n in sources})
    return Found({s.source: s for s in batch}, log, quarantine)


def _rows_by_source(tables: Mapping[str, DataFrame]) -> dict[str, list[Row]]:
    """The rows of several tables, which one query reads, in the order of their arrival."""
    rows = sorted(tagged(tables).collect(), key=lambda r: r.arrival)
    return {name: [r for r in rows if r.tag == name] for name in tables}


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _names(batch: SourceBatch) -> list[str]:
    """The files of a batch in the order of their arrival."""
    return [Path(unquote(o.split("|")[0])).name for o in batch.offsets]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_good_rows_are_ingested_and_the_others_quarantined(found: Found, case: InputFile) -> None:
    file_rank = _names(found.ingested[case.source]).index(Path(case.name).name)
    accepted = [r.k for r in sorted(found.log[case.source], key=lambda r: r.arrival) if r.arrival >> 42 == file_rank]
    reasons = [r.reason for r in found.quarantine[case.source] if r.arrival >> 42 == file_rank]
    assert accepted == list(case.accepted)
    assert [t[: len(c)] for t, c in zip(reasons, case.reasons, strict=True)] == list(case.reasons)


@pytest.mark.parametrize("case", VALUE_CASES, ids=lambda c: c.id)
def test_a_value_is_ingested_unchanged_or_quarantined(found: Found, case: Value) -> None:
    reasons = [r.reason for r in found.quarantine["values"] if json.loads(r.raw)["k"] == case.id]
    accepted = [r for r in found.log["values"] if r.k == case.id]
    assert reasons == ([] if case.reason is None else [case.reason])
    assert [r[case.stored[0]] for r in accepted] == [case.stored[1]] if case.stored else not accepted


@pytest.mark.parametrize("name", [*FILES, "values"])
def test_the_ledger_counts_every_file_and_every_row(found: Found, name: str) -> None:
    ingested, cases = found.ingested[name], [c for c in CASES if c.source == name]
    assert (ingested.accepted, ingested.quarantined) == (len(found.log[name]), len(found.quarantine[name]))
    assert ingested.rows_read == ingested.accepted + ingested.quarantined
    assert sorted(_names(ingested)) == (sorted(Path(c.name).name for c in cases) or ["values.jsonl"])
    assert ingested.last_event_time == START


def test_the_bytes_of_a_row_that_is_not_utf8_are_kept(found: Found) -> None:
    raw = [r.raw for r in found.quarantine["json"] if r.path.endswith("latin.jsonl")]
    assert [bytes.fromhex(r.removeprefix("hex:")) for r in raw] == [_line("café").encode("latin-1")]


def test_no_row_of_a_refused_file_is_ingested(found: Found) -> None:
    keys: Sequence[str] = [r.k for name in FILES for r in found.log[name]]
    assert not {"p0", "p1", "000000000"} & set(keys)
