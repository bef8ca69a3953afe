"""Data skipping: reads only the data files of a table that can contain rows within ranges.

Files are selected by the statistics in the table's log, and read as plain Parquet. Delta's own data skipping needs Spark jobs, and
conditions with literals (see `operators.columns.parameter`).
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.fs import DeltaStorageHandler
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from platform_defs.engine.formats.files import without_wildcards
from platform_defs.engine.formats.strict import STRICT
from platform_defs.engine.lake.data_files import filesystem, is_instant
from platform_defs.engine.lake.plans import OtherSizeError, copy_of_relation, parquet_relation
from platform_defs.engine.lake.small_queries import SMALL_INPUT_BYTES

Ends = tuple[Any, Any]
Ranges = Mapping[str, Ends | list[Ends]]
"""By column, the lowest and the highest value, both included, or a list of such ranges; None for an open end. Timestamps are epoch ms."""

_MOST_RELATIONS = 256
"""So many relations of Spark are cached."""
_MOST_FILES = 64
"""The relation of more files is not cached."""
_READERS = 8
"""The number of threads that read files without Spark."""
_VECTORS = "deletionVectors"
_READABLE = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""The reader features of Delta with which the rows of a table are still those of its Parquet files."""
_WRITABLE = {"appendOnly", "invariants", "changeDataFeed", "timestampNtz"}
"""The writer features of Delta that a table may have if deltalake is to write it; Spark writes a table with any other feature."""


def rows_of_matching_files(
    spark: SparkSession, delta: DeltaTable, path: str, within: Ranges, *, columns: Sequence[str] | None = None, with_nulls: bool = False
) -> DataFrame | None:
    """The rows of the files that can match; None if only Delta can read the table, not a plain reader of Parquet files.

    Spark takes some milliseconds to list files, so the relation of a few files is cached, and each call returns a copy of it. That is safe:
    data files never change, and a cached relation is used only while all of its files have the sizes in the table's log.

    Args:
        spark: the session.
        delta: the table.
        path: its folder or URI.
        within: the ranges of values, by column.
        columns: the columns to read; None for all. If the table lacks one of them, all are read.
        with_nulls: whether to read also the files that have nulls in a column with a range.
    """
    sizes = matching_files(delta, within, with_nulls=with_nulls)
    if sizes is None:
        return None
    schema = schema_of(delta)
    if columns is not None and {*columns} <= {*schema.names}:
        schema = StructType([schema[column] for column in columns])
    if not sizes:
        return no_rows(spark, schema)
    paths = tuple(without_wildcards(f"{path}/{file}") for file in sizes)
    is_classic = hasattr(spark, "_jsparkSession")  # a Spark Connect session gives no access to plans
    if len(paths) <= _MOST_FILES and is_classic and _have_sizes(delta, sizes):
        with suppress(OtherSizeError):  # which Spark's reader then reports
            return copy_of_relation(spark, _cached_relation(spark, paths, schema.json(), sum(sizes.values())))
    return spark.read.options(**STRICT).schema(schema).parquet(*paths)


_cached_relation = lru_cache(maxsize=_MOST_RELATIONS)(parquet_relation)


def _have_sizes(delta: DeltaTable, sizes: Mapping[str, int]) -> bool:
    """Whether all files exist with these sizes."""
    infos = store_of(delta).get_file_info([*sizes])
    return all(info.type == pa_fs.FileType.File and info.size == size for info, size in zip(infos, sizes.values(), strict=True))


def store_of(delta: DeltaTable) -> pa_fs.FileSystem:
    """The file system of a table's folder, to read files; see `data_files.filesystem`."""
    if delta.table_uri.startswith("file:"):
        return filesystem(delta.table_uri)
    return pa_fs.PyFileSystem(DeltaStorageHandler.from_table(delta._table))  # pyright: ignore[reportPrivateUsage]


def has_all_files(delta: DeltaTable) -> bool:
    """Whether all data files of an opened version still exist, with the sizes in its log."""
    actions = pa.table(delta.get_add_actions(flatten=True))
    return _have_sizes(delta, dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)))


def schema_of(delta: DeltaTable) -> StructType:
    """The table's columns."""
    return spark_schema(delta.schema())


def spark_schema(schema: Schema) -> StructType:
    """A schema of deltalake as one of Spark."""
    return StructType.fromJson(json.loads(schema.to_json()))


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """A frame with these columns and no rows, which Spark's optimizer recognizes as empty."""
    return spark.range(0).where(F.lit(False)).select(*[F.lit(None).cast(f.dataType).alias(f.name) for f in schema.fields])


