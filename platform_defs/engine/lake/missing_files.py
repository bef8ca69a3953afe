"""A data file that a table's log names and that is gone or damaged: named, with the entries it held."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from operators.contract import SEQ
from platform_defs.engine.lake.tables import Lake, LakeError

_FILE = re.compile(r"[^\s/'\"]+\.parquet")


@contextmanager
def naming_lost_files(lake: Lake, tables: Iterable[str]) -> Iterator[None]:
    """Name the file when Spark fails over one that a table's log names.

    Raises:
        LakeError: a data file is missing or unreadable; it names table, file and, where the log knows them, entries.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        lost = set(_FILE.findall(str(error)))
        for table in tables:
            _blame(lake, table, lost, error)
        raise


def _blame(lake: Lake, table: str, lost: set[str], error: Exception) -> None:
    delta = lake.delta(table) if lost else None
    for file in () if delta is None else delta.file_uris():
        if file.rsplit("/", 1)[-1] in lost:
            raise LakeError.missing_file(table, file, _entries(delta, file)) from error


def _entries(delta: DeltaTable | None, file: str) -> str:
    """The entries whose rows a file holds, by the statistics in the table's log."""
    added = [] if delta is None else pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    action = next((a for a in added if file.endswith(a["path"])), {})
    first, last = action.get(f"min.{SEQ}"), action.get(f"max.{SEQ}")
    if first is None:
        return ""
    return f" (ledger batch {first})" if first == last else f" (ledger batches {first} to {last})"
