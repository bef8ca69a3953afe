"""No input causes an error or loses a line: random bytes, random rows and random options, with many files in each ingest.

A naive reader counts the lines of each file. The event log and the quarantine together must contain as many rows of the file.
"""

import gzip
import json
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import RowRule, SourceContract
from operators.engine_columns import ARRIVAL
from platform_defs.engine import Engine
from platform_defs.engine.formats.csv_style import CsvStyle
from platform_defs.engine.formats.unreadable_files import ReadRetries
from tests.conftest import MakeEngine
from tests.support.file_walk import landed_files
from tests.support.small_sources import ROW, START, iso, source

pytestmark = pytest.mark.compiled
TIME = iso(START)
BLANKS = b" \t\f\x0b"
RANK_BITS = 42
ANY = range(0, 1_000_000)


@dataclass(frozen=True)
class Input:
    """A file, and the legal numbers of its rows."""

    name: str
    content: bytes
    rows: Sequence[int]


def _lines(content: bytes, blanks: bytes = BLANKS) -> list[bytes]:
    """The lines that are not blank. A line ends with a line feed, a carriage return or both; a byte order mark is not part of a line."""
    return [line for line in re.split(rb"\r\n|\r|\n", content.removeprefix(b"\xef\xbb\xbf")) if line.strip(blanks)]


def _csv_rows(content: bytes, options: dict[str, str]) -> int:
    """The number of rows of a CSV file: its lines that are no comments, less the header if it has the contract's columns."""
    sep, comment = CsvStyle.of(options).sep, options.get("comment")

    def is_comment(line: str) -> bool:
        return comment is not None and line.lstrip("\ufeff").startswith(comment)

    lines = _lines(content, bytes(b for b in BLANKS if chr(b) not in sep))
    found = [line for line in lines if not is_comment(line.decode("utf-8", "replace"))]
    text = re.split(r"[\r\n]+", content.decode("utf-8", "replace").removeprefix("\ufeff"))
    header = next((line for line in text if line.strip() and not is_comment(line)), "")
    names = [n.lower() for n in CsvStyle.of(options).fields(header)]
    is_complete = set(ROW.fieldNames()) <= set(names) and len(set(names)) == len(names)
    return len(found) - (is_complete and any(line.removeprefix(b"\xef\xbb\xbf") == header.encode() for line in found))


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(TIME)
_JSON = st.dictionaries(
    st.sampled_from(["k", "v", "ts", "K", "w", "", "a b"]) | st.text(max_size=4),
    _SCALARS | st.lists(_SCALARS, max_size=2) | st.dictionaries(st.text(max_size=3), _SCALARS, max_size=2),
    max_size=5,
).map(lambda row: json.dumps(row, ensure_ascii=len(row) % 2 == 0).encode("utf-8", "surrogatepass"))
_VALID = st.builds(lambda k, v: json.dumps({"k": k, "v": v, "ts": TIME}).encode(), st.text(max_size=5), st.integers(0, 99))
_NOISE = st.binary(max_size=40) | st.text(max_size=20).map(lambda t: t.encode("utf-8", "surrogatepass"))
_LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\n \t\n"])
_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "sep": st.sampled_from([",", ";", "||", "::", "\\t", "\t", " "]),
        "quote": st.sampled_from(['"', "'", ""]),
        "escape": st.sampled_from(['"', "\\"]),
        "nullValue": st.sampled_from(["", "NA"]),
        "emptyValue": st.just("-"),
        "comment": st.just("#"),
        "mode": st.just("PERMISSIVE"),
        "header": st.just("true"),
        "ignoreLeadingWhiteSpace": st.just("true"),
        "ignoreTrailingWhiteSpace": st.just("true"),
        "allowSingleQuotes": st.just("false"),
        "allowUnquotedFieldNames": st.just("true"),
        "unescapedQuoteHandling": st.sampled_from(["BACK_TO_DELIMITER", "SKIP_VALUE", "RAISE_ERROR"]),
    },
)


def _corrupted(content: bytes, random: Random) -> bytes:
    """The content cut short, with a changed byte, or with bytes inserted."""
    how, at = random.randrange(4), random.randrange(len(content) + 1)
    if how == 0:
        return content[:at]
    if how == 1:
        return content[:at] + random.randbytes(9) + content[at:]
    flipped = bytearray(content)
    for _ in range(1 if how == 2 else 12):
        flipped[random.randrange(len(flipped))] = random.randrange(256)
    return bytes(flipped)


