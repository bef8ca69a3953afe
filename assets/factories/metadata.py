"""Converts values to Dagster metadata."""

from datetime import UTC, datetime, timedelta

import dagster as dg
from pyspark.sql.types import StructType

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the first and the last millisecond that Python's datetime has


def moment(epoch_ms: int | None) -> dg.MetadataValue:
    """An instant; the text `none yet` for None. An instant outside the range of Python's datetime is clamped to it."""
    if epoch_ms is None:
        return dg.MetadataValue.text("none yet")
    shown = min(max(epoch_ms, _FIRST_MS), _LAST_MS)
    return dg.MetadataValue.timestamp(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=shown))


def table_schema(struct: StructType) -> dg.TableSchema:
    """A Spark schema as a Dagster table schema; a column's comment is its description."""
    return dg.TableSchema(
        [
            dg.TableColumn(f.name, f.dataType.simpleString(), f.metadata.get("comment"), dg.TableColumnConstraints(nullable=f.nullable))
            for f in struct.fields
        ]
    )
