"""Firings of windows with a purging trigger.

A row is in exactly one firing of each of its windows: the first one at or after the time at which the row reaches the window.

A firing must not depend on where steps are cut, so it depends only on the rows and on the watermarks before their batches. A row reaches
its windows when the watermark reaches its time. If the watermark before its batch has already reached its time, the row reaches its windows
1 ms after that watermark. So no row reaches a window at a time up to which results are closed, and a firing that is final never changes.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators._support.lateness import Lateness
from operators._support.panes import WINDOW
from operators._support.window_assignment import assign_windows
from operators.columns import FINAL_AT, RESULT_TIME, temporary
from operators.engine_columns import WATERMARK, drop_engine_columns, tie_breakers
from operators.errors import OperatorError
from operators.steps import ByTimeRange
from operators.timing import millis, timestamp
from operators.triggers import EveryInterval, EveryRows, Trigger, check_trigger
from operators.windows import END, AnyWindow, Session, check_window, since_last_multiple

FIRING = "firing"
"""The column of a result that counts the firings of its key and window, from 1."""
FIRED_AT = temporary("fired_at")
"""The watermark (epoch ms) at which the row's firing is final."""
_REACHED_AT, _IS_LATE, _PART = temporary("reached_at"), temporary("is_late"), temporary("part")
Purging = EveryRows | EveryInterval
"""The triggers that can purge."""


def check_purging(trigger: Purging | None, window: AnyWindow, early: Trigger | None) -> None:
    """Raise `OperatorError` unless `window` and `early` have legal types, and a trigger, if there is one, can purge such windows."""
    check_window(window)
    check_trigger("early", early)
    if trigger is None:
        return
    if early is not None:
        raise OperatorError.bad_value("early", early, "None with `purging`: the table already has results of open windows")
    if not isinstance(trigger, EveryRows | EveryInterval):  # pyright: ignore[reportUnnecessaryIsInstance]
        legal = "EveryRows or EveryInterval; other triggers fire once for each step, so a backfill would have other results"
        raise OperatorError.bad_value("purging", trigger, legal)
    if isinstance(trigger, EveryInterval) and trigger.by == "processing":
        legal = (
            "an interval of event time. A processing-time interval fires by the clock, but results become final by the watermark; "
            "use a source whose event time is the processing time"
        )
        raise OperatorError.bad_value("purging", trigger, legal)
    if isinstance(window, Session):
        legal = "None for sessions: the bounds of a session are not known before its end, so its increments could not be added up"
        raise OperatorError.bad_value("purging", trigger, legal)


def firing_reads(reads: ByTimeRange, allowed_lateness: int) -> ByTimeRange:
    """What a step reads: every row of the windows with a firing in its range. No row corrects a firing that is final."""
    return ByTimeRange(lookback=tuple((lookback or 0) + allowed_lateness for lookback in reads.lookback), with_watermark=True)


def reach_time(frame: DataFrame, time: Column) -> Column:
    """The watermark, in epoch ms, at which a row reaches its windows.

    It is the row's time, or 1 ms after the watermark before its batch, whichever is later.
    """
    return F.greatest(millis(time), millis(F.col(WATERMARK)) + 1) if WATERMARK in frame.columns else millis(time)


def firing_times(at: Column | None = None) -> tuple[Column, Column]:
    """`result_time` and `final_at` of a firing: its time, by default that of `FIRED_AT`."""
    fired_at = timestamp(F.col(FIRED_AT) if at is None else at)
    return fired_at.alias(RESULT_TIME), fired_at.alias(FINAL_AT)


def assign_firings(
    rows: DataFrame, window: AnyWindow, trigger: Purging, *, time: str, lateness: Lateness, group: Sequence[str]
) -> DataFrame:
    """Assign rows to the windows that accepted them, and to firings: one row for each window, with `WINDOW`, `FIRED_AT` and `FIRING`.

    The last firing on time is at the window's last millisecond. A row that reaches its window later is in a firing of its own, with the
    rows that reach it at the same time.
    """
    timed_rows = rows.withColumn(_REACHED_AT, reach_time(rows, F.col(time)))
    rows_in_windows, window_group = assign_windows(timed_rows, window, time=time, lateness=lateness, group=group), (*group, WINDOW)
    last_ms, reached_at = F.col(WINDOW)[END] - 1, F.col(_REACHED_AT)
    rows_with_late_flag = rows_in_windows.withColumn(_IS_LATE, reached_at > last_ms)
    if isinstance(trigger, EveryInterval):
        interval = F.lit(trigger.interval_ms).cast("bigint")
        next_multiple = reached_at + F.pmod(-since_last_multiple(reached_at, 0, trigger.interval_ms), interval)
        rows_with_part, firing_time = rows_with_late_flag.withColumn(_PART, F.lit(0).cast("bigint")), F.least(next_multiple, last_ms)
    else:
        by_reach_time = Window.partitionBy(*window_group, _IS_LATE).orderBy(
            _REACHED_AT, millis(F.col(time)) == reached_at, *tie_breakers(drop_engine_columns(rows_in_windows))
        )
        rows_with_part = rows_with_late_flag.withColumn(
            _PART, F.when(F.col(_IS_LATE), 0).otherwise(F.floor((F.row_number().over(by_reach_time) - 1) / trigger.rows))
        )
        rows_of_part = Window.partitionBy(*window_group, _IS_LATE, _PART)
        firing_time = F.when(F.count("*").over(rows_of_part) == trigger.rows, F.max(_REACHED_AT).over(rows_of_part)).otherwise(last_ms)
    fired_rows = rows_with_part.withColumn(FIRED_AT, F.when(F.col(_IS_LATE), reached_at).otherwise(firing_time))
    firing_number = F.dense_rank().over(Window.partitionBy(*window_group).orderBy(FIRED_AT, _PART)).cast("bigint")
    return fired_rows.withColumn(FIRING, firing_number).drop(_REACHED_AT, _IS_LATE, _PART)
