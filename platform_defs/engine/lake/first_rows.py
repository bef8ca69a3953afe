"""Reads the first rows of a table and counts all of them, by Arrow and without a Spark session."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from platform_defs.engine.formats.json_values import has_json_value, json_value
from platform_defs.engine.lake.data_skipping import is_plain, schema_of, store_of
from platform_defs.engine.lake.missing_files import naming_lost_files
from platform_defs.engine.lake.tables import Lake, LakeSnapshot

_FOOTERS_AT_ONCE = 8
_BATCH_ROWS = 1_024


def first_rows(lake: Lake, table: str, limit: int) -> tuple[int, list[dict[str, Any]]] | None:
    """The number of a table's rows, and the first of them as plain data that equals Spark's JSON of them.

    The largest file is read first, as Spark does.

    Args:
        lake: the lake, or a snapshot of it.
        table: the table.
        limit: the maximum number of rows.

    Returns:
        None if the table does not exist, or if Arrow does not read or convert its rows as Spark does: it has column mapping or
        partitions, a file has a column of another type than the table, or a column has a type or a value that only Spark converts.

    Raises:
        LakeError: a data file is missing or damaged.
    """
    lake = LakeSnapshot.of(lake)
    delta = lake.delta_for_reading(table)
    if delta is None or not is_plain(delta, with_vectors=True) or not has_json_value(schema := schema_of(delta)):
        return None
    with naming_lost_files(lake, [table]):
        files = _open_files(delta)
        if files is None:
            return None
        return None if (rows := _first_as_json(files, schema, limit)) is None else (sum(file.rows for file in files), rows)


@dataclass(frozen=True)
class _File:
    """A data file.

    Args:
        path: its path below the table.
        store: the table's file system.
        footer: its metadata.
        is_kept: a mask over its first rows, false for those that a deletion vector removes; rows after the mask are not removed.
    """

    path: str
    store: pa_fs.FileSystem
    footer: pq.FileMetaData
    is_kept: np.ndarray[Any, Any]

    @property
    def rows(self) -> int:
        """The number of rows that are not deleted."""
        return self.footer.num_rows - int((~self.is_kept).sum())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows that are not deleted."""
        first = 0
        with _naming_file(self.path), pq.ParquetFile(self.path, filesystem=self.store, metadata=self.footer) as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                mask = np.ones(batch.num_rows, bool)
                kept_in_batch = self.is_kept[first : first + batch.num_rows]
                mask[: len(kept_in_batch)] = kept_in_batch
                first += batch.num_rows
                yield batch if mask.all() else batch.filter(pa.array(mask))

    def columns(self, schema: StructType) -> dict[str, str | None] | None:
        """By column of the table, the name of the file's column, or None if the file lacks it; None if a type differs from the table's."""
        stored = self.footer.schema.to_arrow_schema()
        names = {name.lower(): name for name in stored.names}
        names_by_column = {field.name: names.get(field.name.lower()) for field in schema.fields}
        is_same = all(
            name is None or _is_same_type(stored.field(name).type, schema[column].dataType) for column, name in names_by_column.items()
        )
        return names_by_column if is_same else None


def _open_files(delta: DeltaTable) -> list[_File] | None:
    """The files of a table, the largest first, as Spark reads them; None if a deletion vector belongs to a file that is not among them."""
    actions = delta.get_add_actions(flatten=True)  # `pyarrow.table` of it loads pandas
    sizes = dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))
    masks, store, no_mask = _kept_masks(delta), store_of(delta), np.ones(0, bool)
    if not masks.keys() <= sizes.keys():
        return None

    def open_file(path: str) -> _File:
        with _naming_file(path):
            return _File(path, store, pq.read_metadata(path, filesystem=store), masks.get(path, no_mask))

    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        return [*pool.map(open_file, sorted(sizes, key=lambda path: -sizes[path]))]


def _kept_masks(delta: DeltaTable) -> Mapping[str, np.ndarray[Any, Any]]:
    """For each file with a deletion vector, by its path below the table, a mask that is false for removed rows."""
    if "deletionVectors" not in (delta.protocol().reader_features or ()):
        return {}
    vectors, root = pa.table(delta.deletion_vectors()), delta.table_uri.rstrip("/") + "/"
    masks = [np.asarray(vector.values, bool) for vector in vectors["selection_vector"]]
    return {path.removeprefix(root): mask for path, mask in zip(vectors["filepath"].to_pylist(), masks, strict=True)}


def _first_as_json(files: list[_File], schema: StructType, limit: int) -> list[dict[str, Any]] | None:
    """The first rows as plain data; None if only Spark reads or converts one of them."""
    rows = list[dict[str, Any]]()
    for file in files:
        if len(rows) == limit:
            break
        if (columns := file.columns(schema)) is None:
            return None
        for batch in file.batches():
            plain_rows = _as_json(batch.slice(0, limit - len(rows)), schema, columns)
            if plain_rows is None:
                return None
            rows += plain_rows
            if len(rows) == limit:
                break
    return rows


def _as_json(batch: pa.RecordBatch, schema: StructType, columns: Mapping[str, str | None]) -> list[dict[str, Any]] | None:
    """Rows as plain data; None if one has a value that only Spark converts."""
    try:
        values = {column: [None] * batch.num_rows if name is None else batch[name].to_pylist() for column, name in columns.items()}
        return [json_value(dict(zip(values, row, strict=True)), schema) for row in zip(*values.values(), strict=True)]
    except (ValueError, OverflowError):  # such as a year after 9999, or text that is not UTF-8
        return None


def _is_same_type(stored: pa.DataType, declared: DataType) -> bool:
    """Whether a file's type equals the table's type. deltalake writes some texts and bytes as view types, which PySpark does not know."""
    match declared:
        case StructType():
            fields = {field.name: field.type for field in stored.fields} if pa.types.is_struct(stored) else {}
            return [*fields] == declared.names and all(_is_same_type(fields[f.name], f.dataType) for f in declared.fields)
        case ArrayType():
            return pa.types.is_list(stored) and _is_same_type(stored.value_type, declared.elementType)
        case MapType():
            is_map = pa.types.is_map(stored)
            return is_map and _is_same_type(stored.key_type, declared.keyType) and _is_same_type(stored.item_type, declared.valueType)
        case StringType():
            return any(is_text(stored) for is_text in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))
        case BinaryType():
            return any(is_bytes(stored) for is_bytes in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))
        case _:
            return _atomic_type(stored) == declared


def _atomic_type(stored: pa.DataType) -> DataType | None:
    try:
        return from_arrow_type(stored, prefer_timestamp_ntz=True)
    except PySparkTypeError:  # a type that Spark lacks
        return None


@contextmanager
def _naming_file(path: str) -> Iterator[None]:
    """Add the file's name to Arrow's error about a damaged file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise OSError(f"{path}: {error}") from error
