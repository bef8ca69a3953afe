"""The time to live of a key: after a longer gap without a row of the key, its older rows no longer count."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators.columns import check_time, parameter, temporary
from operators.engine_columns import BATCH_TIME, EVENT_TIME, PERIOD_END, PERIOD_START
from operators.errors import OperatorError
from operators.steps import ByKey, Kept
from operators.timing import Duration, TimeKind, bounded_length_ms

AfterTtl = Literal["keep", "retract"]
"""What happens to the rows of an expired key: they stay until its next row, or they are removed."""
GENERATION, IS_CURRENT = temporary("generation"), temporary("is_current")
_FIRST, _LAST, _STARTS = temporary("first"), temporary("last"), temporary("starts")


@dataclass(frozen=True)
class TimeToLive:
    """How long a key's rows count after its newest row.

    Args:
        ms: the duration in ms, more than zero.
        time_kind: whether it is measured in event time or in processing time.
        is_retracted: whether the rows of an expired key are removed.
    """

    ms: int
    time_kind: TimeKind
    is_retracted: bool = False

    @classmethod
    def read(cls, ttl: Duration | None, ttl_by: TimeKind, after_ttl: AfterTtl, *, key: Sequence[str]) -> Self | None:
        """Read the parameters `ttl`, `ttl_by` and `after_ttl`; None if there is no limit.

        Raises:
            OperatorError: one of them is not legal, or `after_ttl` is `retract` and no key can expire.
        """
        if ttl is not None and not bounded_length_ms(ttl, "ttl"):
            raise OperatorError.bad_value("ttl", ttl, "a duration of more than zero, or None for no limit")
        if ttl_by not in get_args(TimeKind):
            raise OperatorError.bad_value("ttl_by", ttl_by, ", ".join(get_args(TimeKind)))
        can_expire = ttl is not None and key
        if after_ttl not in get_args(AfterTtl) or (after_ttl == "retract" and not can_expire):
            raise OperatorError.bad_value("after_ttl", after_ttl, "keep; or retract, with a `ttl` and a key (`by`) that expires")
        return None if ttl is None else cls(bounded_length_ms(ttl, "ttl"), ttl_by, after_ttl == "retract")

    def reads(self, key: tuple[str, ...], *, row_key: tuple[str, ...] = (), change: str | None = None, keeps: bool = True) -> ByKey:
        """What a step reads: the rows of the keys of its new rows. If the rows of expired keys are removed, it has the `ttl` too.

        Args:
            key: the columns of the key.
            row_key: see `ByKey`.
            change: see `ByKey`.
            keeps: whether rows that later steps need are kept, so that a step need not read every row.
        """
        kept_rows = Kept(self.ms) if keeps else None
        return ByKey(
            key, row_key=row_key, change=change, ttl=self.ms if self.is_retracted else None, ttl_by=self.time_kind, keeps=kept_rows
        )

    def check(self, rows: DataFrame) -> None:
        """Raise `ColumnError` unless the rows have an event time, if the TTL is measured in event time."""
        if self.time_kind == "event":
            check_time(rows, EVENT_TIME, "ttl")

    def current_rows(self, key: Sequence[str], rows: DataFrame) -> DataFrame:
        """The rows of the newest generation of each key."""
        return self.with_generation(key, rows).where(IS_CURRENT).drop(GENERATION, IS_CURRENT)

    def with_generation(self, key: Sequence[str], rows: DataFrame) -> DataFrame:
        """Rows with their `GENERATION`, and whether that is the newest of the key (`IS_CURRENT`).

        A key without a row for longer than the time to live expires; its next row starts its next generation, counted from 0.
        """
        rows_by_generation = self._with_generation_and_times(key, rows).drop(_FIRST, _LAST)
        return rows_by_generation.withColumn(IS_CURRENT, F.col(GENERATION) == F.max(GENERATION).over(Window.partitionBy(*key)))

    def with_periods(self, key: Sequence[str], rows: DataFrame) -> DataFrame:
        """Rows with their `GENERATION`, and its `PERIOD_START` and `PERIOD_END`, so that each row can stand for all of its generation."""
        rows_of_generation = Window.partitionBy(*key, GENERATION)
        periods = {PERIOD_START: F.min(_FIRST).over(rows_of_generation), PERIOD_END: F.max(_LAST).over(rows_of_generation)}
        return self._with_generation_and_times(key, rows).withColumns(periods).drop(_FIRST, _LAST)

    def needed_rows(self, key: Sequence[str], rows: DataFrame, oldest: int | None) -> DataFrame:
        """Every row of the generations that did not end before `oldest` (ms), with its own period, and its `GENERATION`."""
        rows_by_generation = self._with_generation_and_times(key, rows)
        end = F.max(_LAST).over(Window.partitionBy(*key, GENERATION))
        needed_rows = rows_by_generation.withColumn(PERIOD_END, end).where(ends_at_or_after(oldest))
        return needed_rows.withColumns({PERIOD_START: F.col(_FIRST), PERIOD_END: F.col(_LAST)}).drop(_FIRST, _LAST)

    def _with_generation_and_times(self, key: Sequence[str], rows: DataFrame) -> DataFrame:
        """Rows with their `GENERATION`, and with `_FIRST` and `_LAST`: the first and the last time in ms of the rows that a row stands for.

        A kept row stands for the rows of its generation that were not kept, so that they still count as rows of the key.
        """
        if self.time_kind == "processing" and not {BATCH_TIME, PERIOD_START} & {*rows.columns}:
            raise OperatorError.bad_value(
                "ttl_by", self.time_kind, "event: a frame has no processing time of its rows; or let the engine run it"
            )
        time = EVENT_TIME if self.time_kind == "event" else BATCH_TIME
        row_time, has_periods = F.unix_millis(time) if time in rows.columns else F.lit(None).cast("bigint"), PERIOD_START in rows.columns
        period = [F.coalesce(F.col(end), row_time) if has_periods else row_time for end in (PERIOD_START, PERIOD_END)]
        timed_rows = rows.withColumns(dict(zip((_FIRST, _LAST), period, strict=True))).drop(BATCH_TIME, PERIOD_START, PERIOD_END)
        by_time = Window.partitionBy(*key).orderBy(_FIRST)
        previous_end = F.max(_LAST).over(by_time.rowsBetween(Window.unboundedPreceding, -1))
        starts = F.coalesce((F.col(_FIRST) - previous_end > self.ms).cast("int"), F.lit(0))
        until_now = by_time.rangeBetween(Window.unboundedPreceding, Window.currentRow)
        return timed_rows.withColumn(_STARTS, starts).withColumn(GENERATION, F.sum(_STARTS).over(until_now)).drop(_STARTS)


def ends_at_or_after(oldest: int | None) -> Column:
    """Whether a row's period ends at or after a time (ms); always true for None."""
    return F.lit(True) if oldest is None else F.col(PERIOD_END) >= parameter(oldest, PERIOD_END)
