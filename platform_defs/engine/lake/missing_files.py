"""Turns an error about a missing or damaged data file into one that names the table, the file, and the batches of its rows."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from operators.engine_columns import SEQ
from platform_defs.engine.lake.errors import LakeError, is_fault_of_store
from platform_defs.engine.lake.tables import Lake

_FILE = re.compile(r"(?:[^\s/'\"]+/)?[^\s/'\"]+\.parquet")
"""A data file in an error's text, with its folder if the text names it: files of different folders may have the same name."""


@contextmanager
def naming_lost_files(lake: Lake, tables: Iterable[str]) -> Iterator[None]:
    """Raise `LakeError` with the file's name if Spark, deltalake or Arrow fails on a data file that a table's log lists.

    Raises:
        LakeError: a data file is missing or unreadable; the text names the table, the file and, if the log has statistics, the batches.
            Or the store of a lake behind a URI refused a request or cannot be reached, or a disk has a fault that may pass; then the text
            names no file.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError, DeltaError, OSError, pa.ArrowException) as error:
        if not lake.is_local and is_fault_of_store(error):
            raise LakeError.no_store(lake.root, error) from error
        for table in tables:
            for file in lost_files(lake, table, error):
                fault = lake.passing_fault(table, error)
                raise fault or LakeError.missing_file(table, file, _batches(lake.delta_for_reading(table), file)) from error
        raise


def lost_files(lake: Lake, table: str, error: Exception) -> list[str]:
    """The data files that an error names and that the present version of a table lists."""
    named = set(_FILE.findall(str(error)))
    delta = lake.delta_for_reading(table) if named else None
    return [] if delta is None else [file for file in delta.file_uris() if any(file.endswith(f"/{end}") for end in named)]


def _batches(delta: DeltaTable | None, file: str) -> str:
    """The batches whose rows a file contains, from the statistics in the table's log."""
    added = [] if delta is None else pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    action = next((a for a in added if file.endswith(a["path"])), {})
    first, last = action.get(f"min.{SEQ}"), action.get(f"max.{SEQ}")
    if first is None:
        return ""
    return f" (ledger batch {first})" if first == last else f" (ledger batches {first} to {last})"
