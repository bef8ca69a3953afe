"""Converts values to Dagster metadata."""

from collections.abc import Mapping
from types import MappingProxyType

import dagster as dg
from pyspark.sql.types import StructField, StructType

from assets import days
from assets.contract_checks import EVENT_TIME_RAW
from assets.contracts import DerivedAsset
from assets.uncompared_code import code_without_version
from operators.changelog import CHANGE, CHANGED_AT, STEP
from operators.columns import FINAL_AT, RANK, RESULT_TIME, WINDOW_END, WINDOW_START
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.process_count_window import RESULT_NUMBER
from operators.triggers import IS_FINAL, ROWS_SEEN
from operators.windowed_aggregate import GROUPING_ID

ENGINE_DESCRIPTIONS = {
    SEQ: "the number of the ledger batch with which the row was ingested",
    ARRIVAL: "the row's order in its batch",
    EVENT_TIME: "the event time, floored to 1 ms",
    EVENT_TIME_RAW: "the event time before it was floored, in µs",
}
"""The columns that the engine adds to the rows of a source, with their descriptions. No source may have a column of these names."""
COLUMN_DESCRIPTIONS = ENGINE_DESCRIPTIONS | {
    RESULT_TIME: "the event time of the result",
    FINAL_AT: "the watermark at which the result is final",
    WINDOW_START: "the start of the window",
    WINDOW_END: "the end of the window, exclusive",
    RANK: "the rank, from 1",
    STEP: "the step that made the change",
    CHANGE: "the kind of change: +I, -U, +U or -D",
    CHANGED_AT: "when the change was committed, by the ledger's clock",
    GROUPING_ID: "which grouping set the result belongs to",
    "firing": "the number of the firing among those of the key and window, from 1",
    "window_number": "the number of the key's window, from 1",
    RESULT_NUMBER: "the position of the result among those of its window, from 1",
    ROWS_SEEN: "the number of rows from which the early result was computed",
    IS_FINAL: "whether the result is final",
}
"""The columns that the engine and the operators add, with the descriptions that Dagster and the docs show."""


def time_metadata(epoch_ms: int | None) -> dg.MetadataValue:
    """An instant as a Dagster timestamp; the text `none yet` for None. An instant outside the years 1 to 9999 becomes the nearest one."""
    if epoch_ms is None:
        return dg.MetadataValue.text("none yet")
    return dg.MetadataValue.timestamp(days.moment(epoch_ms))


def code_metadata(derived: DerivedAsset) -> dict[str, str]:
    """The metadata that names the code of a table that the engine cannot compare; empty without such code, or with a `version`."""
    parts = code_without_version(derived)
    return {"code_without_version": ", ".join(parts)} if parts else {}


def table_schema(
    struct: StructType, described: Mapping[str, str] = MappingProxyType({}), added: Mapping[str, str] = COLUMN_DESCRIPTIONS
) -> dg.TableSchema:
    """A Spark schema as a Dagster table schema.

    Args:
        struct: the schema; a column's comment is its description.
        described: descriptions of columns without a comment, by name.
        added: descriptions of the columns that are added to rows, for those that `described` does not name.
    """
    return dg.TableSchema([_column(field, {**added, **described}) for field in struct.fields])


def _column(field: StructField, described: Mapping[str, str]) -> dg.TableColumn:
    description = field.metadata.get("comment") or described.get(field.name)
    return dg.TableColumn(field.name, field.dataType.simpleString(), description, dg.TableColumnConstraints(nullable=field.nullable))
