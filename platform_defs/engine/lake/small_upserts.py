"""Upserts few rows into a small table by deltalake, without a Spark job and in a twentieth of the time of a MERGE by Spark."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from operators.columns import quoted, quoted_name
from platform_defs.engine.lake.commits import CommitOptions, change_rows, commit_options
from platform_defs.engine.lake.data_skipping import is_written_by_deltalake
from platform_defs.engine.lake.small_queries import is_arrow_type

_KEYS = (BinaryType, BooleanType, DateType, DecimalType, IntegralType, TimestampNTZType, TimestampType)
"""The types for which Arrow, deltalake and Spark agree on equality. Floats are not among them, because of NaN and -0.0."""
_NAME = re.compile(r"\w+")
"""Column names that deltalake resolves. A name must not have a dot: deltalake takes the part before it for a table's name."""


def can_upsert(delta: DeltaTable, schema: StructType, key: Sequence[str]) -> bool:
    """Whether deltalake can merge rows into a table with the same result as Spark.

    Args:
        delta: the table.
        schema: its columns.
        key: the columns that identify a row.
    """
    if not is_written_by_deltalake(delta) or not is_arrow_type(schema):
        return False
    return all(_NAME.fullmatch(c) for c in schema.fieldNames()) and all(has_one_equality(schema[c].dataType) for c in key)


def upsert(
    delta: DeltaTable,
    rows: pa.Table,
    key: Sequence[str],
    *,
    is_deleted: str,
    metadata: Mapping[str, Any],
    number: int,
    only: str = "TRUE",
) -> None:
    """Delete, update or insert rows by their keys, only on the version at which the table was opened.

    Args:
        delta: the table.
        rows: the changed rows, at most one for each key, with the table's columns.
        key: the columns that identify a row; a null equals a null.
        is_deleted: the condition that a changed row (`c`) is to be deleted, in the SQL of DataFusion.
        metadata: what the commit records.
        number: the step's number.
        only: a further condition for a changed row (`c`) to match a row of the table (`t`) with the same key, in the SQL of DataFusion.

    Raises:
        CommitFailedError: another writer has committed, or the store's answer to this commit was lost.
        DeltaError: a data file of the table is missing, or the store cannot be reached before the commit.
        OSError: the store failed in the commit, which may have succeeded, or after it.
    """
    values = {f.name: f"c.{quoted_name(f.name)}" for f in delta.schema().fields}
    condition = " AND ".join(f"(t.{c} IS NOT DISTINCT FROM c.{c})" for c in quoted(key)) or "TRUE"
    condition = condition if only == "TRUE" else f"{condition} AND ({only})"

    def merge(**options: Unpack[CommitOptions]) -> None:
        merger = delta.merge(rows, condition, source_alias="c", target_alias="t", **options)
        merger = merger.when_matched_delete(predicate=is_deleted).when_matched_update(updates=values)
        merger.when_not_matched_insert(updates=values, predicate=f"NOT ({is_deleted})").execute()

    change_rows(delta, commit_options(metadata, number), merge)


def has_one_equality(kind: DataType) -> bool:
    """Whether Arrow, deltalake and Spark agree on which values of a type are equal. They disagree on text with a collation."""
    return isinstance(kind, _KEYS) or kind == StringType()
