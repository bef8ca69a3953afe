"""The micro-batches of a stream: idle sources, a busy ledger, a failing asset. Without Spark and without waiting."""

import os
import signal
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from platform_defs.engine import Engine, LawError, LedgerError, ProgressError
from platform_defs.engine.formats.files import File
from platform_defs.engine.ingest.micro_batches import MAX_BATCHES_KEPT, MicroBatches
from platform_defs.engine.ingest.stream import Stream
from platform_defs.engine.lake import interrupts
from platform_defs.engine.lake.errors import LakeBusy
from platform_defs.engine.lake.interrupts import TERMINATED, ending_on_sigterm, run_to_end
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Batch
from platform_defs.engine.operations.advance_all import BUSY_WAIT_S, AdvanceAll, PendingRetry
from tests.engine.source_batches import source_batch
from tests.support.clock import Clock
from tests.support.small_sources import HOUR, START, source

NO_SESSION: Any = None
BUSY = LakeBusy.held_by_writer("ledger", "process 7 (tidemark drain)")
BATCH: Batch = (source_batch("l", 1),)
FILE = File(1, "file:/in/1", 3, "l")


@dataclass
class Calls:
    """The calls of a stream's callbacks, in order."""

    made: list[Any] = field(default_factory=list)

    def on_batch(self, batch: Batch) -> None:
        self.made.append(batch[0].seq)

    def on_quiet(self) -> None:
        self.made.append("quiet")


def _micro_batches(
    calls: Calls, ingest: Callable[..., Batch | None] = lambda _: BATCH, idle: Callable[[], Batch | None] = lambda: None, **options: Any
):
    return MicroBatches(ingest, idle, calls.on_batch, calls.on_quiet, **options)


def _stream(engine: Engine, **changes: Any) -> Stream:
    return replace(engine.ingestion.stream, **changes)


