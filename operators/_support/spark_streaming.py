"""Which joins and windows Spark's own streaming operators compute correctly, and the expressions that they need.

Spark accepts joins whose result is wrong: an outer join with a watermark on only one side loses matches, and counts no dropped row.
Those joins are refused here. A join that is accepted gives the rows of the static call, for input in which no row is late. Spark
still differs in these points:

- Its watermark starts at 1970-01-01: on a side with a watermark, earlier rows are dropped as late.
- Without a watermark on both sides an inner join is correct, and keeps every row in its state forever.
- An unmatched row with a null key is emitted at once. Any other unmatched row is emitted when the watermark has passed the time in which
  it could match.
- Several joins of the same streams in one query can share their shuffles. A join whose two shuffles are shared never removes state, so
  that its unmatched rows are never emitted: set spark.sql.exchange.reuse to false, or start one query for each join.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.ordering import Ordering
from operators.columns import WINDOW_END, WINDOW_START
from operators.errors import StreamingError
from operators.timing import Interval
from operators.windows import Sliding, Tumbling

DELAY = "spark.watermarkDelayMs"
_LEFT_ROWS = {
    "semi": "Spark's join of streams emits a left row when it finds any match, which need not be the earliest",
    "anti": "Spark has no anti join of streams",
}
STATIC_WAY_OUT = "write the streams to tables and call the operator on those, or let the engine do it"


def check_join(left: DataFrame, right: DataFrame, left_time: str, right_time: str, how: str, **unsupported: object) -> bool:
    """Check the two frames of an interval join; returns whether they are streams.

    Args:
        left: the left frame.
        right: the right frame.
        left_time: the event time of the left frame, a timestamp column.
        right_time: the event time of the right frame, a timestamp column.
        how: the kind of the join.
        unsupported: parameters for which Spark has no equivalent, by name; legal for streams if they are false.

    Returns:
        True for two streaming frames that Spark joins correctly, False for two static frames.

    Raises:
        StreamingError: one frame is streaming and the other is not; an outer kind lacks a watermark on a side's
            time column; a frame has watermarks on several columns; the session's time zone is not UTC; Spark has no equivalent of the
            kind or of a parameter.
    """
    if left.isStreaming != right.isStreaming:
        side = "left" if left.isStreaming else "right"
        raise StreamingError.refused(
            "an interval join",
            f"only the {side} frame is streaming, so which rows of the other match would depend on when a batch ran",
            STATIC_WAY_OUT,
        )
    if not left.isStreaming:
        return False
    check_kind(how, **unsupported)
    if how != "inner":
        _check_watermark(left, left_time, "left", how)
        _check_watermark(right, right_time, "right", how)
    _check_chain(left, "left")
    _check_chain(right, "right")
    _check_zone(left)
    return True


def check_kind(how: str, **unsupported: object) -> None:
    """Raise `StreamingError` if Spark has no equivalent of a kind of interval join, or of a parameter that is set."""
    if how in _LEFT_ROWS:
        article = "an" if how == "anti" else "a"
        raise StreamingError.refused(f"{article} {how} interval join", _LEFT_ROWS[how], STATIC_WAY_OUT)
    for name, value in unsupported.items():
        if value:
            reason = f"Spark's join of streams has no `{name}`, which is {value!r}"
            raise StreamingError.refused("an interval join", reason, STATIC_WAY_OUT)


def _check_watermark(frame: DataFrame, time: str, side: str, how: str) -> None:
    if DELAY not in frame.schema[time].metadata:
        raise StreamingError.refused(
            f"a {how} interval join",
            f"the {side} frame has no watermark on {time!r}, and Spark would lose matches without an error",
            f"call withWatermark({time!r}, ...) on the {side} frame, or use how='inner'",
        )


def _check_chain(frame: DataFrame, side: str) -> None:
    times = [field.name for field in frame.schema if DELAY in field.metadata]
    if len(times) > 1:
        raise StreamingError.refused(
            "an interval join",
            f"the {side} frame has a watermark on each of {', '.join(times)}, as a stream-stream join's result has; Spark accepts one",
            STATIC_WAY_OUT,
        )


def _check_zone(frame: DataFrame) -> None:
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    if zone not in ("UTC", "Etc/UTC", "GMT", "Z", "+00:00"):
        raise StreamingError.refused(
            "an interval join",
            f"in the time zone {zone!r} Spark counts calendar days, which have 23 or 25 hours when daylight saving starts or ends",
            "set spark.sql.session.timeZone to UTC",
        )


def are_not_null(*columns: Column) -> Column:
    """Whether no column is null, as a condition on each side: Spark's full stream-stream join pairs null keys with null keys.

    With this condition, an outer row with a null key or time does not enter the state, and is emitted unmatched at once.
    """
    return reduce(Column.__and__, [c.isNotNull() for c in columns])


def hide_bounds(condition: Column) -> Column:
    """The condition in a form from which Spark infers no bounds.

    Spark treats `left_amount > 0` as a bound on the event time, at 1970, and then never removes state: unmatched rows would never be
    emitted.
    """
    return F.greatest(condition, F.lit(False))


def time_bounds(left: Column, right: Column, interval: Interval) -> Column:
    """The bounds as interval arithmetic on the raw times: the only form from which Spark infers when it can remove state.

    The distance of two times that are floored to 1 ms can be almost 1 ms smaller than that of the raw times, so these bounds are 999 µs
    wider. The join also has the exact bounds as a condition.
    """
    slack = timedelta(microseconds=999)
    lower = F.lit(timedelta(milliseconds=interval.lower) - slack)
    upper = F.lit(timedelta(milliseconds=interval.upper) + slack)
    return (right >= left + lower) & (right <= left + upper)


def check_windows(rows: DataFrame, time: str, window: object, operator: str, **unsupported: object) -> Sliding | Tumbling:
    """Check a windowed operator on a stream: returns the window, if Spark's own windows give the static call's results in append mode.

    Args:
        rows: a streaming frame.
        time: its event time.
        window: the window.
        operator: the operator's name.
        unsupported: parameters for which Spark has no equivalent, by name; legal if they are false.

    Raises:
        StreamingError: the result would be wrong, or Spark would refuse the query.
    """
    if not isinstance(window, Tumbling | Sliding) or (isinstance(window, Sliding) and window.step > window.longest):
        kinds = "Spark's windows on a stream are tumbling, or sliding without gaps"
        raise StreamingError.refused(operator, f"{kinds}, and `window` is {window!r}", STATIC_WAY_OUT)
    check_parameters(operator, **unsupported)
    if DELAY not in rows.schema[time].metadata:
        reason = f"the frame has no watermark on {time!r}, so that no window would ever end"
        raise StreamingError.refused(operator, reason, f"call withWatermark({time!r}, ...) on it")
    return window


def check_parameters(operator: str, **unsupported: object) -> None:
    """Raise `StreamingError` if Spark's windows on a stream have no equivalent of a parameter that is not false."""
    for name, value in unsupported.items():
        if value:
            raise StreamingError.refused(operator, f"Spark's windows on a stream have no `{name}`, which is {value!r}", STATIC_WAY_OUT)


