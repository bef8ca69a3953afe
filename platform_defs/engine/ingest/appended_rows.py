"""The rows that a batch appends to a source's event log and to its quarantine.

If the rows of a small batch are in memory as Arrow, the rows for both tables are selected in memory: a Spark job for each table would take
longer than all other work on these rows.
"""

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from assets.contracts import EVENT_TIME_RAW, SourceContract
from operators.columns import parameter
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.timing import timestamp
from platform_defs.engine.formats.raw_rows import RECORD, record_of
from platform_defs.engine.formats.reader import PATH, RAW
from platform_defs.engine.formats.topics import offset_of
from platform_defs.engine.ingest.batch_counts import is_good, is_good_in_memory
from platform_defs.engine.ingest.validate import REASON
from platform_defs.engine.lake.lazy_frame import LazyFrame
from platform_defs.engine.lake.small_queries import remember_rows, rows_in_memory

PARQUET_V2 = {"parquet.writer.version": "v2"} | {
    f"parquet.enable.dictionary#{column}": "false" for column in (ARRIVAL, EVENT_TIME, EVENT_TIME_RAW)
}
"""Options of Spark's Parquet writer for event logs and quarantines. Pages of version 2 store the differences of numbers and times: many
rows are written in half the time, and take less space and less time to read. A dictionary does not pay for values that hardly repeat."""
_COPIED_FROM = {"reason": REASON, "raw": RAW, "path": PATH, "record": RECORD}
"""By column of the quarantine, the column of the validated rows that it copies."""


def log_rows(validated: DataFrame, duplicates: DataFrame | None, contract: SourceContract, seq: int) -> DataFrame:
    """The good rows of a batch, without duplicates, with the columns of the event log.

    Args:
        validated: the result of `validate.classify`.
        duplicates: a frame with the `arrival` of each duplicate; None if there are none.
        contract: the source's contract.
        seq: the batch's number.
    """
    names = contract.struct.fieldNames()

    def selected() -> DataFrame:
        good = validated.where(is_good())
        events = good if duplicates is None else good.join(duplicates, ARRIVAL, "left_anti")
        return events.select(_number(seq).alias(SEQ), ARRIVAL, EVENT_TIME, EVENT_TIME_RAW, *names)

    rows, repeated = rows_in_memory(validated), None if duplicates is None else rows_in_memory(duplicates)
    if rows is None or (duplicates is not None and repeated is None):
        return selected()
    is_appended = is_good_in_memory()
    if repeated is not None:
        is_appended &= ~pc.field(ARRIVAL).isin(repeated[ARRIVAL].to_pylist())
    types = {SEQ: LongType(), **{name: validated.schema[name].dataType for name in (ARRIVAL, EVENT_TIME, EVENT_TIME_RAW, *names)}}
    frame = _lazy_frame(validated, types, selected)
    return _with_selected_rows(frame, rows.filter(is_appended), {SEQ: pa.scalar(seq, pa.int64())}, {})


def quarantine_rows(validated: DataFrame, seq: int, now: int, *, has_offsets: bool) -> DataFrame:
    """The rows of a batch that have a reason for rejection, with the columns of the quarantine.

    Args:
        validated: the result of `validate.classify`.
        seq: the batch's number.
        now: when the batch is ingested, in epoch ms.
        has_offsets: whether rows of the batch are records of topics.
    """

    def selected() -> DataFrame:
        return validated.where(F.col(REASON).isNotNull()).select(
            _number(seq).alias(SEQ),
            ARRIVAL,
            F.col(REASON).alias("reason"),
            F.col(RAW).alias("raw"),
            F.col(PATH).alias("path"),
            timestamp(_number(now)).alias("ingested_at"),
            *([offset_of(PATH, ARRIVAL).alias("offset")] if has_offsets else []),
            *[part.alias("record") for part in record_of(validated)],
        )

    rows = rows_in_memory(validated)
    if rows is None or has_offsets:
        return selected()
    types = {SEQ: LongType(), ARRIVAL: LongType(), **dict.fromkeys(("reason", "raw", "path"), StringType()), "ingested_at": TimestampType()}
    types |= dict.fromkeys(("record",) if record_of(validated) else (), StringType())
    constants = {SEQ: pa.scalar(seq, pa.int64()), "ingested_at": pa.scalar(now, pa.timestamp("ms", "UTC"))}
    frame = _lazy_frame(validated, types, selected)
    return _with_selected_rows(frame, rows.filter(pc.field(REASON).is_valid()), constants, _COPIED_FROM)


def _number(value: int) -> Column:
    return parameter(value, ARRIVAL)


def _lazy_frame(validated: DataFrame, types: Mapping[str, DataType], select: Callable[[], DataFrame]) -> DataFrame:
    """A frame that selects from the validated rows, with the types of its columns by name."""
    return LazyFrame(validated.sparkSession, StructType([StructField(*column) for column in types.items()]), select)


def _with_selected_rows(frame: DataFrame, rows: pa.Table, constants: Mapping[str, pa.Scalar], copied_from: Mapping[str, str]) -> DataFrame:
    """The frame, with its rows in memory, so that no Spark job computes them.

    Args:
        frame: the frame.
        rows: the selected rows.
        constants: the columns with the same value in all rows.
        copied_from: the column of `rows` that another column copies, if their names differ.
    """
    columns = {
        name: pa.repeat(constants[name], rows.num_rows) if name in constants else rows[copied_from.get(name, name)]
        for name in frame.columns
    }
    return remember_rows(frame, pa.table(columns))