def _text_files(rows: st.SearchStrategy[list[bytes]], suffix: str, counted: Any) -> st.SearchStrategy[tuple[str, bytes, Sequence[int]]]:
    def content(lines: list[bytes], ends: list[bytes], mark: bool) -> bytes:
        body = b"".join(line + ends[n % len(ends)] for n, line in enumerate(lines))
        return (b"\xef\xbb\xbf" if mark else b"") + (body[:-1] if len(body) % 5 == 0 else body)

    plain = st.builds(content, rows, st.lists(_LINE_ENDS, min_size=1, max_size=3), st.booleans())

    def packed(body: bytes, random: Random, how: int) -> tuple[str, bytes, Sequence[int]]:
        if how < 4:
            return suffix, body, [counted(body) if body else 1]
        if how == 4:
            return f"{suffix}.gz", gzip.compress(body), [counted(body)]
        return f"{suffix}.gz", _corrupted(gzip.compress(body), random), [counted(body), 1]

    return st.builds(packed, plain, st.randoms(use_true_random=False), st.integers(0, 6))


def _parquet(columns: dict[str, list[Any]], random: Random, how: int) -> tuple[str, bytes, Sequence[int]]:
    out, rows = BytesIO(), min([len(v) for v in columns.values()], default=0)
    readable = 1 if {"k", "K"} <= columns.keys() else rows  # Spark reads no file that names a column twice
    compression = random.choice(["none", "snappy", "gzip", "zstd", "lz4"])
    pq.write_table(pa.table({n: v[:rows] for n, v in columns.items()}), out, compression=compression)
    return (
        ".parquet",
        _corrupted(out.getvalue(), random) if how else out.getvalue(),
        ANY if how else [readable],
    )


_COLUMN = st.one_of(
    *[
        st.lists(st.none() | kind, min_size=1, max_size=6)
        for kind in (st.integers(-(2**63), 2**63 - 1), st.text(max_size=5), st.booleans(), st.floats())
    ],
    st.lists(st.just(TIME) | st.text(max_size=3), max_size=6),
    st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=6),
    st.lists(st.fixed_dictionaries({"a": st.integers(0, 9)}), max_size=6),
    st.lists(st.datetimes(), max_size=6),
    st.lists(st.binary(max_size=4), max_size=6),
    st.lists(st.decimals(-999, 999, places=2), min_size=1, max_size=6),
)
_PARQUET = st.builds(
    _parquet,
    st.dictionaries(st.sampled_from(["k", "v", "ts", "K", "w", "a b", "x.y"]), _COLUMN, min_size=1, max_size=4),
    st.randoms(use_true_random=False),
    st.integers(0, 1),
)
_NAMES = st.sampled_from(["a", "12:00", "12:00 [x]*", "[x]", "ü 漢", "#?%41", "p*q{y}", "k=1"])


@dataclass(frozen=True)
class Case:
    """The contract of a source, and the files in its folder."""

    contract: SourceContract
    files: list[Input]


@st.composite
def _cases(draw: st.DrawFn, name: str, files: int) -> Case:
    options = draw(_OPTIONS)
    contract = source(
        name,
        options=options,
        new_columns=draw(st.sampled_from(["ignore", "quarantine", "add"])),
        future_skew=draw(st.sampled_from([None, "24 hours"])),
        rules=(RowRule("small", "v < 50", draw(st.sampled_from(["quarantine", "warn"]))),),
    )
    sep = CsvStyle.of(options).sep.encode()
    header = st.sampled_from([[b"k", b"v", b"ts"], [b"ts", b"w", b"K", b"v"], [b"k", b"v"], [b"k", b"k", b"v", b"ts"]]).map(sep.join)
    field = st.sampled_from([b"1", b"x", TIME.encode(), b"", b'"a', b"'b'", b"#", b"NA"]) | st.binary(max_size=6)
    row = st.lists(field, max_size=5).map(sep.join) | st.just(sep.join([b"k", b"1", TIME.encode()])) | _NOISE | header
    with_header = st.tuples(header, st.lists(row, min_size=2, max_size=9)).map(lambda found: [found[0], *found[1]])
    kinds = [
        _text_files(st.lists(_JSON | _VALID | _NOISE, min_size=2, max_size=9), ".jsonl", lambda body: len(_lines(body))),
        _text_files(with_header, ".csv", lambda body: _csv_rows(body, options)),
        _PARQUET,
        _text_files(st.lists(row, max_size=5), ".csv", lambda body: _csv_rows(body, options)),
        st.tuples(
            st.sampled_from([".parquet", ".dat", ".csv.bz2", ".jsonl.snappy", ".csv.lz4", ".jsonl.zst"]),
            st.binary(max_size=30),
            st.just([1]),
        ),
    ]
    made = [draw(kinds[n % len(kinds)]) for n in range(files)]
    return Case(contract, [Input(f"{draw(_NAMES)}-{n}{suffix}", content, rows) for n, (suffix, content, rows) in enumerate(made)])


