"""The columns that the engine adds to the frames of an operator.

A frame has the source's columns and three more: `event_time` (timestamp, whole milliseconds), `seq` (the number of the batch that contained
the row) and `arrival` (the row's position in the batch). (`seq`, `arrival`) identifies a row forever.
"""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType

from operators.column_types import can_be_ordered
from operators.columns import quoted_name, temporary

EVENT_TIME, SEQ, ARRIVAL = "event_time", "seq", "arrival"
WATERMARK = temporary("watermark")
"""In frames of an operator with `ByTimeRange.with_watermark`: the watermark before a row's batch; null if no row of that batch can be
late. It may be below the row's time."""
SESSION = temporary("session")
"""In frames of an operator with `ByTimeRange.recorded`: the session recorded for a row (`start`, `end` in epoch ms), or null."""
SESSION_TYPE = "struct<start:bigint,end:bigint>"
NEW = temporary("new")
"""In the frames of `DecidesLateness.lateness_decisions`: whether a row belongs to the batch whose lateness is decided."""
BATCH_TIME = temporary("batch_time")
"""In the frames of an operator with a processing-time TTL: the processing time of the row's batch (timestamp)."""
PERIOD_START, PERIOD_END = temporary("period_start"), temporary("period_end")
"""In the frames of an operator with a TTL: of a kept row, the first and the last time (ms, bigint) of the rows that it stands for. Its key
did not expire between the two. Null for a new row."""
PARTIAL = temporary("partial")
"""In the frames of an `Aggregate` with a TTL: of a kept row, the result of the rows that it stands for (struct); null for any other row."""
WHICH = temporary("which")
"""The index of the input that contains a row."""
FINALIZED_AT = temporary("finalized_at")
MATCHED = temporary("matched")
"""In the frame of `ReportsMatches.matches`: whether a row is in a result with a row of another input."""

_FOR_SOME_OPERATORS = {WATERMARK, SESSION, NEW, BATCH_TIME, PERIOD_START, PERIOD_END, PARTIAL}


def drop_engine_columns(frame: DataFrame) -> DataFrame:
    """A frame without the columns that only some operators get, such as `WATERMARK`; `event_time`, `seq` and `arrival` stay."""
    added = [c for c in frame.columns if c in _FOR_SOME_OPERATORS]
    return frame.drop(*added) if added else frame  # each operation of a frame takes Spark some time


def tie_breakers(rows: DataFrame, without: Collection[str] = ()) -> list[Column]:
    """The columns that order rows of equal time: `seq` and `arrival`, or if a frame has none, every column that can be ordered.

    Of these columns, `event_time` comes first, because of two rows of a table the one with the later event time is the newer one. Columns
    of atomic types come next, then arrays and structs.

    Args:
        rows: the frame.
        without: columns that do not break ties; ignored if the frame has `seq` and `arrival`.
    """
    if {SEQ, ARRIVAL} <= {*rows.columns}:
        return [F.col(SEQ), F.col(ARRIVAL)]
    orderable_fields = [f for f in rows.schema.fields if f.name not in without and can_be_ordered(f.dataType)]
    return [
        F.col(quoted_name(f.name))
        for f in sorted(orderable_fields, key=lambda f: (f.name != EVENT_TIME, not isinstance(f.dataType, AtomicType)))
    ]
