"""Checkpoints of frames that an operator reads several times: their rows are computed once, by a function that the engine can replace."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from pyspark.sql import DataFrame

_compute: ContextVar[Callable[[DataFrame], DataFrame]] = ContextVar("compute", default=lambda frame: frame.localCheckpoint())


def checkpoint(frame: DataFrame) -> DataFrame:
    """The frame with its rows computed once: by Spark's `localCheckpoint`, or by the function of `checkpoints_by`."""
    return _compute.get()(frame)


@contextmanager
def checkpoints_by(compute: Callable[[DataFrame], DataFrame]) -> Generator[None]:
    """Let `checkpoint` compute rows by another function while the block runs; a new thread begins with the default.

    Args:
        compute: returns a frame with the same rows, which are computed once.
    """
    token = _compute.set(compute)
    try:
        yield
    finally:
        _compute.reset(token)