def _rows_by_file(engine: Engine) -> dict[str, Counter[int]]:
    """How many rows of each file are in the log and the quarantine of a source, by the rank of the file in the batch.

    Each row of the quarantine must have a reason.
    """
    found, ranks = {name: Counter[int]() for name in engine.sources}, list[DataFrame]()
    for name, contract in engine.sources.items():
        for table, reason in ((contract.log, F.lit("accepted")), (contract.quarantine, F.col("reason"))):
            if engine.lake.delta(table) is not None:
                ranks.append(engine.views.table(table).select(F.lit(name), F.shiftright(F.col(ARRIVAL), RANK_BITS), reason))
    for name, rank, reason in reduce(DataFrame.union, ranks).collect():
        assert reason, (name, rank)
        found[name][rank] += 1
    return found


def _check_every_line(make_engine: MakeEngine, root: Path, cases: Sequence[Case]) -> None:
    shutil.rmtree(root / "lake", ignore_errors=True)
    shutil.rmtree(root / "landing", ignore_errors=True)
    engine = make_engine([case.contract for case in cases], [])
    slept = list[float]()
    engine.ingestion.__dict__["batches"] = engine.ingestion.batches.__class__(
        engine.spark, engine.lake, engine.ledger, engine.sources, retries=lambda: ReadRetries((), slept.append)
    )
    for case in cases:
        folder = Path(engine.folders[case.contract.name])
        folder.mkdir(parents=True)
        for file in case.files:
            (folder / file.name).write_bytes(file.content)
    every = [f for case in cases for f in landed_files(engine.folders[case.contract.name], case.contract.name)]
    batch = engine.ingestion.batches.files(every)
    assert batch is not None
    rows_by_file = _rows_by_file(engine)
    for case in cases:
        [ingested] = [s for s in batch if s.source == case.contract.name]
        assert ingested.rows_read == ingested.accepted + ingested.duplicate + ingested.quarantined + ingested.markers
        assert len(ingested.offsets) == len(case.files)
        found, files = rows_by_file[case.contract.name], sorted(f for f in every if f.source == case.contract.name)
        assert found.total() == ingested.rows_read
        for rank, file in enumerate(files):
            landed_as = next(f for f in case.files if f.name == Path(file.pattern.replace("\\", "")).name)
            assert found[rank] in landed_as.rows, (landed_as, found[rank], case.contract.options)
    assert engine.ingestion.batches.files(every) is None


_SLOW = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def _cover_options_and_kinds_of_files(cases: tuple[Case, ...]) -> bool:
    """Whether sources have options and every treatment of new columns, and the files every kind, also compressed and corrupted ones."""
    files = [file for case in cases for file in case.files]
    suffixes = {suffix for suffix in (".jsonl", ".csv", ".jsonl.gz", ".csv.gz", ".parquet") for file in files if file.name.endswith(suffix)}
    kinds = [
        any(case.contract.options for case in cases),
        {case.contract.new_columns for case in cases} == {"ignore", "quarantine", "add"},
        len(suffixes) == 5,
        any(file.name.endswith(".gz") and len(file.rows) == 2 for file in files),  # a corrupted one may count as one row
        any(file.rows == ANY for file in files),
    ]
    return all(kinds)


@given(st.tuples(*[_cases(f"s{n}", 10) for n in range(3)]).filter(_cover_options_and_kinds_of_files))
@settings(max_examples=1, derandomize=True, phases=[Phase.generate], **_SLOW)
def test_every_line_is_ingested_or_quarantined_with_a_reason(make_module_engine: MakeEngine, cases: tuple[Case, ...]) -> None:
    _check_every_line(make_module_engine, _root(make_module_engine), cases)


@pytest.mark.soak
@given(st.tuples(_cases("s0", 10)))
@settings(max_examples=100, **_SLOW)
def test_every_line_of_many_files_is_ingested_or_quarantined_with_a_reason(make_module_engine: MakeEngine, cases: tuple[Case, ...]) -> None:
    _check_every_line(make_module_engine, _root(make_module_engine), cases)


def _root(make_engine: MakeEngine) -> Path:
    return Path(make_engine([source("s0")], []).lake.root).parent
