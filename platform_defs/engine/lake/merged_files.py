"""Merges small files of a table into one, by a commit on exactly the version that was read.

deltalake's own compaction tries again on a newer version. It does not notice that another compaction has replaced the same files: the table
then has each of their rows twice (deltalake 1.6.6).
"""

import json
import time
import uuid
from typing import Any
from urllib.parse import quote

import obstore
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from obstore.store import LocalStore

from platform_defs.engine.lake.data_files import COMMIT_FOLDER, add_actions, write_rows
from platform_defs.engine.lake.data_skipping import is_written_by_deltalake, spark_schema, store_of
from platform_defs.engine.lake.objects import StoreError, store_at
from platform_defs.engine.lake.table_columns import statistics_columns
from platform_defs.paths import is_in_s3, is_local

FAULTS = (DeltaError, OSError, pa.ArrowException, StoreError)
"""What a merge raises if a file cannot be read or written, or has other columns than the table."""
MOST_BYTES, MOST_ROWS = 4 * 1024 * 1024, 1_000_000
"""The most bytes and rows that one merge reads, since it has them in memory: a small file may have very many equal rows."""


def can_merge(delta: DeltaTable, path: str) -> bool:
    """Whether `merge_files` can write a table: it is on a disk or in S3, and its rows are those of its Parquet files."""
    return (is_local(path) or is_in_s3(path)) and is_written_by_deltalake(delta)


def merge_files(delta: DeltaTable, path: str, options: dict[str, str] | None, below: int, *, all_or_none: bool = False) -> bool:
    """Merge a table's small files into one, the oldest first. No row changes, and the rows of one file stay together and in order.

    Args:
        delta: the table. It stays at its version.
        path: its folder or URI.
        options: deltalake's options for its store.
        below: only files smaller than this many bytes are merged.
        all_or_none: merge nothing if one merge cannot read all of these files.

    Returns:
        Whether the files were merged. Nothing is merged if there are fewer than two, or if another writer has committed since the table was
        opened.

    Raises:
        DeltaError, OSError, ArrowException, StoreError: see `FAULTS`. Nothing was merged, unless only the store's answer was lost.
    """
    version = delta.version()  # before its files: another thread may bring the table up to date, and then the commit must fail
    sizes, are_all = _small_files(delta, below)
    if len(sizes) < 2 or (all_or_none and not are_all):
        return False
    schema, types, folder = pa.schema(delta.schema().to_arrow()), _types(delta.schema()), f"{COMMIT_FOLDER}{uuid.uuid4().hex}"
    store = store_of(delta)
    write_rows(pa.concat_tables(_rows_of_file(store, file, schema, types) for file in sizes), path, folder, options)
    added, _ = add_actions(path, folder, statistics_columns(delta, schema.names), options)
    now = time.time_ns() // 1_000_000
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": now, "operation": "OPTIMIZE", "operationParameters": {}, "engineInfo": "tidemark"}},
        *({"remove": _file(name, size, deletionTimestamp=now, extendedFileMetadata=True)} for name, size in sizes.items()),
        *({"add": _file(file.path, file.size, modificationTime=now, stats=file.stats)} for file in added),
    ]
    commit = f"_delta_log/{version + 1:020}.json"
    lines = "".join(f"{json.dumps(action, ensure_ascii=False)}\n" for action in actions)  # see `add_actions`
    try:
        obstore.put(LocalStore(path) if is_local(path) else store_at(path, options), commit, lines.encode(), mode="create")
    except obstore.exceptions.AlreadyExistsError:
        return False
    return True


def _small_files(delta: DeltaTable, below: int) -> tuple[dict[str, int], bool]:
    """The sizes of the files below a size that one merge can read, the oldest first, and whether these are all files below that size."""
    actions = delta.get_add_actions(flatten=True)  # `pyarrow.table` would load pandas here
    columns = (actions[name].to_pylist() for name in ("modification_time", "path", "size_bytes", "num_records"))
    files, total_bytes, total_rows = dict[str, int](), 0, 0
    small_files = [file for file in sorted(zip(*columns, strict=True)) if file[2] < below]
    for _, file, size, rows in small_files:
        is_plain_name = quote(file, safe="/=") == file  # the log has other names as URIs
        if is_plain_name and rows is not None and total_bytes + size <= MOST_BYTES and total_rows + rows <= MOST_ROWS:
            files[file], total_bytes, total_rows = size, total_bytes + size, total_rows + rows
    return files, len(files) == len(small_files)


def _rows_of_file(store: pa_fs.FileSystem, path: str, schema: pa.Schema, types: set[tuple[str, str]]) -> pa.Table:
    """The rows of a file with the table's columns, whose types are `types`. A column that was added to the table later is null."""
    with store.open_input_file(path) as opened:
        content = pa.BufferReader(opened.read())
    with pq.ParquetFile(content, coerce_int96_timestamp_unit="us") as file:
        names = file.schema_arrow.names
        if len({*names}) < len(names) or not _types(Schema.from_arrow(file.schema_arrow)) <= types:
            raise pa.ArrowInvalid(f"{path} has other columns than the table")
        rows = file.read()
    columns = [rows[f.name].cast(f.type) if f.name in names else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _types(schema: Schema) -> set[tuple[str, str]]:
    """The names and the types of columns, also of nested ones."""
    return {(field.name, field.dataType.simpleString()) for field in spark_schema(schema).fields}


def _file(path: str, size: int, **more: Any) -> dict[str, Any]:
    """The common fields of `add` and `remove` actions. `dataChange` is false, since a merge changes no rows."""
    return {"path": path, "dataChange": False, "partitionValues": {}, "size": size, **more}
