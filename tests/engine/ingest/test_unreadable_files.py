"""No row of an unreadable file is lost: the file is read again later, other files are ingested, and every run names it."""

import gzip
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from platform_defs.engine import Engine, IngestError
from platform_defs.engine.formats.unreadable_files import ReadRetries
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.ledger.ledger import Batch
from tests.conftest import MakeEngine
from tests.support.clock import NOON
from tests.support.small_sources import START, Event, iso, land, rows_of, source

TORN = gzip.compress(b"".join(f"{n * 7919} \n".encode() for n in range(99)))[:-9]


def _land_unreadable(engine: Engine, name: str, file: str) -> Path:
    """Land a file with a wrong checksum, so that reading it fails; returns the checksum file."""
    path = land(engine, name, file, [Event(file, 1, 0).line])
    checksum = path.parent / f".{file}.crc"
    checksum.write_bytes(b"crc\0" + (512).to_bytes(4) + b"\1\2\3\4")
    return checksum


def _patient(engine: Engine, sleep: Callable[[float], None]) -> Engine:
    engine.ingestion.__dict__["batches"] = replace(engine.ingestion.batches, retries=lambda: ReadRetries((1.0, 5.0), sleep))
    return engine


def _impatient(engine: Engine) -> Engine:
    """Make an engine that tries to read a file only once in a micro-batch: each further try is a Spark job."""
    engine.ingestion.__dict__["batches"] = replace(engine.ingestion.batches, retries=lambda: ReadRetries(()))
    return engine


def _keys(engine: Engine, name: str = "l") -> list[Any]:
    return [k for (k,) in rows_of(read_log(engine.workspace, name, engine.ledger.head), "k")]


def test_a_transient_read_error_is_retried(make_engine: MakeEngine) -> None:
    slept = list[float]()
    engine = make_engine([source("l")], [])
    checksum = _land_unreadable(engine, "l", "b.jsonl")

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        checksum.unlink()

    land(engine, "l", "a.jsonl", [Event("a", 1, 0).line])
    [[ingested]] = _patient(engine, sleep).ingest()
    assert (ingested.accepted, ingested.quarantined, slept) == (2, 0, [1.0])


def test_an_unreadable_file_is_skipped_and_named_by_every_run_until_it_can_be_read(make_engine: MakeEngine) -> None:
    slept = list[float]()
    engine = _patient(make_engine([source("l"), source("r")], []), slept.append)
    checksum = _land_unreadable(engine, "l", "b.jsonl")
    _land_unreadable(engine, "r", "only.jsonl")
    land(engine, "l", "a.jsonl", [Event("a", 1, 0).line])
    (Path(engine.folders["l"]) / "torn.jsonl.gz").write_bytes(TORN)
    message = (
        r"^source 'l': 1 file could not be read: file:.*/l/b\.jsonl \(ChecksumException: .*\); source 'r': 1 file could not be read: "
        r"file:.*/r/only\.jsonl .*so the ledger does not record them: the next ingest tries again, .* or remove the file from the folder$"
    )
    with pytest.raises(UnreadError, match=message) as raised:
        engine.ingest()
    [batch] = raised.value.batches
    assert [(s.source, s.accepted, s.quarantined, len(s.offsets)) for s in batch] == [("l", 1, 1, 2)]
    assert sorted(slept) == [1.0, 1.0, 5.0, 5.0]

    with pytest.raises(IngestError, match=r"1 file could not be read: .*ChecksumException"):
        _impatient(make_engine([source("l"), source("r")], [])).ingest()
    assert engine.ledger.head == 1

    checksum.unlink()
    land(engine, "r", "good.jsonl", [Event("c", 1, 0).line])
    with pytest.raises(UnreadError, match=r"^source 'r': 1 file could not be read: file:.*/r/only\.jsonl") as raised:
        _impatient(engine).ingest()
    assert [s.accepted for e in raised.value.batches for s in e] == [1, 1]
    (Path(engine.folders["r"]) / ".only.jsonl.crc").unlink()
    assert [s.accepted for e in engine.ingest() for s in e] == [1]
    assert (_keys(engine), _keys(engine, "r")) == (["a", "b.jsonl"], ["c", "only.jsonl"])
    assert engine.ingest() == []


class _Stop(Exception):
    """Ends the stream after its last batch."""


