"""Publishes many tables to their sinks while a stream runs: a sink that is slow or fails delays neither tables nor the ingest."""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock
from types import TracebackType

from platform_defs.engine.lake.interrupts import Stop, cancel_jobs, waiting_until
from platform_defs.engine.lake.lost_jvm import lost_jvm
from platform_defs.engine.operations.advance_all import PendingRetry
from platform_defs.engine.operations.publish_to_topic import Published, sum_of

THREADS = 2
"""The most tables that are published at once; the threads that advance tables use the same cores."""
PUBLISHED_AGAIN_AFTER_S = 86_400.0
"""A table without new steps is published again after this time, so that Kafka, which forgets offsets after 7 days, keeps its position."""
_CANCEL_EVERY_S = 1.0


@dataclass
class PublishAll:
    """Publishes tables in threads of its own, each as soon as it has a new step; one table at most once at the same time.

    A table that cannot be published waits like a table that cannot be advanced; see `PendingRetry`. The end of the JVM, and what is no
    `Exception`, such as `SystemExit`, is raised again by the next call. Use this object as a context manager: the end of its block waits
    for publishes that were started. If the block ends with an error, no further publish begins, and Spark's jobs are cancelled.

    Args:
        publish: publishes the steps of a table up to one; called in several threads.
        tables: the tables that have a sink; others are ignored.
        report: called in the thread that calls this object, for each failed publish whose `PendingRetry.should_be_reported`.
        now: a monotonic clock, in seconds.
    """

    publish: Callable[[str, int], Published]
    tables: Collection[str]
    report: Callable[[str, PendingRetry], None]
    now: Callable[[], float] = time.monotonic
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS), init=False)
    _lock: Lock = field(default_factory=Lock, init=False)
    _running: dict[str, Future[None]] = field(default_factory=dict, init=False)
    _changed: set[str] = field(default_factory=set, init=False)
    _upto: dict[str, int] = field(default_factory=dict, init=False)
    _published_at: dict[str, float] = field(default_factory=dict, init=False)
    _failed: dict[str, PendingRetry] = field(default_factory=dict, init=False)
    _finished: SimpleQueue[tuple[str, Published | PendingRetry | BaseException]] = field(default_factory=SimpleQueue, init=False)
    _is_ending: bool = field(default=False, init=False)
    _stop: Stop = field(default_factory=Stop, init=False)

    def __enter__(self) -> "PublishAll":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            self._is_ending = True
        if kind is not None:
            self._stop.cancel()
            while wait([*self._running.values()], timeout=_CANCEL_EVERY_S).not_done:
                cancel_jobs()
        self._pool.shutdown()

    @property
    def failed(self) -> Mapping[str, PendingRetry]:
        """The tables that wait for their next try."""
        with self._lock:
            return dict(self._failed)

    def publish_steps(self, steps: Mapping[str, int]) -> None:
        """Publish tables that may have new steps: each at once, or as soon as its present publish or its wait has ended.

        Args:
            steps: by table, the newest step that may be published. Later steps may be committed already, but are not checked yet.
        """
        with self._lock:
            for name, step in steps.items():
                if name in self.tables:
                    self._changed.add(name)
                    self._upto[name] = step
                    self._start(name)

    def __call__(self) -> dict[str, Published]:
        """Start to publish tables whose wait has ended, or whose last publish was a day ago, and report failures. This call does not wait.

        Returns:
            By table, what was published since the last call.

        Raises:
            JvmLostError: the JVM has ended.
        """
        with self._lock:
            for name, at in self._published_at.items():
                if self.now() - at >= PUBLISHED_AGAIN_AFTER_S:
                    self._published_at[name] = self.now()
                    self._changed.add(name)
                    self._start(name)
            for name in self._failed:
                self._start(name)
        return self._outcomes()

    def publish_rest(self) -> dict[str, Published]:
        """Wait until no publish runs; returns, by table, what was published since the last call. Failed tables are not tried again.

        Raises:
            JvmLostError: the JVM has ended.
        """
        while running := [*self._running.values()]:
            wait(running)
        return self._outcomes()

    def _start(self, name: str) -> None:
        """Start to publish a table that has changed, unless its publish runs or waits; called with the lock held."""
        failure = self._failed.get(name)
        if name in self._changed and name not in self._running and (failure is None or self.now() >= failure.until) and not self._is_ending:
            self._changed.discard(name)
            self._running[name] = self._pool.submit(self._run, name, self._upto[name])

    def _run(self, name: str, upto: int) -> None:
        if self._stop.is_set():  # this publish was still queued when the block ended with an error
            with self._lock:
                del self._running[name]
            return
        try:
            outcome: Published | PendingRetry | BaseException = self._try_to_publish(name, upto)
        except BaseException as error:  # raised again by `_outcomes`
            outcome = error
        with self._lock:
            if isinstance(outcome, Published):
                self._failed.pop(name, None)
                self._published_at[name] = self.now()
            elif isinstance(outcome, PendingRetry):
                self._failed[name] = outcome
                self._changed.add(name)
            else:
                self._is_ending = True
            self._finished.put((name, outcome))
            del self._running[name]
            self._start(name)

    def _try_to_publish(self, name: str, upto: int) -> Published | PendingRetry:
        """Publish a table; raises `JvmLostError` if the JVM has ended."""
        try:
            with waiting_until(self._stop):
                return self.publish(name, upto)
        except Exception as error:
            if (jvm_error := lost_jvm(error)) is not None:
                raise jvm_error from error
            return PendingRetry.after(self._failed.get(name), error, self.now())

    def _outcomes(self) -> dict[str, Published]:
        published = dict[str, Published]()
        while True:
            try:
                name, outcome = self._finished.get_nowait()
            except Empty:
                return published
            if isinstance(outcome, BaseException):
                raise outcome
            if isinstance(outcome, PendingRetry):
                if outcome.should_be_reported and not self._is_ending:
                    self.report(name, outcome)
            elif outcome.steps:
                published[name] = sum_of(published.get(name), outcome)
