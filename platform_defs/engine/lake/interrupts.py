"""Interrupts: a process, or a notebook's cell, finishes a commit before it handles an interrupt.

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

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

from platform_defs.engine.lake.small_queries import own_sessions

T = TypeVar("T")
_STOPPED: ContextVar[threading.Event | None] = ContextVar("stopped", default=None)
TERMINATED = 128 + signal.SIGTERM
"""The exit code of a process that ended in an orderly way on SIGTERM."""


def run_to_end(commit: Callable[[], T], spark: SparkSession | None = None) -> T:
    """Run a commit; an interrupt in the meantime is raised after the commit has succeeded or failed.

    PySpark cancels all jobs on Ctrl-C, so the wait is short. A second interrupt is raised at once.

    Args:
        commit: makes the commit. It is not called if the interrupt comes before its thread has begun.
        spark: the session to activate in the commit's thread; Spark has one active session for each thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return commit()  # signals interrupt only the main thread, which waits for the others
    outcome: Future[T] = Future()
    worker = InheritableThread(target=_run, args=(commit, outcome, spark))
    try:
        worker.start()
        worker.join()
    except BaseException:
        if not outcome.cancel():  # the commit has begun
            worker.join()
        raise
    if not outcome.done():
        raise Py4JNetworkError("the thread of a commit could not begin: its first call into the JVM failed")
    return outcome.result()


def _run(commit: Callable[[], T], outcome: Future[T], spark: SparkSession | None) -> None:
    if not outcome.set_running_or_notify_cancel():  # interrupted before the commit began
        return
    try:
        if spark is not None:
            cast(Any, SparkSession)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)  # as PySpark does it
        outcome.set_result(commit())
    except BaseException as error:  # raised again by `run_to_end`
        outcome.set_exception(error)


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that locks are released; the process then exits with code 143."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier_handler = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier_handler)


def _end(_: int, __: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


class LostInterrupts:
    """Remembers signals, so that a long loop ends even if the exception that a signal handler raised was lost.

    Python runs a handler between any two instructions of the main thread. If they belong to a finalizer, such as one of Py4J, Python prints
    the handler's exception and ignores it. And if a handler fails, the loop may take the handler's error for an error of the work.
    """

    def __init__(self) -> None:
        self._before, self._caught = dict[int, Callable[[int, FrameType | None], Any]](), list[int]()

    def watch(self) -> None:
        """Begin to remember signals. Call this in the main thread, after the session has started, since PySpark sets its own handler."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if callable(handler) and handler != self._handle:
                self._before[number] = handler
                signal.signal(number, self._handle)

    def check(self) -> None:
        """If a signal was remembered, call its earlier handler again, which raises its exception."""
        if self._caught:
            number = self._caught.pop()
            self._before[number](number, None)
            raise KeyboardInterrupt

    def end(self) -> None:
        """Restore the earlier handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._caught.append(number)
        self._before[number](number, frame)


class Stop(threading.Event):
    """Ends the work of threads; see `waiting_until`."""

    cancels = False

    def cancel(self) -> None:
        """Set the event, and mark the work as cancelled: from then on, errors of Spark in the threads are not recorded as failures.

        The caller cancels the jobs.
        """
        self.cancels = True
        self.set()


@contextmanager
def waiting_until(stopped: threading.Event) -> Iterator[None]:
    """End this thread's waits for a lock when an event is set. A thread needs it because signals interrupt only the main thread."""
    token = _STOPPED.set(stopped)
    try:
        yield
    finally:
        _STOPPED.reset(token)


def is_stopped() -> bool:
    """Whether this thread must not wait any more, because the event of `waiting_until` is set."""
    stopped = _STOPPED.get()
    return stopped is not None and stopped.is_set()


def is_cancelled() -> bool:
    """Whether this thread's jobs are cancelled, so that an error of Spark in its work is no failure."""
    stopped = _STOPPED.get()
    return isinstance(stopped, Stop) and stopped.cancels


def cancel_jobs() -> None:
    """Cancel all of this process's jobs, as PySpark does on Ctrl-C; SIGTERM alone cancels none."""
    context = SparkContext._active_spark_context
    if context is None:
        return
    if cast(Any, context)._gateway.proc is not None:
        context.cancelAllJobs()
    else:  # the JVM belongs to another process, and also runs jobs of other processes
        for session in own_sessions():
            session.interruptAll()