def test_a_running_stream_skips_an_unreadable_file_and_reads_it_later(make_engine: MakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    engine = _impatient(make_engine([source("l")], []))
    checksum = _land_unreadable(engine, "l", "b.jsonl")
    land(engine, "l", "a.jsonl", [Event("a", 1, 0).line])
    whole = gzip.compress(f"{Event('repaired', 1, 0).line}\n".encode())
    torn = Path(engine.folders["l"]) / "torn.jsonl.gz"
    _write(torn, whole[:-4] + b"\0\0\0\0")
    batches = list[Batch]()

    def on_batch(batch: Batch) -> None:
        batches.append(batch)
        if len(batches) == 1:
            checksum.unlink()
        elif len(batches) == 2:
            _write(torn, whole)
            assert len(engine.ingestion.quarantine.retry("l")) == 1
        else:
            raise _Stop("three batches")

    waits = count()

    def sleep(seconds: float) -> None:
        assert next(waits) < 100, "the stream did not read the files within 100 waits"
        time.sleep(min(seconds, 0.2))

    stream = replace(engine.ingestion.stream, first_wait_s=0.1, sleep=sleep)
    with pytest.raises(_Stop, match="three batches"):
        stream.run("1 second", on_batch)
    assert [(s.accepted, s.quarantined) for e in batches for s in e] == [(1, 1), (1, 0), (1, 0)]
    assert _keys(engine) == ["a", "b.jsonl", "repaired"]
    assert [r.getMessage().split(" (")[0] for r in caplog.records if r.name.endswith("pending_files")] == [
        f"source 'l': 1 file could not be read: file:{engine.folders['l']}/b.jsonl"
    ]


def test_a_running_stream_reads_a_rewritten_file_in_its_new_state(make_engine: MakeEngine) -> None:
    """Read in its old state it would be recorded so, and the next listing would take it for a file that changed after it was read."""
    engine = _impatient(make_engine([source("l")], []))
    checksum = _land_unreadable(engine, "l", "b.jsonl")
    deleted = _land_unreadable(engine, "l", "deleted.jsonl")
    waits = count()

    def sleep(_: float) -> None:
        match next(waits):
            case 0:
                checksum.unlink()
                _write(checksum.parent / "b.jsonl", f"{Event('new', 1, 0).line}\n".encode())
                (deleted.parent / "deleted.jsonl").unlink()
            case 1:
                pass
            case _:
                raise _Stop("two looks")

    with pytest.raises(_Stop, match="two looks"):
        replace(engine.ingestion.stream, first_wait_s=0.0, sleep=sleep).run("1 second")
    assert [(s.accepted, s.quarantined) for e in engine.ledger.batches() for s in e] == [(1, 0)]
    assert _keys(engine) == ["new"]
    assert engine.failures.of_source("l") is None
    assert engine.ingest() == []


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    os.utime(path, ns=(0, NOON * 1_000_000))


def test_file_names_with_colons_are_read(make_engine: MakeEngine) -> None:
    names = ["2026-03-01T12:00:00.jsonl", "a:b [x]*{y}?.jsonl", "12:00/plain.jsonl", "12:00/[in] 13:00.jsonl", "plain.jsonl"]
    lines = [json.dumps({"k": n, "v": 1, "ts": iso(START), "w": 1}) for n in names]
    engine = make_engine([source("j", new_columns="add"), source("c"), source("p"), source("z")], [])
    for name, line in zip(names, lines, strict=True):
        path = Path(engine.folders["j"]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line + "\n")
    for folder in ("c", "p", "z"):
        Path(engine.folders[folder]).mkdir(parents=True)
    for name in ("12:00.csv", "plain.csv"):
        (Path(engine.folders["c"]) / name).write_text(f"k,v,ts\n{name},1,{iso(START)}\n")
    for name in ("12:00 [x].parquet", "plain.parquet"):
        pq.write_table(pa.table({"k": [name], "v": [1], "ts": [iso(START)]}), Path(engine.folders["p"]) / name)
    for name, content in {"12:00.jsonl.gz": gzip.compress(f"{lines[0]}\n".encode()), "13:00.jsonl.gz": TORN, "14:00.jsonl": b""}.items():
        (Path(engine.folders["z"]) / name).write_bytes(content)
    [batch] = engine.ingest()
    assert {s.source: (s.accepted, s.quarantined) for s in batch} == {"j": (5, 0), "c": (2, 0), "p": (2, 0), "z": (1, 2)}
    assert _keys(engine, "j") == sorted(names)
    assert {r.w for r in engine.views.table("events/j").collect()} == {"1"}
    assert sorted(Path(r.path).name for r in engine.views.table("quarantine/z").collect()) == ["13:00.jsonl.gz", "14:00.jsonl"]
    assert engine.ingest() == []


def test_csv_separators_of_several_characters_and_the_option_delimiter_are_read(make_engine: MakeEngine) -> None:
    options = {"sep": "||", "quote": "'", "escape": "'", "Mode": "permissive"}
    engine = make_engine([source("c", options=options), source("t", options={"delimiter": "\\t"})], [])
    land(engine, "c", "1.csv", ["v||'k'||ts", f"1||'a||b'||{iso(START)}", "1||few", f"x||c||{iso(START)}", f"1||'it''s'||{iso(START)}"])
    land(engine, "t", "1.csv", ["k\tv\tts", f"a\t1\t{iso(START)}", "few\t1"])
    land(engine, "t", "1.jsonl", ["no JSON", Event("b", 1, 0).line])
    [batch] = engine.ingest()
    assert {s.source: (s.accepted, s.quarantined) for s in batch} == {"c": (2, 2), "t": (2, 2)}
    assert ({*_keys(engine, "c")}, _keys(engine, "t")) == ({"a||b", "it's"}, ["a", "b"])
    assert rows_of(engine.views.table("quarantine/c"), "reason") == [
        ("malformed: not 3 fields, as its file's header has",),
        ("type: v is no int",),
    ]