def matching_files(delta: DeltaTable, within: Ranges, *, with_nulls: bool = False) -> dict[str, int] | None:
    """The sizes of the files that can match, by path relative to the table; None if the table cannot be read as plain Parquet files.

    A table that may have deletion vectors (as large upserted tables have), column mapping or partitions cannot be read so. A file without
    statistics of a column can match.
    """
    if not is_plain(delta):
        return None
    actions = pa.table(delta.get_add_actions(flatten=True))
    files = _can_contain(actions, within, with_nulls=with_nulls)
    return dict(zip(_statistic_of_files(actions, "path", files), _statistic_of_files(actions, "size_bytes", files), strict=True))


@dataclass(frozen=True)
class FileSize:
    """The rows and the bytes of a data file. Rows that a deletion vector marks as deleted are counted."""

    rows: int
    bytes: int


def sizes_of_matching_files(delta: DeltaTable, within: Ranges) -> dict[str, FileSize]:
    """The sizes of the files that can contain rows within ranges, by path relative to the table."""
    actions = pa.table(delta.get_add_actions(flatten=True))
    files = _can_contain(actions, within)
    paths, rows, sizes = (_statistic_of_files(actions, name, files) for name in ("path", "num_records", "size_bytes"))
    return {path: FileSize(n or 0, size) for path, n, size in zip(paths, rows, sizes, strict=True)}


def few_rows(delta: DeltaTable, columns: pa.Schema, within: Ranges) -> pa.Table | None:
    """The rows of the files that can match, read without Spark.

    Args:
        delta: the table.
        columns: the columns to read, with the types to return.
        within: the ranges of values, by column.

    Returns:
        The rows; None if only Delta can read the table, the files are large, or one cannot be read, lacks a column, or has a value that is
        not of the column's type. The caller then reads them by Spark, whose error names the file.
    """
    if not is_plain(delta):
        return None
    actions = pa.table(delta.get_add_actions(flatten=True))
    files = _can_contain(actions, within)
    if sum(_statistic_of_files(actions, "size_bytes", files)) > SMALL_INPUT_BYTES:
        return None
    store = store_of(delta)
    try:
        with ThreadPoolExecutor(_READERS) as pool:
            rows_by_file = pool.map(lambda path: _rows_of_file(store, path, columns), _statistic_of_files(actions, "path", files))
            return pa.concat_tables([columns.empty_table(), *rows_by_file])
    except (OSError, KeyError, pa.ArrowException):
        return None


def _rows_of_file(store: pa_fs.FileSystem, path: str, columns: pa.Schema) -> pa.Table:
    with pq.ParquetFile(path, filesystem=store) as file:
        return file.read(columns.names).select(columns.names).cast(columns)


def extent(delta: DeltaTable, columns: Sequence[str], within: Ranges) -> dict[str, Ends]:
    """The bounds of columns over the files that can contain rows within ranges, from the statistics in the table's log.

    A column is left out if there is no such file, if a file has no statistics of it or has nulls in it, or if its type is neither a whole
    number nor a string. The bounds of a long string are cut: no string of the column is outside of them, but they need not be in it.
    """
    actions = pa.table(delta.get_add_actions(flatten=True))
    files = _can_contain(actions, within)
    bounds_by_column: dict[str, tuple[Any, Any]] = {}
    for column in columns:
        lows, highs, nulls = (_statistic_of_files(actions, f"{statistic}.{column}", files) for statistic in ("min", "max", "null_count"))
        if files and not any(n is None or n for n in nulls) and all(type(bound) in (int, str) for bound in (*lows, *highs)):
            bounds_by_column[column] = min(lows), max(highs)
    return bounds_by_column


def time_extent(delta: DeltaTable, column: str, within: Ranges) -> Ends | None:
    """The bounds of a timestamp column, in epoch ms, over the files that can contain rows within ranges; None if there are no such files.

    If the log has no statistics of the column for a file, as in a table that an earlier version made, they are read from the file's footer.
    A bound is None if the footer has none either. Each end may be up to 1 ms outside of the range of the rows, because the log records
    whole milliseconds. Files with nulls alone are left out.
    """
    actions = pa.table(delta.get_add_actions(flatten=True))
    all_files = range(actions.num_rows)
    nulls, rows = _statistic_of_files(actions, f"null_count.{column}", all_files), _statistic_of_files(actions, "num_records", all_files)
    lows, highs = (_statistic(actions, f"{statistic}.{column}") or [None] * actions.num_rows for statistic in ("min", "max"))
    ends: list[Ends] = []
    for n in _can_contain(actions, within):
        if nulls[n] is None and None in (lows[n], highs[n]):
            ends += _ends_of_footer(delta, actions["path"][n].as_py(), column)
        elif nulls[n] is None or nulls[n] != rows[n]:
            ends.append((lows[n], highs[n]))
    if not ends:
        return None
    low, high = zip(*ends, strict=True)
    return (None if None in low else min(low)), (None if None in high else max(high) + 1)