def test_a_stream_without_a_file_records_idle_sources_at_its_interval_and_then_is_quiet(tmp_path: Path, clock: Clock) -> None:
    folders = {"l": str(tmp_path / "in/l")}
    engine = Engine(Lake(str(tmp_path / "lake")), {"l": source("l", idle_timeout="1 hour")}, {}, lambda: NO_SESSION, clock, folders=folders)
    calls, waited = Calls(), list[float]()
    engine.ingestion.control_batches.watermark({"l": START})

    def sleep(seconds: float) -> None:
        clock.pass_ms(HOUR // 2)
        waited.append(seconds)
        if len(waited) > 5:
            raise KeyboardInterrupt("enough")

    with pytest.raises(KeyboardInterrupt, match="enough"):
        _stream(engine, sleep=sleep).run("30 seconds", calls.on_batch, calls.on_quiet)
    assert len(waited) == 6
    assert all(0 < s <= 30 for s in waited)
    assert calls.made == ["quiet", "quiet", 2, "quiet", "quiet"]
    assert [(s.kind, s.idle) for s in engine.ledger.batches()[1]] == [("inactive", True)]
    assert engine.ingestion.current_writer() is None


def test_a_stream_of_the_present_files_does_not_wait(tmp_path: Path) -> None:
    engine = Engine(Lake(str(tmp_path)), {}, {}, lambda: NO_SESSION)
    assert _stream(engine, sleep=lambda _: pytest.fail("the stream waits")).run() == []


def test_an_error_of_on_quiet_ends_the_stream(tmp_path: Path) -> None:
    def fail() -> None:
        raise ProgressError("no")

    engine = Engine(Lake(str(tmp_path)), {}, {}, lambda: NO_SESSION)
    with pytest.raises(ProgressError, match="no"):
        _stream(engine, sleep=lambda _: None).run("1 second", on_quiet=fail)
    assert engine.ingestion.current_writer() is None


def test_a_failed_control_batch_is_skipped_unless_the_ledger_is_corrupted() -> None:
    calls = Calls()
    for transient in (BUSY, OSError("the store is unreachable")):
        micro_batches = _micro_batches(calls, idle=lambda error=transient: _raise(error))
        micro_batches.quiet()
        micro_batches.files([FILE])
    assert calls.made == [1, 1]
    with pytest.raises(LedgerError, match="torn"):
        _micro_batches(calls, idle=lambda: _raise(LedgerError("torn"))).quiet()


def test_a_micro_batch_waits_while_another_process_writes_the_ledger() -> None:
    calls, waits, answers = Calls(), [], [BUSY, BUSY, BATCH]

    def ingest(_: object) -> Batch:
        answer = answers.pop(0)
        return answer if isinstance(answer, tuple) else _raise(answer)

    _micro_batches(calls, ingest, patience_s=10, sleep=waits.append).files([FILE])
    assert (calls.made, waits) == ([1], [1, 2])
    waits.clear()
    with pytest.raises(LakeBusy, match=r"ledger has a writer already: process 7 \(tidemark drain\)"):
        _micro_batches(calls, lambda _: _raise(BUSY), patience_s=100, sleep=waits.append).files([FILE])
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    with pytest.raises(LakeBusy, match="has a writer already"):
        _micro_batches(calls, lambda _: _raise(BUSY), sleep=lambda _: pytest.fail("no patience")).files([FILE])


def test_a_stream_keeps_only_its_newest_batches_in_memory() -> None:
    calls, batches = Calls(), iter([(source_batch("l", n),) for n in range(1, MAX_BATCHES_KEPT + 6)])
    micro_batches = _micro_batches(calls, lambda _: next(batches))
    for _ in range(MAX_BATCHES_KEPT + 5):
        micro_batches.files([FILE])
    assert (len(micro_batches.batches), micro_batches.batches[0][0].seq, calls.made[0]) == (MAX_BATCHES_KEPT, 6, 1)


def test_a_stream_looks_again_after_a_minute_or_nine_times_the_time_of_listing_files() -> None:
    """So listing a million objects, which takes minutes, is not repeated after each micro-batch."""
    micro_batches = _micro_batches(Calls(), look_again_after_ms=60_000)
    assert [micro_batches.must_look_again(listing_ms=1_000, batches_ms=ms) for ms in (60_000, 60_001)] == [False, True]
    assert [micro_batches.must_look_again(listing_ms=100_000, batches_ms=ms) for ms in (60_001, 900_000, 900_001)] == [False, False, True]
    assert not _micro_batches(Calls()).must_look_again(listing_ms=0, batches_ms=10**9), (
        "an ingest that ends when all is read looks only once"
    )


def test_a_failing_asset_is_retried_with_growing_delays_and_stops_no_other() -> None:
    now, advanced, reports, fixed = [0.0], [], [], []

    def steps(name: str) -> Generator[Any]:
        advanced.append((now[0], name))
        yield None
        if name == "bad" and not fixed:
            raise ArithmeticError("overflow")

    reads = {"first": ["log"], "bad": ["first"], "last": ["bad"]}
    assets = AdvanceAll(steps, reads, lambda name, f: reports.append((name, f.tries, f.wait_s, str(f.error))), lambda: now[0])
    for time in (0.0, 0.5, 1.0, 2.0, 3.0):
        now[0] = time
        assets()
    assert [name for _, name in advanced] == [
        "first",
        "bad",
        "last",
        "first",
        "last",
        "first",
        "bad",
        "last",
        "first",
        "last",
        "first",
        "bad",
        "last",
    ]
    assert reports == [("bad", 1, 1.0, "overflow"), ("bad", 2, 2.0, "overflow"), ("bad", 3, 4.0, "overflow")]
    for time in range(10, 10_000, 10):
        now[0] = float(time)
        assets()
    assert reports[-1][2] == 300.0
    fixed.append(True)
    now[0] += 299
    advanced.clear()
    assets.retry()
    assert [name for _, name in advanced] in ([], ["first", "bad", "last"])
    now[0] += 299
    assets.retry()
    assert not assets.failed
    advanced.clear()
    assets.retry()
    assert advanced == [], "nothing to retry"


def test_an_asset_with_another_writer_is_tried_again_soon_and_reported_ever_less_often() -> None:
    now, reports, free = [0.0], list[tuple[int, bool]](), list[bool]()

    def steps(name: str) -> Generator[Any]:
        yield None
        if not free:
            raise LakeBusy.released_for(name, "process 7 (tidemark rebuild)")

    assets = AdvanceAll(steps, {"a": ["log"]}, lambda _, f: reports.append((f.tries, f.is_busy)), lambda: now[0])
    for second in range(0, 100, 2):
        now[0] = float(second)
        assets.retry() if second else assets()
    assert reports == [(1, True), (2, True), (4, True), (8, True), (16, True), (32, True)]
    assert assets.failed["a"].wait_s == BUSY_WAIT_S
    free.append(True)
    now[0] += BUSY_WAIT_S
    assets.retry()
    assert not assets.failed


def test_a_failure_after_another_writer_is_the_first_failure() -> None:
    errors, now = [LakeBusy.held_by_writer("a", "process 7"), LakeBusy.held_by_writer("a", "process 7"), ArithmeticError("overflow")], [0.0]
    assets = AdvanceAll(lambda _: _raise(errors.pop(0)), {"a": ["log"]}, lambda *_: None, lambda: now[0])
    for second in (0.0, 2.0, 4.0):
        now[0] = second
        assets()
    assert (assets.failed["a"].tries, assets.failed["a"].wait_s, assets.failed["a"].is_busy) == (1, 1.0, False)


@pytest.mark.parametrize("fatal", [LawError("broken"), LedgerError("torn")], ids=lambda e: type(e).__name__)
def test_an_error_that_a_retry_cannot_fix_ends_the_stream(fatal: Exception) -> None:
    def report(_: str, __: PendingRetry) -> None:
        pytest.fail("raised, not reported")

    with pytest.raises(type(fatal), match=str(fatal)):
        AdvanceAll(lambda _: _raise(fatal), {"a": ["log"]}, report)()


def test_an_interrupt_is_raised_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    committed, joins = threading.Event(), []
    join = threading.Thread.join

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        joins.append(committed.is_set())
        if len(joins) == 1:
            assert has_begun.wait(10)  # before that, the interrupt prevents the commit
            raise KeyboardInterrupt("by hand")
        may_commit.set()
        join(thread, timeout)

    has_begun, may_commit = threading.Event(), threading.Event()

    def commit() -> None:
        has_begun.set()
        may_commit.wait(10)
        committed.set()

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        run_to_end(commit)
    assert joins == [False, False]
    assert committed.is_set()


def test_an_interrupt_while_the_thread_starts_is_raised_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, may_commit, committed = threading.Event(), threading.Event(), list[int]()
    start, join = threading.Thread.start, threading.Thread.join

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        assert has_begun.wait(10)
        raise KeyboardInterrupt("by hand")

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        may_commit.set()
        join(thread, timeout)

    def commit() -> None:
        has_begun.set()
        may_commit.wait(1)
        committed.append(1)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    monkeypatch.setattr(threading.Thread, "join", joined)
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        run_to_end(commit)
    assert committed == [1]


def test_an_interrupt_before_the_thread_starts_prevents_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, committed = list[threading.Thread](), list[int]()

    class Interrupted(threading.Thread):
        def start(self) -> None:
            threads.append(self)
            raise KeyboardInterrupt("by hand")

    monkeypatch.setattr(interrupts, "InheritableThread", Interrupted)
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        run_to_end(lambda: committed.append(1))
    [late] = threads
    threading.Thread.start(late)  # as if the operating system had started it only now
    late.join()
    assert committed == []


def test_a_commit_whose_thread_cannot_call_the_jvm_is_an_error_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(threading.Thread):
        def run(self) -> None:
            """Ends before it calls the commit."""

    monkeypatch.setattr(interrupts, "InheritableThread", Ended)
    with pytest.raises(Py4JNetworkError, match="the thread of a commit could not begin"):
        run_to_end(lambda: 7)


def test_a_commit_returns_its_result_or_raises_its_error() -> None:
    assert run_to_end(lambda: 7) == 7
    with pytest.raises(ValueError, match="no commit"):
        run_to_end(lambda: _raise(ValueError("no commit")))


def test_a_terminated_process_releases_its_locks(tmp_path: Path) -> None:
    lake, before = Lake(str(tmp_path)), signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match=str(TERMINATED)), ending_on_sigterm(), lake.writer("ledger"):
        os.kill(os.getpid(), signal.SIGTERM)
    assert lake.current_writer("ledger") is None
    assert signal.getsignal(signal.SIGTERM) is before


def _raise(error: Exception) -> Any:
    raise error
