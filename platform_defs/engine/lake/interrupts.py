"""Interrupts: a commit comes to its end before the process, or a notebook's cell, goes on.

Python's side of a call to Spark ends with an interrupt, and Spark's side does not: it may commit a moment later, when the place of the
one writer has been given back.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar, cast

from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

T = TypeVar("T")
TERMINATED = 128 + signal.SIGTERM
"""The exit code of a process that ended in order when it was asked to."""


def to_its_end(commit: Callable[[], T], spark: SparkSession | None = None) -> T:
    """Run a commit; an interrupt that comes meanwhile is raised once Spark has ended it, well or not.

    PySpark cancels all jobs on Ctrl-C, so the wait is short. A second interrupt is raised at once.

    Args:
        commit: makes the commit.
        spark: the session whose settings hold for it; Spark keeps the active one by thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return commit()  # signals interrupt the main thread alone
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
    except BaseException as error:  # raised again where the commit was asked for
        answer.set_exception(error)


@contextmanager
def ends_in_order() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, with what it holds given back; the process then exits with 143."""
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
