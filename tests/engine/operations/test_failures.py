"""The newest failure of a table and of the ingest is kept in the lake until the next step or batch. No test starts Spark."""

import logging
from collections.abc import Callable, Generator
from concurrent.futures import wait
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException, PySparkException

from platform_defs.engine import Engine
from platform_defs.engine.accounting.accounts import Accounts
from platform_defs.engine.accounting.one_step import LawError
from platform_defs.engine.advance.advance import Advance, Step
from platform_defs.engine.ingest.ingestion import Ingestion
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.lake.errors import LakeBusy, LakeError
from platform_defs.engine.lake.interrupts import Stop, waiting_until
from platform_defs.engine.ledger.ledger import Batch
from platform_defs.engine.operations import failures, in_parallel, publish_all
from platform_defs.engine.operations.advance_all import AdvanceAll
from platform_defs.engine.operations.failures import FOLDER, Failure, describe_error
from platform_defs.engine.operations.in_parallel import advance_in_parallel
from platform_defs.engine.operations.publish_all import PublishAll
from platform_defs.engine.operations.publish_to_topic import Published
from platform_defs.settings.stream_trigger import StreamTrigger
from platform_defs.stream.run import StreamRun
from tests.engine.source_batches import source_batch
from tests.platform_defs.stream.recorder import Recorder
from tests.support.bare_lake import bare_engine, commit_batch, commit_step
from tests.support.clock import NOON, Clock
from tests.support.small_sources import MINUTE, START, join, source

CANCELLED = PySparkException("job 7 cancelled", errorClass="SPARK_JOB_CANCELLED", messageParameters={})


@pytest.fixture
def engine(tmp_path: Path, clock: Clock) -> Engine:
    made = bare_engine(tmp_path, clock, [source("l"), source("r")], [join()])
    commit_batch(made, {"l": {"watermark": START}, "r": {"watermark": START}})
    return made


def test_a_failed_advance_is_kept_until_the_next_step(engine: Engine, clock: Clock) -> None:
    assert engine.failures.of("pairs") is None
    with pytest.raises(AssertionError, match="a session is started"):
        engine.advance("pairs")
    assert engine.failures.of("pairs") == Failure(NOON, "AssertionError", "AssertionError", "0:0")
    clock.pass_ms(MINUTE)
    with pytest.raises(AssertionError, match="a session is started"):
        engine.advance("pairs")
    assert engine.snapshot().failures.of("pairs") == Failure(NOON + MINUTE, "AssertionError", "AssertionError", "0:0")
    commit_step(engine, "pairs", closed_to=START)
    assert engine.failures.of("pairs") is None


