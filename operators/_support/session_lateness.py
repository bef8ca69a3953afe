"""Decides which rows of a batch are late for session windows."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators._support.lateness import Lateness
from operators._support.panes import WINDOW
from operators._support.session_windows import TIME, assign_sessions
from operators.checkpoints import checkpoint
from operators.columns import parameter, rows_of_keys, temporary
from operators.engine_columns import ARRIVAL, NEW, SEQ, SESSION, SESSION_TYPE, WHICH
from operators.timing import millis
from operators.windows import END, Session

_FORMER, _CLOSED, _LATE, _MOVED = (temporary(name) for name in ("former", "closed_session", "late", "moved"))


def lateness_decisions(rows: DataFrame, session: Session, lateness: Lateness, watermark: int) -> DataFrame:
    """Decide which rows of a batch are late, as Flink does.

    The batch's rows first merge with the sessions that are still open. They are late if the merged session has closed. A row of an open
    session is nevertheless late if `Session.longest` cuts the session before the row, and the part with the row has closed. A closed
    session stays as it is, even if an accepted row lies within its gap: its rows stay in it.

    Args:
        rows: the rows of all inputs up to and including the batch, without rows that are known to be late: the columns of a group, `TIME`
            (timestamp), `WHICH`, `seq`, `arrival`, `SESSION` and `NEW`.
        session: the session window.
        lateness: the allowed lateness.
        watermark: the watermark before the batch, in epoch ms.

    Returns:
        `WHICH`, `seq`, `arrival` and `SESSION`: null for a late row, else the closed session in which an older row stays.
    """
    group = [c for c in rows.columns if c not in (TIME, WHICH, SEQ, ARRIVAL, SESSION, NEW)]
    candidates = checkpoint(_rows_of_groups_behind(rows, group, watermark))  # the rows of a few keys, which are read several times
    end = F.col(WINDOW)[END]
    is_closed = lateness.has_closed(end, parameter(watermark, end))
    earlier_rows = (
        assign_sessions(candidates.where(~F.col(NEW)), session, group, TIME)
        .withColumn(_CLOSED, is_closed)
        .withColumnRenamed(WINDOW, _FORMER)
    )
    open_rows = earlier_rows.where(~F.col(_CLOSED)).drop(_CLOSED, _FORMER)
    merged_rows = (
        assign_sessions(open_rows.unionByName(candidates.where(NEW)), session, group, TIME).where(NEW).withColumn(_LATE, is_closed)
    )
    accepted_rows = earlier_rows.unionByName(merged_rows.where(~F.col(_LATE)).drop(WINDOW, _LATE), allowMissingColumns=True)
    cut_rows = checkpoint(assign_sessions(accepted_rows, session, group, TIME).withColumn(_LATE, F.col(NEW) & is_closed))
    kept_rows = assign_sessions(cut_rows.where(~F.col(_LATE)).drop(WINDOW), session, group, TIME)
    late_rows = [
        frame.where(_LATE).select(WHICH, SEQ, ARRIVAL, F.lit(None).cast(SESSION_TYPE).alias(SESSION)) for frame in (merged_rows, cut_rows)
    ]
    return reduce(DataFrame.unionByName, [*late_rows, _rows_that_stay(kept_rows, group)])


def _rows_of_groups_behind(rows: DataFrame, group: Sequence[str], watermark: int) -> DataFrame:
    """The rows of the groups that have a new row behind the watermark, without the rows that stay in a closed session."""
    time = millis(F.col(TIME))
    groups_behind = rows.where(F.col(NEW) & (time <= parameter(watermark, time))).select(*group).distinct()
    return rows_of_keys(rows.where(F.col(SESSION).isNull()), groups_behind, group).drop(SESSION)


def _rows_that_stay(kept_rows: DataFrame, group: Sequence[str]) -> DataFrame:
    """The rows of each closed session that accepted rows would change. The rows stay in that session, which is their `SESSION`."""
    is_moved: Column = F.max(F.col(WINDOW) != F.col(_FORMER)).over(Window.partitionBy(*group, _FORMER))
    moved_rows = kept_rows.where(_CLOSED).withColumn(_MOVED, is_moved).where(_MOVED)
    return moved_rows.select(WHICH, SEQ, ARRIVAL, F.col(_FORMER).alias(SESSION))
