"""Assigns rows to panes, and panes to windows."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.lateness import Lateness
from operators.columns import quoted, temporary
from operators.engine_columns import WATERMARK
from operators.timing import millis
from operators.windows import END, Aligned, since_last_multiple

PANE, CLOSED, WINDOW = temporary("pane"), temporary("closed"), temporary("window")


def pane_of(window: Aligned, time: Column) -> Column:
    """The start of the pane that holds a time, both in epoch ms; floored, also before 1970."""
    return time - since_last_multiple(time, window.origin, window.pane)


def assign_panes(rows: DataFrame, window: Aligned, time: str, lateness: Lateness) -> DataFrame:
    """Rows with their `PANE` and with `CLOSED`: a window whose last millisecond is at or before `CLOSED` did not accept the row.

    `CLOSED` is the watermark before the row's batch less the allowed lateness, in epoch ms. It is null if every window of the row
    accepted it, and for rows without `WATERMARK`. Rows with a null time are dropped.
    """
    pane, closed = pane_of(window, millis(F.col(time))), F.lit(None).cast("bigint")
    if WATERMARK in rows.columns:
        closed_up_to = lateness.closed_up_to(millis(F.col(WATERMARK)))
        closed = F.when(closed_up_to >= pane + window.pane - 1, closed_up_to)
    columns = quoted(c for c in rows.columns if c != WATERMARK)
    return rows.where(F.col(time).isNotNull()).select(*columns, pane.alias(PANE), closed.alias(CLOSED))


def expand_to_windows(paned: DataFrame, window: Aligned) -> DataFrame:
    """Expand rows or panes to the windows that accepted them: one row for each window, with `WINDOW`."""
    rows = paned.withColumn(WINDOW, F.explode(window.windows_of_pane(F.col(PANE))))
    return rows.where(F.col(CLOSED).isNull() | (F.col(WINDOW)[END] - 1 > F.col(CLOSED)))
