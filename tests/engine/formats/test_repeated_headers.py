"""Lines of a CSV file that are the same as its header: the first of them is the header, and the others are rows."""

import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from assets.contracts import SourceContract
from platform_defs.engine import Engine
from platform_defs.engine.formats import text
from tests.conftest import MakeEngine
from tests.support.file_walk import landed_files
from tests.support.small_sources import START, iso, source

TIME = iso(START)
CODES = SourceContract(name="codes", schema="code STRING", event_time="ingested_at")
FILES = {
    "a.csv": "code\nx\ncode\ny\ncode\n",
    "b.csv": "\ufeffcode\nz\n\ufeffcode\n",
    "c.csv": "\n\ncode\nw\n",
    "d.csv": "code\n" + "code\n" * 40,
    "e.csv": "k\ncode\n",
    "f.csv.gz": "code\nv\ncode\n",
    "12:00.csv": "code\ncode\nu\n",
}
ROWS = {
    "a.csv": ["x", "code", "y", "code"],
    "b.csv": ["z", "\ufeffcode"],
    "c.csv": ["w"],
    "d.csv": ["code"] * 40,
    "e.csv": [],
    "f.csv.gz": ["v", "code"],
    "12:00.csv": ["code", "u"],
}


TASKS = {"usual": {}, "packed": {"openCostInBytes": "0"}, "split": {"openCostInBytes": "0", "maxPartitionBytes": "8"}}
"""Options of Spark by which a task reads one file, several files, or a part of a file."""
LONGEST, SHORTEST = 1 << 20, 16


@pytest.fixture
def engine(make_engine: MakeEngine, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine whose session reads files as `TASKS` says."""
    engine = make_engine([CODES, source("l")], [])
    options: Mapping[str, str] = {f"spark.sql.files.{name}": value for name, value in TASKS[request.param].items()}
    before = {name: engine.spark.conf.get(name) for name in options}
    for name, value in options.items():
        engine.spark.conf.set(name, value)
    yield engine
    for name, value in before.items():
        engine.spark.conf.set(name, value or "")


@pytest.mark.parametrize(
    ("engine", "longest"),
    [
        ("usual", LONGEST),
        ("packed", SHORTEST),
        ("split", LONGEST),
        ("split", SHORTEST),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in (("usual", SHORTEST), ("packed", LONGEST))),
    ],
    indirect=["engine"],
)
def test_only_the_first_of_the_lines_is_the_header(engine: Engine, monkeypatch: pytest.MonkeyPatch, longest: int) -> None:
    """Of a file that is longer than what is read for its header, any line may be the same as the header."""
    monkeypatch.setattr(text, "_MOST_HEADER_BYTES", longest)
    for name, content in FILES.items():
        encoded = content.encode()
        _write(engine, "codes", name, gzip.compress(encoded) if name.endswith(".gz") else encoded)
    _write(engine, "l", "joined.csv", f"k,v,ts\na,1,{TIME}\nk,v,ts\nb,2,{TIME}\n".encode())
    _write(engine, "l", "none.csv", f"k,v,ts\nc,3,{TIME}\n".encode())
    batch = engine.ingestion.batches.files([f for name, folder in engine.folders.items() for f in landed_files(folder, name)])
    counts = {s.source: (s.rows_read, s.accepted, s.quarantined) for s in batch or ()}
    accepted = sum(map(len, ROWS.values()))
    assert counts == {"codes": (accepted + 2, accepted, 2), "l": (4, 3, 1)}

    ranks = [Path(file.path).name.replace("%3A", ":") for file in sorted(landed_files(engine.folders["codes"], "codes"))]
    found: dict[str, list[str]] = {name: [] for name in FILES}
    for code, arrival in sorted(engine.views.table("events/codes").select("code", "arrival").collect(), key=lambda row: row[1]):
        found[ranks[arrival >> 42]].append(code)
    without_marks = {name: [code.removeprefix("\ufeff") for code in codes] for name, codes in ROWS.items()}
    assert found in (ROWS, without_marks), "Hadoop removes a byte order mark at the start of a split"
    rejected = engine.views.table("quarantine/codes").unionByName(engine.views.table("quarantine/l")).select("raw", "reason").collect()
    lacking = "malformed: the file's header lacks code; for files without a header, set the source's option `header` to `false`"
    assert sorted(map(tuple, rejected)) == [("code", lacking), ("k", lacking), ("k,v,ts", "type: v is no int")]


def _write(engine: Engine, source_name: str, name: str, content: bytes) -> None:
    folder = Path(engine.folders[source_name])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