def test_a_failed_ingest_is_kept_until_the_next_batch(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LakeError("no route to s3a://user:secret@bucket/lake\nat all")

    monkeypatch.setattr(Ingestion, "run", fail)
    with pytest.raises(LakeError, match="no route"):
        engine.ingest()
    assert engine.failures.of_ingest() == Failure(NOON, "LakeError", "no route to s3a://***@bucket/lake\\nat all", "1")
    commit_batch(engine, {"l": {"watermark": START}})
    assert engine.failures.of_ingest() is None


def test_a_failed_advance_is_over_when_a_later_one_finds_nothing_to_do(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="a session is started"):
        engine.advance("pairs")
    monkeypatch.setattr(Advance, "__call__", lambda *_: iter(()))
    monkeypatch.setattr(Engine, "_advance", lambda *_: Advance(None, None, 1))  # pyright: ignore[reportArgumentType]
    assert engine.advance("pairs") == []
    assert engine.failures.of("pairs") is None


@pytest.mark.parametrize("every", [None, "30 seconds"])
def test_a_failed_ingest_is_over_when_a_later_one_finds_nothing_to_do(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, every: str | None
) -> None:
    def ingest(_: Ingestion, every: str | None, on_batch: Any, on_quiet: Callable[[], None], on_start: Any) -> list[Any]:
        if every is not None:
            on_quiet()
            raise KeyboardInterrupt
        return []

    def fail(*_: object) -> None:
        raise LakeError("no route")

    monkeypatch.setattr(Ingestion, "run", fail)
    with pytest.raises(LakeError, match="no route"):
        engine.ingest()
    monkeypatch.setattr(Ingestion, "run", ingest)
    with suppress(KeyboardInterrupt):
        engine.ingest(every)
    assert engine.failures.of_ingest() is None


def test_a_violated_law_is_the_failure_of_its_table_and_not_of_the_ingest(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream accounts while it ingests."""

    def check(*_: object) -> None:
        raise LawError.of_table("pairs", [], {("l", 1): (2, 1)})

    def ingest(_: Ingestion, every: str | None, on_batch: Callable[[Batch], None], *__: Any) -> list[Any]:
        on_batch((source_batch("l", 1),))
        return []

    stream = StreamRun(engine, Recorder())
    monkeypatch.setattr(AdvanceAll, "__call__", lambda _: stream._law.note_step("pairs", Step(Progress(), Progress(step=1), 1)))
    stream._law.most_saved_s = stream._law.share = 1e9
    monkeypatch.setattr(Accounts, "check", check)
    monkeypatch.setattr(Ingestion, "run", ingest)
    with pytest.raises(LawError, match="pairs"):
        stream.run(StreamTrigger(None))
    found = engine.failures.of("pairs")
    assert found is not None
    assert found.error == "LawError"
    assert engine.failures.of_ingest() is None


def test_a_failed_publish_is_kept_until_the_table_is_published(engine: Engine) -> None:
    with pytest.raises(OSError, match="no broker"), engine.failures.recorded_of_sink("pairs"):
        raise OSError("no broker")
    commit_step(engine, "pairs", closed_to=START)
    assert engine.snapshot().failures.of_sink("pairs") == Failure(NOON, "OSError", "no broker", "")
    with pytest.raises(LakeBusy, match="has a writer already"), engine.failures.recorded_of_sink("pairs"):
        raise LakeBusy.held_by_writer("kafka-pairs", "another process")
    assert engine.failures.of_sink("pairs") is not None
    for _ in range(2):
        with engine.failures.recorded_of_sink("pairs"):
            pass
    assert engine.failures.of_sink("pairs") is None


def test_the_failure_of_a_source_names_its_first_time_and_its_newest_reason(engine: Engine, clock: Clock) -> None:
    engine.failures.record_sources({"l": "no bucket"})
    clock.pass_ms(MINUTE)
    engine.failures.record_sources({"l": "access denied", "r": "no bucket"})
    assert engine.failures.of_source("l") == Failure(NOON, "UnreadError", "access denied", "")
    assert engine.failures.of_source("r") == Failure(NOON + MINUTE, "UnreadError", "no bucket", "")
    engine.failures.record_sources({"r": "no bucket"})
    assert engine.failures.of_source("l") is None


def test_another_writer_is_no_failure(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: object) -> None:
        raise LakeBusy.held_by_writer("ledger", "another process")

    monkeypatch.setattr(Ingestion, "run", wait)
    with pytest.raises(LakeBusy, match="has a writer already"):
        engine.ingest()
    assert engine.failures.of_ingest() is None


def test_a_job_that_an_interrupt_cancels_is_no_failure(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs of steps in other threads are cancelled when the process is stopped."""
    began, cancelled = Event(), Event()

    def steps(name: str) -> Generator[Step]:
        with engine.failures.recorded_of(name):
            began.set()
            assert cancelled.wait(30)
            raise CANCELLED
        yield

    def interrupted(*_: object, **__: object) -> None:
        began.wait(30)
        raise KeyboardInterrupt("ctrl-c")

    monkeypatch.setattr(in_parallel, "cancel_jobs", cancelled.set)
    waits = [interrupted]
    monkeypatch.setattr(in_parallel, "wait", lambda *args, **more: waits.pop()() if waits else wait(*args, **more))
    with pytest.raises(KeyboardInterrupt, match="ctrl-c"):
        advance_in_parallel({"pairs": []}, ["pairs"], steps)
    assert engine.failures.of("pairs") is None


@pytest.mark.parametrize(("error", "recorded"), [(CANCELLED, None), (LawError.of_table("pairs", [], {}), "LawError")])
def test_a_violated_law_is_recorded_although_jobs_are_cancelled(engine: Engine, error: Exception, recorded: str | None) -> None:
    stop = Stop()
    stop.cancel()
    with waiting_until(stop), suppress(type(error)), engine.failures.recorded_of_account("pairs"):
        raise error
    found = engine.failures.of("pairs")
    assert (found and found.error) == recorded


def test_a_publish_that_the_end_of_a_stream_cancels_is_no_failure(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    began, cancelled = Event(), Event()

    def publish(name: str, _: int) -> Published:
        with engine.failures.recorded_of_sink(name):
            began.set()
            assert cancelled.wait(30)
            raise CANCELLED

    monkeypatch.setattr(publish_all, "cancel_jobs", cancelled.set)
    monkeypatch.setattr(publish_all, "_CANCEL_EVERY_S", 0.01)

    def stream() -> None:
        with PublishAll(publish, {"pairs"}, lambda *_: None) as all_of:
            all_of.publish_steps({"pairs": 1})
            assert began.wait(30)
            raise KeyboardInterrupt("ctrl-c")

    with pytest.raises(KeyboardInterrupt, match="ctrl-c"):
        stream()
    assert engine.failures.of_sink("pairs") is None


def test_the_text_of_an_error_of_spark_is_not_kept() -> None:
    error = AnalysisException("a row: 4711", errorClass="CAST_INVALID_INPUT", messageParameters={})
    assert describe_error(error) == "Spark failed with AnalysisException CAST_INVALID_INPUT"
    assert describe_error(ValueError("a row: 4711")) == "ValueError"
    assert describe_error(LakeError("x" * 1000)).startswith("x" * 500 + "…")


def test_the_access_key_in_an_answer_of_s3_is_not_kept() -> None:
    answer = "<Error><Code>InvalidAccessKeyId</Code><Message>It does not exist.</Message><AWSAccessKeyId>AKIA1</AWSAccessKeyId></Error>"
    for error in (DeltaError(f"Generic S3 error: 403: {answer}"), OSError(f"Generic S3 error: 403: {answer}")):
        assert describe_error(error) == "InvalidAccessKeyId: It does not exist."


@pytest.mark.parametrize("content", [b"", b"[]", b'{"at": 1}', b'{"at": "x", "error": "", "message": "", "position": ""}'])
def test_a_damaged_file_is_ignored(engine: Engine, content: bytes) -> None:
    file = Path(engine.lake.root, FOLDER, "tables", "pairs.json")
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    assert engine.failures.of("pairs") is None


def test_a_failure_that_cannot_be_recorded_hides_no_error(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(failures, "replace_file", refuse)
    with caplog.at_level(logging.WARNING), pytest.raises(AssertionError, match="a session is started"):
        engine.advance("pairs")
    assert "the failure was not recorded for `tidemark status`" in caplog.text
