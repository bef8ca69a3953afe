"""Values as Dagster shows them."""

from datetime import UTC, datetime, timedelta

import dagster as dg
from pyspark.sql.types import StructType


def moment(epoch_ms: int | None) -> dg.MetadataValue:
    """An instant; a text where there is none, or where it lies before the year 1 or after 9999, which no timestamp can show."""
    if epoch_ms is None:
        return dg.MetadataValue.text("none yet")
    try:
        return dg.MetadataValue.timestamp(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=epoch_ms))
    except OverflowError:
        return dg.MetadataValue.text(f"{epoch_ms} ms after 1970-01-01")


def table_schema(struct: StructType) -> dg.TableSchema:
    """A Spark schema."""
    return dg.TableSchema(
        [
            dg.TableColumn(f.name, f.dataType.simpleString(), constraints=dg.TableColumnConstraints(nullable=f.nullable))
            for f in struct.fields
        ]
    )