def _ends_of_footer(delta: DeltaTable, path: str, column: str) -> list[Ends]:
    """The bounds of a timestamp column in a Parquet file, in epoch ms, from its footer; none if it has nulls alone."""
    try:
        with store_of(delta).open_input_file(path) as file:
            footer = pq.read_metadata(file)
    except (OSError, pa.ArrowException):
        return [(None, None)]
    indexes = [n for n in range(footer.num_columns) if footer.schema.column(n).path == column]
    chunks = [footer.row_group(group).column(n).statistics for n in indexes for group in range(footer.num_row_groups)]
    if not chunks or any(chunk is None or not is_instant(chunk) for chunk in chunks):
        return [(None, None)]
    if any(not chunk.has_min_max for chunk in chunks):
        return [] if all(chunk.has_null_count and not chunk.num_values for chunk in chunks) else [(None, None)]
    return [(min(chunk.min_raw for chunk in chunks) // 1_000, max(chunk.max_raw for chunk in chunks) // 1_000)]


def _statistic_of_files(actions: pa.Table, name: str, files: Sequence[int]) -> list[Any]:
    values = actions[name].to_pylist() if name in actions.column_names else []
    return [values[n] if values else None for n in files]


def _can_contain(actions: pa.Table, within: Ranges, *, with_nulls: bool = False) -> list[int]:
    """The indexes of the files that can contain rows within ranges, or with a null in one of the columns if `with_nulls`."""
    excluded: set[int] = set()
    for column, column_ranges in within.items():
        least, most = _statistic(actions, f"min.{column}"), _statistic(actions, f"max.{column}")
        excluded_by_range = [
            _files_outside(least, most, ends) for ends in (column_ranges if isinstance(column_ranges, list) else [column_ranges])
        ]
        excluded |= set[int]().union(*excluded_by_range[:1]).intersection(*excluded_by_range)
    files = range(actions.num_rows)
    if with_nulls:
        null_counts = [_statistic_of_files(actions, f"null_count.{column}", files) for column in within]
        excluded -= {n for nulls in null_counts for n, count in enumerate(nulls) if count != 0}
    return [n for n in files if n not in excluded]


def _files_outside(least: Sequence[Any], most: Sequence[Any], ends: Ends) -> set[int]:
    """The indexes of the files that contain no value between two ends, both included."""
    low, high = ends
    above = {n for n, bound in enumerate(least) if None not in (bound, high) and bound > high}
    return above | {n for n, bound in enumerate(most) if None not in (bound, low) and bound < low}


def is_plain(delta: DeltaTable, *, with_vectors: bool = False) -> bool:
    """Whether the rows of a table are those of its Parquet files, by their column names.

    Args:
        delta: the table.
        with_vectors: whether the table may have deletion vectors, which the caller applies.
    """
    protocol, metadata = delta.protocol(), delta.metadata()
    supported = _READABLE | ({_VECTORS} if with_vectors else set[str]())
    has_supported_features = protocol.min_reader_version == 3 and set(protocol.reader_features or ()) <= supported
    has_column_mapping = metadata.configuration.get("delta.columnMapping.mode", "none") != "none"
    return (protocol.min_reader_version == 1 or has_supported_features) and not has_column_mapping and not metadata.partition_columns


def is_written_by_deltalake(delta: DeltaTable) -> bool:
    """Whether deltalake can write a table; only Spark writes a table that has other features than `_WRITABLE`."""
    return is_plain(delta) and set(delta.protocol().writer_features or ()) <= _WRITABLE


def _widened(bound: Any) -> Any:
    """An upper bound that is not too low. Earlier versions escaped texts in the log; deltalake reads the escapes one plane too low."""
    if not isinstance(bound, str) or bound.isascii():
        return bound
    return "".join(chr(ord(c) + 0x10000) if ord(c) >> 16 & 1 else c for c in bound)


def _statistic(actions: pa.Table, name: str) -> list[Any]:
    """A statistic for each file; timestamps in epoch ms, the resolution of the log."""
    if name not in actions.column_names:
        return []
    column = actions[name]
    if not pa.types.is_timestamp(column.type):
        values = column.to_pylist()
        return [_widened(value) for value in values] if name.startswith("max.") else values
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if time is None else time // 1_000 for time in micros]
