"""Assigns rows to session windows: the rows of a key that follow each other within a gap."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators._support.panes import WINDOW
from operators.columns import temporary
from operators.engine_columns import SESSION, SESSION_TYPE
from operators.timing import millis
from operators.windows import Session, window_of

TIME = temporary("event_time")
"""The event time of a row, under one name for all inputs of an operator."""
_MS, _PREVIOUS, _CHAIN, _PART = (temporary(name) for name in ("time", "previous", "chain", "part"))


def assign_sessions(rows: DataFrame, session: Session, group: Sequence[str], time: str) -> DataFrame:
    """Assign rows to sessions, as `WINDOW`: the session in `SESSION`, or if that is null, the session that the rows form.

    A chain is a run of rows of a group in which no two consecutive rows are further apart than the gap. A chain that is longer than
    the longest session is cut into parts.

    Args:
        rows: the rows; those with a null time are dropped.
        session: the session window.
        group: the columns of a group; a null is an ordinary value.
        time: the event time, a timestamp column.
    """
    rows_with_session = rows if SESSION in rows.columns else rows.withColumn(SESSION, F.lit(None).cast(SESSION_TYPE))
    has_no_session, gap, longest = F.col(SESSION).isNull(), F.lit(session.gap_ms), F.lit(session.longest_ms).cast("bigint")
    rows_with_time = rows_with_session.where(F.col(time).isNotNull()).withColumn(_MS, millis(F.col(time)))
    by_time = Window.partitionBy(*group, has_no_session).orderBy(_MS)
    starts = F.when(F.col(_PREVIOUS).isNull() | (F.col(_MS) - F.col(_PREVIOUS) > gap), F.col(_MS))
    rows_with_chain = rows_with_time.withColumn(_PREVIOUS, F.lag(_MS).over(by_time)).withColumn(
        _CHAIN, F.last(starts, ignorenulls=True).over(by_time)
    )
    rows_with_part = rows_with_chain.withColumn(_PART, _part_start(F.col(_MS), F.col(_CHAIN), longest))
    rows_of_part = Window.partitionBy(*group, has_no_session, _CHAIN, _PART)
    end = F.least(F.max(_MS).over(rows_of_part) + gap, _part_end(F.col(_PART), F.col(_CHAIN), longest))
    formed_session = window_of(F.min(_MS).over(rows_of_part), end)
    return rows_with_part.withColumn(WINDOW, F.coalesce(SESSION, formed_session)).drop(SESSION, _MS, _PREVIOUS, _CHAIN, _PART)


def _part_start(time: Column, chain: Column, longest: Column) -> Column:
    """The start of the part of a chain that contains a time: the chain's start, `longest` after it, or a whole multiple of `longest`."""
    aligned = _next_multiple(chain + longest, longest)
    return F.when(time < chain + longest, chain).when(time < aligned, chain + longest).otherwise(time - F.pmod(time, longest))


def _part_end(start: Column, chain: Column, longest: Column) -> Column:
    """The end of the part of a chain that starts at a time."""
    return F.when(start == chain + longest, _next_multiple(start + 1, longest)).otherwise(start + longest)


def _next_multiple(time: Column, longest: Column) -> Column:
    return time + F.pmod(-time, longest)
