"""Computes the rows of a frame once that an operator reads several times, in a way that the engine can replace."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from pyspark.sql import DataFrame

_compute: ContextVar[Callable[[DataFrame], DataFrame]] = ContextVar("compute", default=DataFrame.localCheckpoint)


def checkpoint(frame: DataFrame) -> DataFrame:
    """The frame with its rows computed once: by Spark's `localCheckpoint`, or by the function of `checkpoints_by`."""
    return _compute.get()(frame)


@contextmanager
def checkpoints_by(compute: Callable[[DataFrame], DataFrame]) -> Generator[None]:
    """Let `checkpoint` compute rows by another function in this thread while the block runs.

    Args:
        compute: returns a frame with the same rows, which are computed once.
    """
    token = _compute.set(compute)
    try:
        yield
    finally:
        _compute.reset(token)
