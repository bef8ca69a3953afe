"""A frame that is made in the JVM only if something reads it there."""

from collections.abc import Callable
from threading import Lock
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.types import StructType


class LazyFrame(ClassicFrame):
    """A frame whose rows are mostly used as Arrow (see `small_queries.rows_in_memory`).

    Spark takes about 10 ms to copy rows into the JVM, and 1 ms for each operation on a frame. A small batch of a source needs neither.

    Args:
        session: the frame's session, a classic one.
        schema: its columns, which are known without the JVM.
        make: makes the frame.
    """

    def __new__(cls, *_: object) -> Self:
        """An object that is not initialized yet: PySpark's own `__new__` takes other arguments, and initializes it."""
        return object.__new__(cls)

    def __init__(self, session: SparkSession, schema: StructType, make: Callable[[], DataFrame]) -> None:
        super().__init__(None, session)  # pyright: ignore[reportArgumentType]
        self.schema, self._make, self._lock = schema, make, Lock()

    @property
    def _jdf(self) -> Any:
        """The frame in the JVM."""
        with self._lock:  # a second frame would have other ids of columns
            if self._made is None:
                try:
                    frame: Any = self._make()
                    self._made = frame._jdf
                except AttributeError as error:  # PySpark would conclude that the frame has no `_jdf`, as in Spark Connect
                    raise RuntimeError(f"the frame cannot be made in the JVM: {error}") from error
            return self._made

    @_jdf.setter
    def _jdf(self, made: Any) -> None:
        self._made = made

    def unpersist(self, blocking: bool = False) -> DataFrame:
        """Remove the frame from Spark's cache; a frame that was never made is not in it."""
        return self if self._made is None else super().unpersist(blocking)
