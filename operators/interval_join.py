"""The interval join: joins two streams by key where their event times are within bounds of each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support import spark_streaming
from operators._support.join_columns import JoinColumns
from operators._support.matched_rows import ROW_ID, ids_in_pairs, with_ids, with_matched
from operators.columns import FINAL_AT, RESULT_TIME, check_time, temporary
from operators.contract import EVENT_TIME, FINALIZED_AT, WHICH, Append, ByTimeRange
from operators.errors import OperatorError
from operators.timing import Duration, Interval, millis, timestamp

How = Literal["inner", "left", "right", "full"]
_HAS_LEFT, _HAS_RIGHT = temporary("has_left"), temporary("has_right")
_LEFT_MS, _RIGHT_MS = temporary("left_ms"), temporary("right_ms")
"""The times in ms, computed once for each row: Spark compares each row with all rows of its key."""


@dataclass(frozen=True, kw_only=True)
class IntervalJoin:
    """Pairs of rows with equal keys and `left time + lower <= right time <= left time + upper`; for an outer join, unmatched rows too.

    Either end can be open (`lower_exclusive`, `upper_exclusive`). Time has a resolution of 1 ms, and finer times are floored. Null keys
    and null times match nothing. An unmatched row is in the result once, padded with nulls, if `how` keeps its side.

    A pair's `result_time` is the later of its two times. An unmatched left row's is `max(t, t + upper)`, an unmatched right row's
    `max(t, t - lower)`. `final_at` is 1 ms after `result_time`. In the engine a row is late if `event_time < watermark`; a late row
    matches nothing and is not in the result.

    The semantics are those of Flink's `DataStream.keyBy().intervalJoin()`, with the outer kinds of its SQL interval join;
    the page `docs/explanation/flink.md` lists the differences. Streaming frames are joined by Spark's own stream-stream join, and
    refused if its result would be wrong.

    Args:
        on: the key columns, with the same names on both sides.
        lower: the lower bound: ms, a timedelta, or words such as `'-5 minutes'`.
        upper: the upper bound. If it is below `lower`, nothing matches.
        lower_exclusive: whether the lower end is open.
        upper_exclusive: whether the upper end is open.
        how: the sides whose unmatched rows are kept: none (`inner`), `left`, `right` or both (`full`).
        residual: an extra join condition, in SQL over the *result's* names, e.g. `left_amount <= right_amount`.
        left_time: the left event time, a timestamp column.
        right_time: the right event time, a timestamp column.
        left_prefix: added to the name of a left column that the right side has too, or that is `result_time` or `final_at`.
        right_prefix: the same for the right side.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> join = IntervalJoin(on="order_id", lower=0, upper="24 hours", how="full")
    >>> join.interval
    Interval(lower=0, upper=86400000)
    """

    on: str | Sequence[str]
    lower: Duration
    upper: Duration
    lower_exclusive: bool = False
    upper_exclusive: bool = False
    how: How = "inner"
    residual: str | None = None
    left_time: str = EVENT_TIME
    right_time: str = EVENT_TIME
    left_prefix: str = "left_"
    right_prefix: str = "right_"

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise OperatorError.bad_value("how", self.how, ", ".join(get_args(How)))
        _ = self.names, self.interval

    @cached_property
    def names(self) -> JoinColumns:
        """The names of the result."""
        return JoinColumns.checked(self.on, self.left_prefix, self.right_prefix, (RESULT_TIME, FINAL_AT))

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`)."""
        left, right = inputs
        return self.names.result_columns(left, right)

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.names.key

    @cached_property
    def interval(self) -> Interval:
        """The bounds, both ends included, in ms."""
        return Interval.between(self.lower, self.upper, lower_exclusive=self.lower_exclusive, upper_exclusive=self.upper_exclusive)

    @property
    def inputs(self) -> tuple[str, str]:
        """The names of the inputs."""
        return ("left", "right")

    @property
    def emits(self) -> Append:
        """Every result is final."""
        return Append()

    @property
    def reads(self) -> ByTimeRange:
        """Closed ranges. To know that a kept row is unmatched, a step reads the other side as far back as a match could be."""
        one, mirrored = self.interval, self.interval.mirrored
        left = max(one.forward, one.backward - mirrored.lower if self.keeps_unmatched(1) else 0)
        right = max(one.backward, one.forward - one.lower if self.keeps_unmatched(0) else 0)
        return ByTimeRange(lookback=(left, right), watermark_delay=1)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """`event_time < watermark`, strictly, as in Flink's DataStream join."""
        return F.coalesce(event_time < watermark, F.lit(False))

    def late_before(self, watermark: int) -> int:
        """The watermark (see `BoundsLateness`)."""
        return watermark

    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        """When a row is final: its `final_at` if unmatched, which is at or after that of each of its pairs (see `ReportsFinality`)."""
        frames_by_side = [
            frame.select(F.lit(which).alias(WHICH), EVENT_TIME, self.finalized_at_if_unmatched(which, F.col(time)).alias(FINALIZED_AT))
            for which, (frame, time) in enumerate(zip(frames, (self.left_time, self.right_time), strict=True))
        ]
        return frames_by_side[0].unionByName(frames_by_side[1])

    def matches(self, *frames: DataFrame) -> DataFrame:
        """Which rows are in a pair (see `ReportsMatches`)."""
        rows = with_ids(frames)
        finality = [
            frame.select(F.lit(n).alias(WHICH), EVENT_TIME, self.finalized_at_if_unmatched(n, F.col(time)).alias(FINALIZED_AT), ROW_ID)
            for n, (frame, time) in enumerate(zip(rows, (self.left_time, self.right_time), strict=True))
        ]
        pairs = replace(self, how="inner")(*rows)
        return with_matched(finality[0].unionByName(finality[1]), ids_in_pairs(pairs, self.names.traced(ROW_ID)))

    def keeps_unmatched(self, which: int) -> bool:
        """Whether the result keeps unmatched rows of the left (0) or right (1) side."""
        return self.how in ("full", ("left", "right")[which])

    def finalized_at_if_unmatched(self, which: int, event_time: Column) -> Column:
        """The `final_at` of an unmatched row."""
        wait = (self.interval.forward, self.interval.backward)[which]
        return timestamp(millis(event_time) + wait + 1)

    def traced(self, column: str) -> tuple[str, str]:
        """The result's names of a column that both sides have."""
        return self.names.traced(column)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Join two frames.

        Args:
            frames: the left and the right frame, both static (then the result is complete) or both streaming.

        Returns:
            The key columns, the left columns, the right columns (a name that both sides have gets its side's prefix), `result_time` and
            `final_at` (timestamp).
        """
        left, right = frames
        self._check(left, right)
        streams = spark_streaming.check_join(left, right, self.left_time, self.right_time, self.how)
        names = self.names
        times = F.col(names.joined_name(self.left_time, right, 0)), F.col(names.joined_name(self.right_time, left, 1))
        joined = self._side(left, right, 0).join(self._side(right, left, 1), self._matches(*times, streams), self.how)
        return joined.select(*names.key_columns(), *names.payload(left, right), *self._result_times())

    def _check(self, left: DataFrame, right: DataFrame) -> None:
        self.names.check(left, right)
        check_time(left, self.left_time, "left_time")
        check_time(right, self.right_time, "right_time")

    def _side(self, frame: DataFrame, other: DataFrame, which: int) -> DataFrame:
        """One side with its names during the join. It has no second copy of its time: Spark refuses two columns with a watermark."""
        exists = F.lit(True).alias((_HAS_LEFT, _HAS_RIGHT)[which])
        at = millis(F.col((self.left_time, self.right_time)[which])).alias((_LEFT_MS, _RIGHT_MS)[which])
        return frame.select(*self.names.renamed(frame.columns, other, which), exists, at)

    def _matches(self, left_time: Column, right_time: Column, streams: bool) -> Column:
        left_at, right_at = F.col(_LEFT_MS), F.col(_RIGHT_MS)
        within = (right_at >= left_at + self.interval.lower) & (right_at <= left_at + self.interval.upper)
        condition = spark_streaming.opaque(within) if streams else within
        keys = self.names.key_pairs()
        if streams:
            condition = spark_streaming.within(left_time, right_time, self.interval) & condition
            condition = spark_streaming.present(left_time, right_time, *chain.from_iterable(keys)) & condition
        for one, other in keys:
            condition = (one == other) & condition
        if self.residual is None:
            return condition
        return condition & (spark_streaming.opaque(F.expr(self.residual)) if streams else F.expr(self.residual))

    def _result_times(self) -> tuple[Column, Column]:
        left, right = F.col(_LEFT_MS), F.col(_RIGHT_MS)
        result = (
            F.when(F.col(_HAS_RIGHT).isNull(), left + self.interval.forward)
            .when(F.col(_HAS_LEFT).isNull(), right + self.interval.backward)
            .otherwise(F.greatest(left, right))
        )
        return timestamp(result).alias(RESULT_TIME), timestamp(result + 1).alias(FINAL_AT)