def window_struct(time: Column, window: Sliding | Tumbling) -> Column:
    """Spark's own window column, which keeps the watermark of the time."""
    slide = window.step if isinstance(window, Sliding) else window.longest
    return F.window(time, _ms(window.longest), _ms(slide), _ms(window.origin % slide))


def window_bounds(window: Column) -> tuple[Column, Column]:
    """`window_start` and `window_end` of Spark's window. The end is the event time of an operator that reads the result."""
    return window["start"].alias(WINDOW_START), window["end"].alias(WINDOW_END, metadata={DELAY: 0})


def check_results(rows: DataFrame, operator: str) -> None:
    """Raise `StreamingError` unless a stream has the results of a windowed aggregate: Spark must know when a window has ended."""
    if DELAY not in rows.schema[WINDOW_END].metadata:
        reason = f"{WINDOW_END!r} has no watermark, so that Spark does not know when a window has ended"
        raise StreamingError.refused(operator, reason, "call it on the result of WindowedAggregate for a streaming frame, in append mode")


def compare_structs(left: Column, right: Column, order: Sequence[Ordering]) -> Column:
    """-1, 0 or 1, comparing two structs by an order: for `array_sort`, Spark's only way to sort rows of a stream."""
    result = F.lit(0)
    for ordering in reversed(order):
        a, b = left[ordering.column], right[ordering.column]
        null_first, smaller = (-1 if ordering.nulls_first else 1), (1 if ordering.descending else -1)
        result = (
            F.when(a.eqNullSafe(b), result)
            .when(a.isNull(), null_first)
            .when(b.isNull(), -null_first)
            .when(a < b, smaller)
            .otherwise(-smaller)
        )
    return result


def _ms(length: int) -> str:
    return f"{length} milliseconds"
