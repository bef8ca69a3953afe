"""New input files in S3: a run and the sensor find them page by page, without Spark."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import dagster as dg
import obstore
import pytest

from platform_defs.engine import Engine
from platform_defs.engine.ingest.s3_files import S3FileFinder
from platform_defs.engine.lake import objects
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.orchestration.sensors import new_input
from tests.engine.source_batches import source_batch
from tests.support.clock import Clock
from tests.support.s3_server import BUCKET, S3Server
from tests.support.small_sources import source

pytestmark = pytest.mark.s3
Put = Callable[[str, bytes], Any]


@pytest.fixture
def folder(lake: Lake) -> str:
    return f"{lake.root}/landing/l"


@pytest.fixture
def put(server: S3Server, folder: str) -> Put:
    prefix = folder.removeprefix(f"s3a://{BUCKET}/")
    return lambda name, content: obstore.put(server.bucket(), f"{prefix}/{name}", content)


@pytest.fixture
def engine(lake: Lake, folder: str) -> Engine:
    def no_session() -> NoReturn:
        raise AssertionError("a session was started")

    return Engine(lake, {"l": source("l")}, {}, no_session, Clock(), folders={"l": folder})


def _record(engine: Engine, *offsets: str) -> None:
    ledger: Ledger = engine.ledger
    ledger.commit([(source_batch("l", ledger.head + 1, offsets=offsets),)])


def test_new_objects_are_those_that_the_ledger_does_not_record(engine: Engine, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PAGE", 10)
    names = [f"2026-03-{day:02}/ü %41 + {day}.jsonl" for day in range(1, 26)]
    for name in names:
        put(name, b"{}\n")
    for ignored in ("_hidden/a.jsonl", ".b.jsonl", "2026-03-01/_c.jsonl"):
        put(ignored, b"{}\n")
    put("empty.jsonl", b"")
    found = engine.ingestion.new_files("l")
    assert sorted(file.keys[0] for file in found) == [f"./{name}" for name in names]
    assert {file.length for file in found} == {3}
    _record(engine, *[file.offset for file in found[:24]])
    assert engine.ingestion.new_files("l") == found[24:]
    _record(engine, found[24].offset)
    assert engine.ingestion.new_files("l") == []
    put(names[3], b"{ }\n")
    assert [file.keys[0] for file in engine.ingestion.new_files("l")] == [f"./{names[3]}"]


def test_objects_are_compared_with_the_ledger_page_by_page(engine: Engine, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PAGE", 5)
    for n in range(12):
        put(f"{n:02}.jsonl", b"{}\n")
    asked = list[int]()
    files_to_read = Ledger.files_to_read

    def count(ledger: Ledger, name: str, files: Any) -> Any:
        asked.append(len(files))
        return files_to_read(ledger, name, files)

    monkeypatch.setattr(Ledger, "files_to_read", count)
    assert len(engine.ingestion.new_files("l")) == 12
    assert asked == [5, 5, 2]


def test_a_key_with_an_empty_part_is_named(engine: Engine, server: S3Server, folder: str, put: Put) -> None:
    put("a.jsonl", b"{}\n")
    client = server.client()
    client.put_object(Bucket=BUCKET, Key=f"{folder.removeprefix(f's3a://{BUCKET}/')}/x//y.jsonl", Body=b"{}")
    assert engine.ingestion.new_files("l") == []
    [reason] = [reason for path, reason in engine.ingestion.unlisted("l").items() if path == folder]
    assert "x//y.jsonl" in reason
    assert "empty path segment" in reason


def _tick(engine: Engine) -> Any:
    with dg.DagsterInstance.ephemeral() as instance, dg.build_sensor_context(instance=instance, resources={"engine": engine}) as context:
        return new_input.evaluate_tick(context)


def test_the_sensor_requests_a_run_for_a_new_object(engine: Engine, put: Put) -> None:
    assert _tick(engine).skip_message == "nothing new has landed"
    put("1.jsonl", b"{}\n")
    assert len(_tick(engine).run_requests) == 1


def test_a_folder_that_cannot_be_listed_is_the_sensors_reason_to_skip(engine: Engine, folder: str) -> None:
    options = (engine.lake.storage_options or {}) | {"AWS_ACCESS_KEY_ID": "wrong-key"}
    engine.ingestion.__dict__["file_finders"] = {"l": S3FileFinder("l", folder, engine.ledger, options)}
    tick = _tick(engine)
    assert tick.run_requests == []
    assert tick.skip_message == (
        f"{folder} cannot be listed: InvalidAccessKeyId: The AWS Access Key Id you provided does not exist in our records."
    )


def test_a_ledger_that_was_created_again_is_detected(engine: Engine, put: Put, server: S3Server) -> None:
    put("1.jsonl", b"{}\n")
    [found] = engine.ingestion.new_files("l")
    _record(engine, found.offset)
    assert engine.ingestion.new_files("l") == []
    time.sleep(1.1)  # S3 has times in seconds
    other = replace(engine)
    client, prefix = server.client(), engine.lake.path("ledger").removeprefix(f"s3a://{BUCKET}/")
    for name in [f["Key"] for f in client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]]:
        client.delete_object(Bucket=BUCKET, Key=name)
    _record(other, "another.jsonl|1|1")
    assert engine.ledger.head == other.ledger.head == 1
    assert engine.ingestion.new_files("l") == [found]
