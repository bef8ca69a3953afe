"""A table's columns: checks rows to be written against them, and selects those with statistics for data skipping."""

import re
from collections.abc import Sequence

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import DateType, NumericType, StringType, StructType, TimestampNTZType, TimestampType

from operators.columns import quoted, quoted_name
from platform_defs.engine.lake.errors import LakeError

_WITH_STATISTICS = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)
CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}
"""The property of a table with Delta's change data feed."""
_STATISTICS = "delta.dataSkippingStatsColumns"
_NO_CHECKPOINT_BY_SPARK = {"delta.checkpointInterval": "1000000"}


def bounded_columns(schema: StructType, columns: Sequence[str]) -> list[str]:
    """The columns among `columns` whose type has statistics in Delta's log."""
    return [c for c in columns if isinstance(schema[c].dataType, _WITH_STATISTICS)]


def statistics_columns(delta: DeltaTable, bounded: Sequence[str]) -> list[str]:
    """The columns for which a table's log has statistics."""
    listed = delta.metadata().configuration.get(_STATISTICS)
    return [*bounded] if not listed else re.findall(r"`([^`]+)`", listed)


def keeps_statistics(delta: DeltaTable, schema: StructType) -> bool:
    """Whether a schema has all columns for which a table's log has statistics, with types that can have them."""
    listed = statistics_columns(delta, [])
    return {*listed} <= {*schema.names} and bounded_columns(schema, listed) == listed


def forget_lost_columns(spark: SparkSession, path: str, delta: DeltaTable | None, schema: StructType) -> None:
    """Remove a table's list of columns with statistics before an overwrite after which one of them cannot have statistics.

    Delta would refuse the list. Without one, Spark chooses the columns.

    Args:
        spark: the session.
        path: the table's path.
        delta: the table; None if it does not exist yet.
        schema: the schema that it is to have.
    """
    if delta is not None and not keeps_statistics(delta, schema):
        spark.sql(f"ALTER TABLE delta.{quoted_name(path)} UNSET TBLPROPERTIES ('{_STATISTICS}')")


def table_properties(bounded: Sequence[str], change_feed: bool) -> dict[str, str]:
    """The properties of a new table."""
    properties = dict(_NO_CHECKPOINT_BY_SPARK) | ({_STATISTICS: ",".join(quoted(bounded))} if bounded else {})
    return properties | (CHANGE_FEED if change_feed else {})


def differing_columns(declared: StructType, written: StructType, *, may_lack: bool = False) -> list[str]:
    """The differences between the rows' columns and the table's, as text: new, missing, or of another type.

    Args:
        declared: the table's columns.
        written: the rows' columns.
        may_lack: whether the rows may lack columns of the table.
    """
    table_types, row_types = ({f.name.lower(): f.dataType.simpleString() for f in schema.fields} for schema in (declared, written))
    added = [f"{name} {kind} is new" for name, kind in row_types.items() if name not in table_types]
    missing = [f"{name} {kind} is missing" for name, kind in table_types.items() if name not in row_types and not may_lack]
    changed = [f"{name} is {kind}, and was {table_types[name]}" for name, kind in row_types.items() if table_types.get(name, kind) != kind]
    return [*added, *missing, *changed]


def check_columns(table: str, declared: StructType, written: StructType, *, may_lack: bool) -> None:
    """Raise unless the rows have the table's columns.

    Raises:
        LakeError: the columns differ.
    """
    if differing := differing_columns(declared, written, may_lack=may_lack):
        raise LakeError.other_columns(table, differing)
