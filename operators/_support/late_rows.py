"""The late rows of an interval join that are joined instead of dropped.

A decision needs only the two rows and the watermarks before their batches, so that a stream and a backfill decide the same.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.lateness import Lateness
from operators.engine_columns import WATERMARK
from operators.timing import Interval, millis

_ON_TIME = -(1 << 62)
"""Below every watermark."""


def watermark_if_late(frame: DataFrame, event_time: Column, lateness: Lateness) -> Column:
    """The watermark before a late row's batch, less the allowed lateness, in epoch ms; for other rows a number below every watermark.

    Args:
        frame: the rows, with `WATERMARK` if some of them may be late.
        event_time: their event time, in epoch ms.
        lateness: the allowed lateness.
    """
    if WATERMARK not in frame.columns:
        return F.lit(_ON_TIME)
    watermark = millis(F.col(WATERMARK)) - lateness.ms
    return F.when(event_time < watermark, watermark).otherwise(F.lit(_ON_TIME))


def are_joined(left_time: Column, right_time: Column, left_watermark: Column, right_watermark: Column, interval: Interval) -> Column:
    """Whether the row that arrived first could still be matched when the other one arrived.

    The later of two watermarks belongs to the row that arrived last. With equal watermarks the order of arrival is not known, and one of
    the two rows must be one that could still be matched.

    Args:
        left_time: the left event time, in epoch ms.
        right_time: the right event time, in epoch ms.
        left_watermark: `watermark_if_late` of the left row.
        right_watermark: `watermark_if_late` of the right row.
        interval: the join's bounds.
    """
    left_was_last = (left_watermark >= right_watermark) & (right_time + interval.backward >= left_watermark)
    right_was_last = (right_watermark >= left_watermark) & (left_time + interval.forward >= right_watermark)
    return left_was_last | right_was_last
