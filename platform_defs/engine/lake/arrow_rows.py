"""Fetches the rows of a query as Arrow, and raises an error if the query's thread in the JVM ends with a fatal error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.util import _load_from_socket

from platform_defs.engine.formats.values import nullable
from platform_defs.engine.lake.errors import LakeError

_END_S = 30
"""How long the JVM's thread may take to end after its last byte was read, in seconds."""


def arrow_rows(frame: DataFrame) -> pa.Table:
    """A frame's rows with all fields nullable.

    PySpark's own `toArrow` fails on a null struct or array with a field or element that is declared as never null. It also waits forever
    if the JVM's thread that executes the query is interrupted, or ends with an error such as StackOverflowError, which it does not report.

    Raises:
        LakeError: the thread ended in one of these ways.
    """
    port, secret, server = cast(Any, frame)._jdf.collectAsArrowToPython()
    with _result_of(server, frame):
        *batches, order = _load_from_socket(cast(Any, (port, secret)), ArrowCollectSerializer())
    schema = to_arrow_schema(all_nullable(frame))
    return pa.Table.from_batches([batches[n] for n in order]).cast(schema) if batches else schema.empty_table()


def all_nullable(frame: DataFrame) -> StructType:
    """The schema of a frame, with nulls allowed in all columns, fields and elements."""
    return cast(StructType, nullable(frame.schema))


def java_class(session: SparkSession, name: str) -> Any:
    """A class in the JVM. Py4J's own attribute access would make a call for each part of the name."""
    return JavaClass(name, cast(Any, session)._jvm._gateway_client)


@contextmanager
def _result_of(server: Any, frame: DataFrame) -> Iterator[None]:
    """Read the rows that a thread of the JVM serves while the block runs. An error of that thread replaces an error of the reader."""
    reader_error: Exception | None = None
    try:
        yield
    except Exception as error:  # the thread's own error says more
        reader_error = error
    try:
        with unwrap_spark_exception():
            server.getResult(java_class(frame.sparkSession, "scala.concurrent.duration.Duration").create(_END_S, "s"))
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() == "TimeoutException":
            raise LakeError.query_ended() from reader_error
        raise
    if reader_error:
        raise reader_error


__all__ = ["all_nullable", "arrow_rows", "java_class"]
