"""Which rows of a source are late: the watermark before each row's batch, and the operator's rule."""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.columns import lookup, temporary
from operators.contract import Operator
from operators.engine_columns import EVENT_TIME, SEQ, WATERMARK
from operators.timing import timestamp
from platform_defs.engine.inputs.prepared_rows import LATE

_TIME_MS = temporary("time_ms")
_MOST_LOOKED_UP = 32
"""The watermarks of up to this many batches are looked up by an expression, which compares each row's batch with each of them.

If there are more batches, their watermarks are joined with the rows.
"""


def rows_with_lateness(rows: DataFrame, operator: Operator, watermark_by_batch: Mapping[int, int]) -> tuple[DataFrame, Column | None]:
    """Rows of a source, and the condition that a row is late; the condition is None if no row can be late.

    Args:
        rows: the rows.
        operator: the operator that reads them.
        watermark_by_batch: the watermark before each batch that may have late rows, in epoch ms.

    Returns:
        The rows, with `WATERMARK` if the operator reads it, and with `LATE` if the condition is this column; and the condition.
    """
    needs_watermark = operator.reads.with_watermark
    if not watermark_by_batch:
        return (rows.withColumn(WATERMARK, F.lit(None).cast("timestamp")) if needs_watermark else rows), None
    if len(watermark_by_batch) <= _MOST_LOOKED_UP:
        watermark = timestamp(lookup(watermark_by_batch, SEQ))
        late = _is_late(operator, watermark)
        return (rows.select("*", watermark.alias(WATERMARK), late.alias(LATE)), F.col(LATE)) if needs_watermark else (rows, late)
    table = pa.table({SEQ: list(watermark_by_batch), _TIME_MS: list(watermark_by_batch.values())})
    watermarks = rows.sparkSession.createDataFrame(table).select(SEQ, timestamp(F.col(_TIME_MS)).alias(WATERMARK))
    late = _is_late(operator, F.col(WATERMARK)).alias(LATE)
    joined = rows.join(watermarks, SEQ, "left")
    return joined.select(*rows.columns, *([WATERMARK] if needs_watermark else []), late), F.col(LATE)


def _is_late(operator: Operator, watermark: Column) -> Column:
    """Whether a row is late. Null, which a user's operator may return, counts as not late: otherwise such a row would be in no result."""
    return F.coalesce(operator.late(F.col(EVENT_TIME), watermark), F.lit(False))
