"""The rows of many tables of a sandbox, read by one query."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql.types import TimestampNTZType, TimestampType

from platform_defs.testing import Sandbox
from tests.support.json_rows import values_of


def rows_of_tables(sandbox: Sandbox, columns: Mapping[str, Sequence[str]]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each table as `values_of` reads them, nulls last, with times as `datetime` (in UTC, except `TIMESTAMP_NTZ`)."""
    frames = {table: sandbox.engine.views.table(table).select(*names) for table, names in columns.items()}
    found = dict[str, list[tuple[Any, ...]]]()
    for table, rows in values_of(frames).items():
        are_times = [isinstance(field.dataType, TimestampType | TimestampNTZType) for field in frames[table].schema.fields]
        timed = [tuple(_value(value, is_time) for value, is_time in zip(row, are_times, strict=True)) for row in rows]
        found[table] = sorted(timed, key=lambda row: [(value is None, value) for value in row])
    return found


def _value(value: Any, is_time: bool) -> Any:
    return datetime.fromisoformat(value) if is_time and value is not None else value
