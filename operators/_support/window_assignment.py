"""Assigns rows to windows of any kind, and reads a window's bounds and times."""

from collections.abc import Sequence
from functools import partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.lateness import Lateness
from operators._support.panes import WINDOW, assign_panes, expand_to_windows, pane_of
from operators._support.session_windows import TIME, assign_sessions
from operators.columns import FINAL_AT, RESULT_TIME, WINDOW_END, WINDOW_START, temporary
from operators.engine_columns import SESSION, WATERMARK
from operators.steps import ByTimeRange
from operators.timing import millis, timestamp
from operators.windows import END, START, Aligned, AnyWindow, Session

UNMATCHABLE = temporary("unmatchable")
"""The input of a row with a null key, which matches no row of another input; null for all other rows."""


def assign_windows(rows: DataFrame, window: AnyWindow, *, time: str, lateness: Lateness, group: Sequence[str]) -> DataFrame:
    """Assign rows to the windows that accepted them: one row for each window, with `WINDOW`. Sessions are those of a group."""
    if isinstance(window, Session):
        return assign_sessions(rows, window, group, time)
    return expand_to_windows(assign_panes(rows, window, time, lateness), window)


def assign_shared_windows(inputs: Sequence[DataFrame], window: AnyWindow, lateness: Lateness, group: Sequence[str]) -> DataFrame:
    """Assign the rows of several inputs to windows, in one frame with `WINDOW`, so that they form sessions together.

    Every input has the group's columns and `TIME`; a column that only some inputs have is null in the rows of the others.
    """
    return assign_windows(union_inputs(inputs), window, time=TIME, lateness=lateness, group=group)


def union_inputs(inputs: Sequence[DataFrame]) -> DataFrame:
    """The rows of several inputs; a column that only some inputs have is null in the rows of the others."""
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), inputs)


def key_group(key: Sequence[str], index: int) -> list[Column]:
    """The columns that group the rows of input `index`: the key, and `UNMATCHABLE`, which keeps each input's null keys apart."""
    has_null = reduce(lambda a, b: a | b, [F.col(c).isNull() for c in key])
    return [*map(F.col, key), F.when(has_null, index).alias(UNMATCHABLE)]


def lateness_columns(frame: DataFrame) -> list[str]:
    """The columns of a frame that record how the lateness of its rows was decided."""
    return [c for c in (WATERMARK, SESSION) if c in frame.columns]


def are_all_windows_closed(window: AnyWindow, event_time: Column, watermark: Column, lateness: Lateness) -> Column:
    """Whether all windows of a row had closed: `last end - 1 ms + lateness <= watermark`; false for a row in a gap between windows.

    For a session it is `event_time + gap + lateness <= watermark`, as if the row were the only one of its session; another session may
    still accept it.
    """
    last_ms = millis(event_time) + window.gap_ms if isinstance(window, Session) else _last_millisecond(window, event_time)
    return F.coalesce(lateness.has_closed(last_ms, millis(watermark)), F.lit(False))


def bound_of_closed_windows(window: Aligned, watermark: int, lateness: Lateness) -> int | None:
    """The time (epoch ms) before which all windows of a row have closed; None if there are gaps, because rows in gaps are not late."""
    if window.period > window.longest:
        return None
    newest_start = watermark + 1 - lateness.ms - window.longest - window.origin
    return window.origin + (newest_start // window.period + 1) * window.period


def last_final_at(window: Aligned, time: Column) -> Column:
    """When the last window that holds a time is final: its last millisecond; null in a gap."""
    return timestamp(_last_millisecond(window, time))


def _last_millisecond(window: Aligned, time: Column) -> Column:
    """The last millisecond of the last window that holds a time, in epoch ms; null in a gap."""
    return window.last_end(pane_of(window, millis(time))) - 1


def window_reads(window: AnyWindow, lateness: Lateness, inputs: int = 1) -> ByTimeRange:
    """What a step reads to compute whole windows: rows with the watermark before their batch, or with recorded lateness decisions."""
    if isinstance(window, Session):
        return ByTimeRange(lookback=(window.lookback,) * inputs, watermark_delay=1, lateness=lateness.ms, recorded=True)
    return ByTimeRange(lookback=(window.longest,) * inputs, with_watermark=True, lateness=lateness.ms)


def window_bounds() -> tuple[Column, Column]:
    """`window_start` and `window_end` of the `WINDOW`."""
    window = F.col(WINDOW)
    return timestamp(window[START]).alias(WINDOW_START), timestamp(window[END]).alias(WINDOW_END)


def window_times(window: AnyWindow) -> tuple[Column, Column]:
    """`result_time`, the last millisecond of the `WINDOW`, and `final_at`: the same, or the end of a session."""
    last_ms, end = timestamp(F.col(WINDOW)[END] - 1), timestamp(F.col(WINDOW)[END])
    return last_ms.alias(RESULT_TIME), (end if isinstance(window, Session) else last_ms).alias(FINAL_AT)


def times_of_end() -> dict[str, Column]:
    """`result_time` and `final_at` of whole windows, from `window_end`: its last millisecond."""
    last_ms = F.col(WINDOW_END) - F.expr("INTERVAL 1 MILLISECOND")
    return {RESULT_TIME: last_ms, FINAL_AT: last_ms}
