"""Interrupts: a process, or a notebook's cell, waits for the end of a commit before it handles an interrupt.

An interrupt ends Python's side of a call to Spark, but not Spark's side, which may commit a moment later, after the writer's lock was
released.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, TypeVar, cast

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

from platform_defs.engine.lake.small_queries import own_sessions

T = TypeVar("T")
_STOPPED: ContextVar[threading.Event | None] = ContextVar("stopped", default=None)
TERMINATED = 128 + signal.SIGTERM
"""The exit code of a process that ended in an orderly way on SIGTERM."""


def to_its_end(commit: Callable[[], T], spark: SparkSession | None = None) -> T:
    """Run a commit; an interrupt in the meantime is raised after the commit has succeeded or failed.

    PySpark cancels all jobs on Ctrl-C, so the wait is short. A second interrupt is raised at once.

    Args:
        commit: makes the commit.
        spark: the session to activate in the commit's thread; Spark has one active session for each thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return commit()  # signals interrupt only the main thread, which waits for the others
    answer: Future[T] = Future()
    worker = InheritableThread(target=_run, args=(commit, answer, spark))
    worker.start()
    try:
        worker.join()
    except BaseException:
        worker.join()
        raise
    return answer.result(timeout=0)


def _run(commit: Callable[[], T], answer: Future[T], spark: SparkSession | None) -> None:
    try:
        if spark is not None:
            cast(Any, SparkSession)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)  # as PySpark does it
        answer.set_result(commit())
    except BaseException as error:  # raised again by `to_its_end`
        answer.set_exception(error)


@contextmanager
def ends_in_order() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that locks are released; the process then exits with 143."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(_: int, __: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


class LostInterrupts:
    """Remembers signals, so that a long loop ends even if the exception of a signal's handler was lost.

    Python runs a handler between any two instructions of the main thread. In a finalizer, as those by which Py4J releases Java's objects,
    the exception is printed and ignored, and a handler that fails itself raises an error which may be handled as one of the work.
    """

    def __init__(self) -> None:
        self._before, self._caught = dict[int, Callable[[int, FrameType | None], Any]](), list[int]()

    def watch(self) -> None:
        """Begin, in the main thread; after the start of a session, since PySpark sets a handler of its own."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler) and handler != self._handle:
                self._before[number] = handler
                signal.signal(number, self._handle)

    def check(self) -> None:
        """Raise again what the handler of a remembered signal raises."""
        if self._caught:
            number = self._caught.pop()
            self._before[number](number, None)
            raise KeyboardInterrupt

    def end(self) -> None:
        """Set the handlers that were set before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._caught.append(number)
        self._before[number](number, frame)


@contextmanager
def waiting_until(stopped: threading.Event) -> Iterator[None]:
    """Let the waits of this thread for a lock end when an event is set; signals interrupt only the main thread."""
    token = _STOPPED.set(stopped)
    try:
        yield
    finally:
        _STOPPED.reset(token)


def is_stopped() -> bool:
    """Whether this thread is to wait for nothing any more."""
    stopped = _STOPPED.get()
    return stopped is not None and stopped.is_set()


def cancel_jobs() -> None:
    """Cancel all of this process's jobs, as PySpark does on Ctrl-C; SIGTERM alone cancels none."""
    context = SparkContext._active_spark_context
    if context is None:
        return
    if cast(Any, context)._gateway.proc is not None:
        context.cancelAllJobs()
    else:  # the JVM is another process's, and runs jobs of others too
        for session in own_sessions():
            session.interruptAll()
