"""Where Spark's own streaming operators may be trusted: the stream-stream join and how its bounds must be written, and windows.

Spark accepts joins whose answer is wrong: an outer join with a watermark on one side only loses matches and
counts no dropped row. Those are refused here. What is let through gives the same rows as the static call, on
input that neither calls late. What Spark does otherwise:

- Its watermark starts at 1970-01-01: on a side with a watermark, what lies before is dropped as late.
- Without a watermark on both sides an inner join is right, and keeps every row in its state for good.
- An unmatched row with a null key comes out at once; any other, once the watermark has passed its wait.
- One query with several joins of the same streams can share their shuffles, and a join that shares both lets no state
  go, so that its unmatched rows never come out: set spark.sql.exchange.reuse to false, or start a query for each.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.columns import WINDOW_END, WINDOW_START
from operators.errors import StreamingError
from operators.ordering import Ordering
from operators.timing import Interval
from operators.windows import Sliding, Tumbling

_DELAY = "spark.watermarkDelayMs"
_STATIC_WAY_OUT = "write the streams to tables and call the operator on those, or let the engine do it"


def check_join(left: DataFrame, right: DataFrame, left_time: str, right_time: str, how: str) -> bool:
    """Whether the frames are streams that Spark joins rightly.

    Returns:
        True for two streaming frames, False for two static ones.

    Raises:
        StreamingError: one frame is streaming and the other is not; an outer kind lacks a watermark on a side's
            time column; a frame has watermarks on several columns; the session's time zone is not UTC.
    """
    if left.isStreaming != right.isStreaming:
        side = "left" if left.isStreaming else "right"
        raise StreamingError.refused(
            "an interval join",
            f"only the {side} frame is streaming, so rows of the other would be matched by when a batch ran",
            _STATIC_WAY_OUT,
        )
    if not left.isStreaming:
        return False
    if how != "inner":
        _check_watermark(left, left_time, "left", how)
        _check_watermark(right, right_time, "right", how)
    _check_chain(left, "left")
    _check_chain(right, "right")
    _check_zone(left)
    return True


def _check_watermark(frame: DataFrame, time: str, side: str, how: str) -> None:
    if _DELAY not in frame.schema[time].metadata:
        raise StreamingError.refused(
            f"a {how} interval join",
            f"the {side} frame has no watermark on {time!r}, and Spark would lose matches without a word",
            f"call withWatermark({time!r}, ...) on the {side} frame, or use how='inner'",
        )


def _check_chain(frame: DataFrame, side: str) -> None:
    marked = [field.name for field in frame.schema if _DELAY in field.metadata]
    if len(marked) > 1:
        raise StreamingError.refused(
            "an interval join",
            f"the {side} frame has a watermark on each of {', '.join(marked)}, as a stream-stream join's result has, and Spark takes one",
            _STATIC_WAY_OUT,
        )


def _check_zone(frame: DataFrame) -> None:
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    if zone not in ("UTC", "Etc/UTC", "GMT", "Z", "+00:00"):
        raise StreamingError.refused(
            "an interval join",
            f"in the time zone {zone!r} Spark counts calendar days, of 23 or 25 hours at a change of clocks",
            "set spark.sql.session.timeZone to UTC",
        )


def present(*columns: Column) -> Column:
    """No column is null, said of each side by itself: Spark's full stream-stream join pairs null keys with null keys.

    With it, an outer row with a null key or time does not enter the state, and comes out unmatched at once.
    """
    return reduce(Column.__and__, [c.isNotNull() for c in columns])


def opaque(condition: Column) -> Column:
    """The condition in a form that Spark reads no bounds from.

    It takes `left_amount > 0` for a bound on the event time, one that lies at 1970, and then lets no state go: unmatched
    rows would never come out.
    """
    return F.greatest(condition, F.lit(False))


def within(left: Column, right: Column, interval: Interval) -> Column:
    """The bounds as interval arithmetic on the raw times: the one form from which Spark learns when state may go.

    Two times floored to 1 ms can lie nearer by almost 1 ms than the raw ones, so these bounds are that much wider;
    the exact ones stand beside them in the join.
    """
    slack = timedelta(microseconds=999)
    lower = F.lit(timedelta(milliseconds=interval.lower) - slack)
    upper = F.lit(timedelta(milliseconds=interval.upper) + slack)
    return (right >= left + lower) & (right <= left + upper)


def check_windows(rows: DataFrame, time: str, window: object, operator: str, **unlike: object) -> Sliding | Tumbling:
    """The window, where Spark's own windows on a stream give the static call's results in append mode.

    Args:
        rows: a streaming frame.
        time: its event time.
        window: the window.
        operator: the operator's name.
        unlike: parameters that Spark has nothing like, by name; legal where they are false.

    Raises:
        StreamingError: it would be wrong, or refuse; the text says why, and the way out.
    """
    if not isinstance(window, Tumbling | Sliding) or (isinstance(window, Sliding) and window.step > window.longest):
        kinds = "Spark's windows on a stream are tumbling, or sliding without gaps"
        raise StreamingError.refused(operator, f"{kinds}, and `window` is {window!r}", _STATIC_WAY_OUT)
    for name, value in unlike.items():
        if value:
            raise StreamingError.refused(operator, f"Spark's windows on a stream have no `{name}`, which is {value!r}", _STATIC_WAY_OUT)
    if _DELAY not in rows.schema[time].metadata:
        why = f"the frame has no watermark on {time!r}, so that no window would ever end"
        raise StreamingError.refused(operator, why, f"call withWatermark({time!r}, ...) on it")
    return window


def window_struct(time: Column, window: Sliding | Tumbling) -> Column:
    """Spark's own window column, which the watermark of the time goes with."""
    slide = window.step if isinstance(window, Sliding) else window.longest
    return F.window(time, _ms(window.longest), _ms(slide), _ms(window.origin % slide))


def bounds(window: Column) -> tuple[Column, Column]:
    """`window_start` and `window_end` of Spark's window. The end goes on as the event time of what is chained to it."""
    return window["start"].alias(WINDOW_START), window["end"].alias(WINDOW_END, metadata={_DELAY: 0})


def check_results(rows: DataFrame, operator: str) -> None:
    """Pass if a stream's rows are what a windowed aggregate on a stream gives: Spark must know when a window has ended.

    Raises:
        StreamingError: they are not.
    """
    if _DELAY not in rows.schema[WINDOW_END].metadata:
        why = f"{WINDOW_END!r} does not tell Spark when a window has ended"
        raise StreamingError.refused(operator, why, "call it on what WindowedAggregate gives for a streaming frame, in append mode")


def compared(one: Column, other: Column, order: Sequence[Ordering]) -> Column:
    """-1, 0 or 1: how two structs stand to each other in an order; for Spark's `array_sort`, a stream being sorted by nothing else."""
    told = F.lit(0)
    for by in reversed(order):
        a, b = one[by.column], other[by.column]
        first, smaller = (-1 if by.nulls_first else 1), (1 if by.descending else -1)
        told = F.when(a.eqNullSafe(b), told).when(a.isNull(), first).when(b.isNull(), -first).when(a < b, smaller).otherwise(-smaller)
    return told


def _ms(length: int) -> str:
    return f"{length} milliseconds"
