"""A table's columns: how rows to be written differ from them, and by which of them readers choose files."""

import re
from collections.abc import Sequence

from deltalake import DeltaTable
from pyspark.sql.types import DateType, NumericType, StringType, StructType, TimestampNTZType, TimestampType

from platform_defs.engine.lake.errors import LakeError

_WITH_STATISTICS = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)
_NO_CHECKPOINT_BY_SPARK = {"delta.checkpointInterval": "1000000"}


def bounded_columns(schema: StructType, columns: Sequence[str]) -> list[str]:
    """Those of some columns of whose values a log can keep the bounds."""
    return [c for c in columns if isinstance(schema[c].dataType, _WITH_STATISTICS)]


def statistics_columns(delta: DeltaTable, bounded: Sequence[str]) -> list[str]:
    """The columns of whose values a table's log keeps the bounds."""
    kept = delta.metadata().configuration.get("delta.dataSkippingStatsColumns")
    return [*bounded] if not kept else re.findall(r"`([^`]+)`", kept)


def configuration(bounded: Sequence[str], followed: bool) -> dict[str, str]:
    """The properties of a new table."""
    found = dict(_NO_CHECKPOINT_BY_SPARK) | ({"delta.dataSkippingStatsColumns": ",".join(f"`{c}`" for c in bounded)} if bounded else {})
    return found | ({"delta.enableChangeDataFeed": "true"} if followed else {})


def differing_columns(held: StructType, wanted: StructType, *, may_lack: bool = False) -> list[str]:
    """The columns by which rows differ from those that a table holds: new, missing, or of another type; in words.

    Args:
        held: the table's columns.
        wanted: the rows'.
        may_lack: whether the rows may lack columns of the table.
    """
    has, brings = ({f.name.lower(): f.dataType.simpleString() for f in schema.fields} for schema in (held, wanted))
    new = [f"{name} {kind} is new" for name, kind in brings.items() if name not in has]
    missing = [f"{name} {kind} is missing" for name, kind in has.items() if name not in brings and not may_lack]
    other = [f"{name} is {kind}, and was {has[name]}" for name, kind in brings.items() if has.get(name, kind) != kind]
    return [*new, *missing, *other]


def check_columns(table: str, held: StructType, wanted: StructType, *, may_lack: bool) -> None:
    """Pass if rows have the columns that a table holds.

    Raises:
        LakeError: they have not.
    """
    if differing := differing_columns(held, wanted, may_lack=may_lack):
        raise LakeError.other_columns(table, differing)
