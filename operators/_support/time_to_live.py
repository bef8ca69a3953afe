"""The time to live of a key: after a gap longer than it without a row, older rows of the key no longer count."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from operators.columns import check_time, temporary
from operators.engine_columns import BATCH_TIME, EVENT_TIME, plain
from operators.errors import OperatorError
from operators.steps import ByKey
from operators.timing import Duration, TimeKind, length_ms

AfterTtl = Literal["keep", "retract"]
"""What happens to the rows of an expired key: they stay until its next row, or they are removed."""
GENERATION, IS_CURRENT = temporary("generation"), temporary("is_current")
_MS, _STARTS = temporary("ms"), temporary("starts")


@dataclass(frozen=True)
class TimeToLive:
    """How long a key's rows count after its newest row.

    Args:
        ms: the duration in ms, more than zero.
        by: the time in which it is measured.
        is_retracted: whether the rows of an expired key are removed.
    """

    ms: int
    by: TimeKind
    is_retracted: bool = False

    @classmethod
    def read(cls, ttl: Duration | None, ttl_by: TimeKind, after_ttl: AfterTtl, *, key: Sequence[str]) -> Self | None:
        """Read the parameters `ttl`, `ttl_by` and `after_ttl`; None if there is no limit.

        Raises:
            OperatorError: one of them is not legal, or there is no key that could expire.
        """
        if ttl is not None and not length_ms(ttl, "ttl"):
            raise OperatorError.bad_value("ttl", ttl, "longer than no time, or None for no limit")
        if ttl_by not in get_args(TimeKind):
            raise OperatorError.bad_value("ttl_by", ttl_by, ", ".join(get_args(TimeKind)))
        can_expire = ttl is not None and key
        if after_ttl not in get_args(AfterTtl) or (after_ttl == "retract" and not can_expire):
            raise OperatorError.bad_value("after_ttl", after_ttl, "keep; or retract, with a `ttl` and partitions (`by`) that expire")
        return None if ttl is None else cls(length_ms(ttl, "ttl"), ttl_by, after_ttl == "retract")

    def reads(self, key: tuple[str, ...], *, through: tuple[str, ...] = (), change: str | None = None) -> ByKey:
        """What a step reads: every row of the keys of its new rows; and which keys expire, if their rows are removed."""
        return ByKey(key, through=through, change=change, ttl=self.ms if self.is_retracted else None, ttl_by=self.by)

    def check(self, rows: DataFrame) -> None:
        """Raise `ColumnError` unless the rows have an event time, if it is measured in event time."""
        if self.by == "event":
            check_time(rows, EVENT_TIME, "ttl")

    def current(self, key: Sequence[str], rows: DataFrame) -> DataFrame:
        """The rows of the newest generation of each key."""
        return self.with_generation(key, rows).where(IS_CURRENT).drop(GENERATION, IS_CURRENT)

    def with_generation(self, key: Sequence[str], rows: DataFrame) -> DataFrame:
        """Rows with their `GENERATION`, and whether that is the newest of the key (`IS_CURRENT`).

        A key without a row for longer than the time to live expires; its next row starts its next generation, counted from 0.
        """
        if self.by == "processing" and BATCH_TIME not in rows.columns:
            raise OperatorError.bad_value("ttl_by", self.by, "event: a frame has no processing time of its rows; or let the engine run it")
        timed = plain(rows.withColumn(_MS, F.unix_millis(EVENT_TIME if self.by == "event" else BATCH_TIME)))
        in_time = Window.partitionBy(*key).orderBy(_MS)
        starts = F.coalesce((F.col(_MS) - F.lag(_MS).over(in_time) > self.ms).cast("int"), F.lit(0))
        until_now = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        counted = timed.withColumn(_STARTS, starts).withColumn(GENERATION, F.sum(_STARTS).over(until_now)).drop(_STARTS, _MS)
        return counted.withColumn(IS_CURRENT, F.col(GENERATION) == F.max(GENERATION).over(Window.partitionBy(*key)))
