"""The interval join: two streams joined where their event times lie within bounds of each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support import spark_streaming
from operators._support.join_columns import JoinColumns
from operators.columns import FINAL_AT, RESULT_TIME, check_time, temporary
from operators.contract import EVENT_TIME, SETTLED, WHICH, Append, Closed
from operators.errors import OperatorError
from operators.timing import Duration, Interval, millis, timestamp

How = Literal["inner", "left", "right", "full"]
_LEFT_THERE, _RIGHT_THERE = temporary("there_left"), temporary("there_right")
_LEFT_AT, _RIGHT_AT = temporary("at_left"), temporary("at_right")
"""The times in ms, told once for each row: the rows of one key in a step are all compared with each other."""


@dataclass(frozen=True, kw_only=True)
class IntervalJoin:
    """Pairs of equal keys with `left time + lower <= right time <= left time + upper`; on an outer side, padded rows too.

    Either end can be open (`lower_exclusive`, `upper_exclusive`); time has a resolution of 1 ms, finer times are
    floored. Null keys and null times match nothing. A row that nothing matches comes out once, padded with nulls,
    on the sides that `how` keeps. A pair's `result_time` is the later of its two times; an unmatched left row's is
    `max(t, t + upper)`, an unmatched right row's `max(t, t - lower)`; `final_at` is 1 ms after it. In the engine a
    row is late when `event_time < watermark`; late rows match nothing and are never padded.

    The semantics are those of Flink's `DataStream.keyBy().intervalJoin()`, with the outer kinds of its SQL interval
    join; `docs/flink.md` lists the differences. Streaming frames are joined by Spark's own stream-stream join, and
    refused where that would be wrong.

    Args:
        on: the key columns, by the same names on both sides.
        lower: the lower bound: ms, a timedelta, or words such as `'-5 minutes'`.
        upper: the upper bound. Below `lower` it is legal, and nothing matches.
        lower_exclusive: whether the lower end is open.
        upper_exclusive: whether the upper end is open.
        how: which sides' unmatched rows are kept.
        residual: a further condition in SQL over the *result's* names, e.g. `left_amount <= right_amount`.
        left_time: the left event time, a timestamp column.
        right_time: the right event time, a timestamp column.
        left_prefix: put before a left column's name that the right side holds too, and before `result_time` and `final_at`.
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
    def reads(self) -> Closed:
        """Closed ranges. To know that a kept row is unmatched, the other side is read as far as a match could lie."""
        one, mirrored = self.interval, self.interval.mirrored
        left = max(one.forward, one.backward - mirrored.lower if self.pads(1) else 0)
        right = max(one.backward, one.forward - one.lower if self.pads(0) else 0)
        return Closed(reach=(left, right), delay=1)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """`event_time < watermark`, strictly, as Flink's DataStream join has it."""
        return F.coalesce(event_time < watermark, F.lit(False))

    def settles(self, *frames: DataFrame) -> DataFrame:
        """When a row is final should nothing match it, for each side (see `Settling`); no pair of it is final later."""
        sides = [
            frame.select(F.lit(which).alias(WHICH), EVENT_TIME, self.expires(which, F.col(time)).alias(SETTLED))
            for which, (frame, time) in enumerate(zip(frames, (self.left_time, self.right_time), strict=True))
        ]
        return sides[0].unionByName(sides[1])

    def pads(self, which: int) -> bool:
        """Whether unmatched rows of the left (0) or right (1) side are kept."""
        return self.how in ("full", ("left", "right")[which])

    def expires(self, which: int, event_time: Column) -> Column:
        """The `final_at` of a row that nothing matches."""
        wait = (self.interval.forward, self.interval.backward)[which]
        return timestamp(millis(event_time) + wait + 1)

    def traced(self, column: str) -> tuple[str, str]:
        """The result's names of a column that both sides hold."""
        return self.names.traced(column)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Join two frames.

        Args:
            frames: the left and the right frame, both static (then the result is the whole answer) or both spark_streaming.

        Returns:
            The key columns, the left columns, the right columns (a name that both hold takes its side's prefix),
            `result_time` and `final_at` (timestamp).
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
        """One side with its names while joining. No column twice: Spark refuses a second copy of a time with a watermark."""
        there = F.lit(True).alias((_LEFT_THERE, _RIGHT_THERE)[which])
        at = millis(F.col((self.left_time, self.right_time)[which])).alias((_LEFT_AT, _RIGHT_AT)[which])
        return frame.select(*self.names.renamed(frame.columns, other, which), there, at)

    def _matches(self, left_time: Column, right_time: Column, streams: bool) -> Column:
        left_at, right_at = F.col(_LEFT_AT), F.col(_RIGHT_AT)
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
        left, right = F.col(_LEFT_AT), F.col(_RIGHT_AT)
        result = (
            F.when(F.col(_RIGHT_THERE).isNull(), left + self.interval.forward)
            .when(F.col(_LEFT_THERE).isNull(), right + self.interval.backward)
            .otherwise(F.greatest(left, right))
        )
        return timestamp(result).alias(RESULT_TIME), timestamp(result + 1).alias(FINAL_AT)
