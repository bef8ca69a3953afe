"""Session windows: rows of a key that follow each other within a gap."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators.columns import of_keys, parameter, temporary
from operators.contract import ARRIVAL, NEW, SEQ, SESSION, SESSION_TYPE, WHICH
from operators.errors import OperatorError
from operators.timing import Duration, millis
from operators.windows import END, WINDOW, whole, window_of

TIME = temporary("event_time")
_TIME, _BEFORE, _FIRST, _FROM = (temporary(name) for name in ("time", "before", "first", "from"))
_WAS, _DEAD, _LATE, _MOVED = (temporary(name) for name in ("was", "dead", "late", "moved"))


@dataclass(frozen=True, kw_only=True)
class Session:
    """Windows from a key's first row to `gap` after its last one, where no two rows that follow each other are further apart than `gap`.

    A row at the very end of a session belongs to it, so a session is final when the watermark reaches its `end`, one
    millisecond after its last one. A session is no longer than `longest`: it ends that long after its start, and the rows that
    go on are sessions of their own, cut at whole multiples of `longest` since 1970.

    Args:
        gap: how long nothing comes until a session has ended, more than zero.
        longest: the longest a session may be, at least `gap`; it bounds what a step reads again.

    Raises:
        OperatorError: a value is not legal.

    >>> Session(gap="30 minutes", longest="12 hours").reach
    88200000
    """

    gap: Duration
    longest: Duration = "1 day"

    def __post_init__(self) -> None:
        if self.longest_ms < self.gap_ms:
            raise OperatorError.bad_value("longest", self.longest, f"at least `gap` ({self.gap!r}), which a session of one row lasts")

    @cached_property
    def gap_ms(self) -> int:
        """The gap in ms."""
        return whole("gap", self.gap)

    @cached_property
    def longest_ms(self) -> int:
        """The longest session in ms."""
        return whole("longest", self.longest)

    @property
    def reach(self) -> int:
        """How far before its end a session's cuts are settled: where it starts, or a whole multiple of `longest` since."""
        return 2 * self.longest_ms + self.gap_ms


def in_sessions(rows: DataFrame, session: Session, group: Sequence[str], time: str) -> DataFrame:
    """Rows with the `WINDOW` of their session: the one in `SESSION`, where the frame says so, and where that is null the one they form.

    Args:
        rows: the rows; those with a null time are left out.
        session: the session window.
        group: the columns of a group; a null is an ordinary value.
        time: the event time, a timestamp column.
    """
    there = rows if SESSION in rows.columns else rows.withColumn(SESSION, F.lit(None).cast(SESSION_TYPE))
    free, gap, longest = F.col(SESSION).isNull(), F.lit(session.gap_ms), F.lit(session.longest_ms).cast("bigint")
    timed = there.where(F.col(time).isNotNull()).withColumn(_TIME, millis(F.col(time)))
    order = Window.partitionBy(*group, free).orderBy(_TIME)
    starts = F.when(F.col(_BEFORE).isNull() | (F.col(_TIME) - F.col(_BEFORE) > gap), F.col(_TIME))
    chained = timed.withColumn(_BEFORE, F.lag(_TIME).over(order)).withColumn(_FIRST, F.last(starts, ignorenulls=True).over(order))
    cut = _cut(F.col(_TIME), F.col(_FIRST), longest)
    parts = Window.partitionBy(*group, free, _FIRST, _FROM)
    whole_part = chained.withColumn(_FROM, cut)
    end = F.least(F.max(_TIME).over(parts) + gap, _upto(F.col(_FROM), F.col(_FIRST), longest))
    formed = window_of(F.min(_TIME).over(parts), end)
    return whole_part.withColumn(WINDOW, F.coalesce(SESSION, formed)).drop(SESSION, _TIME, _BEFORE, _FIRST, _FROM)


def _cut(time: Column, first: Column, longest: Column) -> Column:
    """Where the part of a chain begins that a row lies in: the chain's start, `longest` after it, or a whole multiple of `longest`."""
    settled = _next_multiple(first + longest, longest)
    return F.when(time < first + longest, first).when(time < settled, first + longest).otherwise(time - F.pmod(time, longest))


def _upto(begin: Column, first: Column, longest: Column) -> Column:
    """Where the part that begins at a cut ends."""
    return F.when(begin == first + longest, _next_multiple(begin + 1, longest)).otherwise(begin + longest)


def _next_multiple(time: Column, longest: Column) -> Column:
    return time + F.pmod(-time, longest)


def verdicts(rows: DataFrame, session: Session, lateness: int, watermark: int) -> DataFrame:
    """Judge an entry's rows as Flink does: they are merged with the sessions that still take rows, and what they form is judged.

    A row that was let in so, and lies before a cut where a session has ended that takes no more, is late: the log puts it there.

    A session that takes no more rows stays as it is, even where a row that was let in by another lies within the gap of it: its
    rows are told the session that they stay in.

    Args:
        rows: rows up to and with the entry, those judged late left out: the columns of a group, `TIME` (timestamp), `WHICH`, `seq`,
            `arrival`, `SESSION` and `NEW`.
        session: the session window.
        lateness: the allowed lateness in ms.
        watermark: the one before the entry, in epoch ms.

    Returns:
        `WHICH`, `seq`, `arrival` and `SESSION`, as `Judging` tells.
    """
    group = [c for c in rows.columns if c not in (TIME, WHICH, SEQ, ARRIVAL, SESSION, NEW)]
    time, end = millis(F.col(TIME)), F.col(WINDOW)[END]
    behind = rows.where(F.col(NEW) & (time <= parameter(watermark, time))).select(*group).distinct()
    near = of_keys(rows.where(F.col(SESSION).isNull()), behind, group).drop(SESSION).localCheckpoint()  # a few keys' rows, read three times
    closed = end + lateness <= parameter(watermark, end)
    old = in_sessions(near.where(~F.col(NEW)), session, group, TIME).withColumn(_DEAD, closed).withColumnRenamed(WINDOW, _WAS)
    living = old.where(~F.col(_DEAD)).drop(_DEAD, _WAS).unionByName(near.where(NEW))
    taken = in_sessions(living, session, group, TIME).where(NEW).withColumn(_LATE, closed)
    let_in = old.unionByName(taken.where(~F.col(_LATE)).drop(WINDOW, _LATE), allowMissingColumns=True)
    placed = in_sessions(let_in, session, group, TIME).withColumn(_LATE, F.col(NEW) & closed).localCheckpoint()
    moves = F.max(F.col(WINDOW) != F.col(_WAS)).over(Window.partitionBy(*group, _WAS))
    moved = in_sessions(placed.where(~F.col(_LATE)).drop(WINDOW), session, group, TIME).where(_DEAD).withColumn(_MOVED, moves).where(_MOVED)
    stays = moved.select(WHICH, SEQ, ARRIVAL, F.col(_WAS).alias(SESSION))
    late = [
        rows.where(_LATE).select(WHICH, SEQ, ARRIVAL, F.lit(None).cast(stays.schema[SESSION].dataType).alias(SESSION))
        for rows in (taken, placed)
    ]
    return reduce(DataFrame.unionByName, [*late, stays])
