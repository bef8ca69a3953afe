"""The interval join: joins two streams by key where their event times are within bounds of each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators._support import engine_streams, spark_streaming
from operators._support.interval_join_checks import LateRows, ResultTime, check_parameters
from operators._support.join_columns import How, JoinColumns
from operators._support.join_condition import static_condition, streaming_condition
from operators._support.late_rows import are_joined, watermark_if_late
from operators._support.lateness import Lateness
from operators._support.matched_rows import ROW_ID, finality, ids_in_pairs, result_times, with_ids, with_matched
from operators._support.time_buckets import BucketedJoin, bucket_ms
from operators.columns import FINAL_AT, RESULT_TIME, check_distinct, check_time, quoted, quoted_name, temporary
from operators.contract import ASIDE, NEVER_LATE
from operators.engine_columns import EVENT_TIME, drop_engine_columns, tie_breakers
from operators.nondeterministic import check_deterministic
from operators.steps import Append, ByTimeRange
from operators.timing import FOREVER, Duration, Interval, millis, timestamp
from operators.triggers import ROWS_SEEN, Trigger, shown_columns

_HAS_LEFT, _HAS_RIGHT, _LEFT_WATERMARK, _RIGHT_WATERMARK = map(temporary, ("has_left", "has_right", "left_watermark", "right_watermark"))
_NUMBER, _ROW, _LAST_MS = map(temporary, ("number", "row", "last_ms"))
_LEFT_MS, _RIGHT_MS = temporary("left_ms"), temporary("right_ms")
"""The event times in ms, computed once for each row: Spark compares each row with all rows of the other side that have its key."""
_TIMES = {"left": _LEFT_MS, "right": _RIGHT_MS}


@dataclass(frozen=True, kw_only=True)
class IntervalJoin(engine_streams.JoinedByQuery):
    """Pairs of rows with equal keys and `left time + lower <= right time <= left time + upper`; for an outer join, unmatched rows too.

    Either end can be open (`lower_exclusive`, `upper_exclusive`). Times have a resolution of 1 ms: finer times are rounded down. Null keys
    and null times match nothing. An unmatched row is in the result once, padded with nulls, if `how` keeps its side. `semi` returns each
    left row that has a match, once. `anti` returns each left row that has no match.

    The `result_time` of a pair is the later of its two times. That of an unmatched row is `max(t, t + upper)` on the left, and
    `max(t, t - lower)` on the right. That of a `semi` row is the one of its earliest pair. `final_at` is 1 ms after this time.
    The parameter `result_time` does not change `final_at`.

    In the engine a row is late if `event_time + allowed_lateness < watermark`, where the watermark is the one before the row's batch. A
    row that arrives behind closed results and is not late corrects them: it adds its pairs, and removes the unmatched results of the rows
    that it matches. A late row matches nothing and is not in the result, unless `late_rows` is `join`.

    The semantics are those of Flink's `DataStream.keyBy().intervalJoin()`, with the outer kinds of its SQL interval join and, for
    `late_rows="join"`, with that join's rule for late rows; the page `docs/explanation/flink.md` lists the differences. Spark's own
    stream-stream join joins streaming frames; the operator refuses them if the result would be wrong.

    Args:
        on: the key columns, with the same names on both sides.
        lower: the lower bound: ms, a timedelta, or text such as `'-5 minutes'`.
        upper: the upper bound. If it is below `lower`, nothing matches.
        lower_exclusive: whether the lower end is open.
        upper_exclusive: whether the upper end is open.
        how: the rows of the result: pairs (`inner`), pairs and the unmatched rows of a side or both (`left`, `right`, `full`), left rows
            with a match (`semi`), or left rows without one (`anti`).
        residual: an extra join condition, in SQL over the names that columns have in the *result* of an inner join, e.g.
            `left_amount <= right_amount`.
        left_time: the left event time, a timestamp column.
        right_time: the right event time, a timestamp column.
        left_prefix: the prefix for the name of a left column if the right side has the name too, or it is `result_time` or `final_at`.
        right_prefix: the same for the right side.
        allowed_lateness: how far behind the watermark a row may be and still join as a row that is on time.
        late_rows: `drop` leaves late rows out of the results. `join` joins a late row with each row that could still be matched at W, the
            watermark before the late row's batch less `allowed_lateness`: a row whose `final_at`, if unmatched, is above W. If both rows
            are late and have the same W, one of them must be such a row. A late row without a match is an unmatched row. No row is
            counted as late. The next step recomputes the results from its oldest to its newest late row.
        early: when `early/<asset>` shows pairs that are not final: by `EveryStep` or `EveryInterval`; None for never. For `semi` it shows
            the left rows with a match so far, by `EveryStep`. Unmatched rows are not shown, so `anti` takes None. It changes no result.
        result_time: the event time of the results for their readers: the `later` time as above, or the time of the `left` or the `right`
            row, if every result has it. With `left` or `right`, the readers' watermark is lower by as much as the other row can be later.
        time_buckets: whether rows of a key are compared only within time buckets, which are four times as long as the interval.
            Without buckets, the cost of a key grows with the square of its rows. With them, `full` joins twice. The engine chooses
            buckets for large steps with very many rows of one key. The results do not depend on this parameter.

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
    allowed_lateness: Duration = 0
    late_rows: LateRows = "drop"
    early: Trigger | None = field(default=None, metadata={ASIDE: True})
    result_time: ResultTime = "later"
    time_buckets: bool = field(default=False, metadata={ASIDE: True})

    def __post_init__(self) -> None:
        check_parameters(self)
        _ = self.names, self.interval, self.lateness

    @cached_property
    def names(self) -> JoinColumns:
        """The names of the result; for `semi` and `anti`, of the pairs."""
        return JoinColumns.read(self.on, self.left_prefix, self.right_prefix, (RESULT_TIME, FINAL_AT))

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`)."""
        columns = self.names.result_columns(*inputs)
        check_deterministic("residual", self.residual or "", columns)
        if self._has_left_rows_only:
            columns = (*map(self.names.left_only_name, inputs[0]), RESULT_TIME, FINAL_AT)
            check_distinct(columns, "choose another `left_prefix`, or rename the input columns")
        check_distinct([*columns, *shown_columns(self.early)])
        return columns

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.names.key

    @cached_property
    def interval(self) -> Interval:
        """The bounds, both ends included, in ms."""
        return Interval.between(self.lower, self.upper, lower_exclusive=self.lower_exclusive, upper_exclusive=self.upper_exclusive)

    @cached_property
    def lateness(self) -> Lateness:
        """The allowed lateness."""
        return Lateness.read(self.allowed_lateness)

    @property
    def _has_left_rows_only(self) -> bool:
        """Whether the result has only left rows."""
        return self.how in ("semi", "anti")

    @property
    def inputs(self) -> tuple[str, str]:
        """The names of the inputs."""
        return ("left", "right")

    @property
    def emits(self) -> Append:
        """Results are added when they are final; rows that arrive behind closed results correct them."""
        return Append()

    @property
    def reads(self) -> ByTimeRange:
        """Closed ranges. To know whether a row is unmatched, or which pair is its earliest, a step reads all of its possible matches."""
        interval, mirrored = self.interval, self.interval.mirrored
        left_ms = max(interval.forward, interval.backward - mirrored.lower if self.keeps_unmatched(1) else 0)
        right_ms = max(interval.backward, interval.forward - interval.lower if self.keeps_unmatched(0) or self._has_left_rows_only else 0)
        joins_late = self.late_rows == "join"
        lateness = FOREVER if joins_late else self.lateness.ms
        delay = 1 + {"later": 0, "left": interval.forward, "right": interval.backward}[self.result_time]
        return ByTimeRange(lookback=(left_ms, right_ms), watermark_delay=delay, with_watermark=joins_late, lateness=lateness)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """`event_time + allowed_lateness < watermark`, as in Flink's DataStream join; always false if late rows are joined."""
        is_late = millis(event_time) < millis(watermark) - self.lateness.ms if self.lateness else event_time < watermark
        return F.lit(False) if self.late_rows == "join" else F.coalesce(is_late, F.lit(False))

    def late_before(self, watermark: int) -> int:
        """The watermark less the allowed lateness; no row is late if late rows are joined (see `BoundsLateness`)."""
        return NEVER_LATE if self.late_rows == "join" else watermark - self.lateness.ms

    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        """When a row is final: at its `final_at` if unmatched. No pair of the row has a later `final_at` (see `ReportsFinality`)."""
        return finality(frames, (self.left_time, self.right_time), self.finalized_at_if_unmatched)

    def finalized_by_time(self, which: int, event_time: Column) -> Column:
        """The `final_at` of the row if unmatched (see `FinalizesByTime`)."""
        return self.finalized_at_if_unmatched(which, event_time)

    def matches(self, *frames: DataFrame) -> DataFrame:
        """Which rows are in a pair (see `ReportsMatches`)."""
        rows = with_ids(frames)
        finalized = finality(rows, (self.left_time, self.right_time), self.finalized_at_if_unmatched, ROW_ID)
        return with_matched(finalized, ids_in_pairs(replace(self, how="inner", early=None)(*rows), self.names.traced_names(ROW_ID)))

    def keeps_unmatched(self, which: int) -> bool:
        """Whether the result keeps unmatched rows of the left (0) or right (1) side."""
        return self.how in (("left", "full", "anti"), ("right", "full"))[which]

    def finalized_at_if_unmatched(self, which: int, event_time: Column) -> Column:
        """The `final_at` of an unmatched row."""
        return timestamp(millis(event_time) + (self.interval.forward, self.interval.backward)[which] + 1)

    def traced(self, column: str) -> tuple[str, str | None]:
        """The result's names of a column that both sides have; a result of `semi` or `anti` has no right row."""
        return (self.names.left_only_name(column), None) if self._has_left_rows_only else self.names.traced_names(column)

    @property
    def bucket_ms(self) -> int:
        """The length of a time bucket, in ms (see `SplitsKeys`)."""
        return bucket_ms(self.interval)

    def in_time_buckets(self) -> "IntervalJoin":
        """The same join with `time_buckets` (see `SplitsKeys`)."""
        return replace(self, time_buckets=True)

    @property
    def pairs(self) -> "IntervalJoin":
        """The inner join, whose results are the pairs. A result of `semi` or `anti` has no right row (see `FindsPairs`)."""
        return replace(self, how="inner", early=None)

    def so_far(self, *frames: DataFrame) -> DataFrame:
        """The pairs so far, or for `semi` the left rows with a match. `rows_seen` is the number of rows in a result (see `Early`)."""
        so_far, row_count = (replace(self, early=None), 1) if self._has_left_rows_only else (self.pairs, 2)
        return so_far(*frames).withColumn(ROWS_SEEN, F.lit(row_count).cast("bigint"))

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Join two frames.

        Args:
            frames: the left and the right frame, both static (then the result is complete) or both streaming.

        Returns:
            The key columns, the left columns, the right columns (a name that both sides have gets its side's prefix), `result_time` and
            `final_at` (timestamp). `semi` and `anti` return the left columns only, with their own names.
        """
        left, right = map(drop_engine_columns, frames)
        self._check(left, right)
        batch_only = {"allowed_lateness": self.lateness.ms, "late_rows": self.late_rows == "join" and "join"}
        batch_only |= {"early": self.early, "time_buckets": self.time_buckets}
        streams = spark_streaming.check_join(left, right, self.left_time, self.right_time, self.how, **batch_only)
        names, bounds = self.names, spark_streaming.time_bounds if streams else None
        times = F.col(names.joined_name(self.left_time, right, 0)), F.col(names.joined_name(self.right_time, left, 1))
        sides, matches = (self._side(frames[0], right, 0), self._side(frames[1], left, 1)), self._is_match(*times, bounds)
        if self._has_left_rows_only:
            left_rows = (self._matched_left_rows if self.how == "semi" else self._unmatched_left_rows)(*sides, matches)
            columns = [F.col(quoted_name(names.joined_name(c, right, 0))).alias(names.left_only_name(c)) for c in left.columns]
            return left_rows.select(*columns, *result_times(F.col(_LAST_MS), _TIMES.get(self.result_time)))
        joined = self._join(*sides, matches, self.how)
        return self._results(joined, left, right)

    def as_query(self, *frames: DataFrame) -> DataFrame:
        """The join of streams of the engine (see `RunsAsQuery`)."""
        left, right = map(drop_engine_columns, frames)
        sides, times = engine_streams.add_doubled_times(
            (self._side(frames[0], right, 0), _LEFT_MS), (self._side(frames[1], left, 1), _RIGHT_MS)
        )
        joined = sides[0].join(sides[1], self._is_match(times[0], times[1], engine_streams.time_bounds), self.how)
        return self._results(joined, left, right)

    def _check(self, left: DataFrame, right: DataFrame) -> None:
        self.names.check(left, right)
        check_time(left, self.left_time, "left_time")
        check_time(right, self.right_time, "right_time")
        self.result_columns(left.columns, right.columns)

    def _side(self, frame: DataFrame, opposite: DataFrame, index: int) -> DataFrame:
        """One side's rows, with the names of the join. The event time is not copied: Spark refuses two columns with a watermark."""
        event_time, rows = millis(F.col((self.left_time, self.right_time)[index])), drop_engine_columns(frame)
        added = {(_HAS_LEFT, _HAS_RIGHT)[index]: F.lit(True), (_LEFT_MS, _RIGHT_MS)[index]: event_time}
        if self.late_rows == "join":
            added[(_LEFT_WATERMARK, _RIGHT_WATERMARK)[index]] = watermark_if_late(frame, event_time, self.lateness)
        if self.how == "semi" and index == 0:  # key and number identify a row; equal rows are interchangeable
            added[_NUMBER] = F.row_number().over(Window.partitionBy(*self.key).orderBy(*tie_breakers(rows)))
        return frame.select(*self.names.side_columns(rows.columns, opposite, index), *[value.alias(name) for name, value in added.items()])

    def _matched_left_rows(self, left: DataFrame, right: DataFrame, matches: Column) -> DataFrame:
        """The left rows with a match, each with the result time of its earliest pair, in epoch ms."""
        last_time, row = self._last_time(), F.struct(*quoted(left.columns))
        pairs = self._join(left, right, matches, "inner").groupBy(*self.key, _NUMBER)
        return pairs.agg(F.min(last_time).alias(_LAST_MS), F.min_by(row, last_time).alias(_ROW)).select(_LAST_MS, f"{_ROW}.*")

    def _unmatched_left_rows(self, left: DataFrame, right: DataFrame, matches: Column) -> DataFrame:
        """The left rows without a match, with their result time, in epoch ms."""
        return self._join(left, right, matches, "left_anti").withColumn(_LAST_MS, F.col(_LEFT_MS) + self.interval.forward)

    def _join(self, left: DataFrame, right: DataFrame, matches: Column, how: str) -> DataFrame:
        """The pairs, and the unmatched rows that `how` keeps. With `time_buckets`, rows are compared only within time buckets."""
        join_in_buckets = BucketedJoin(self.interval, (F.col(_LEFT_MS), F.col(_RIGHT_MS)), matches)
        return join_in_buckets(left, right, how) if self.time_buckets else left.join(right, matches, how)

    def _is_match(self, left_time: Column, right_time: Column, bounds: Callable[[Column, Column, Interval], Column] | None) -> Column:
        left_ms, right_ms = F.col(_LEFT_MS), F.col(_RIGHT_MS)
        is_within = (right_ms >= left_ms + self.interval.lower) & (right_ms <= left_ms + self.interval.upper)
        if self.late_rows == "join":
            is_within &= are_joined(left_ms, right_ms, F.col(_LEFT_WATERMARK), F.col(_RIGHT_WATERMARK), self.interval)
        condition, times = (self.names.key_pairs(), is_within, self.residual), (left_time, right_time)
        return streaming_condition(*condition, times, bounds(*times, self.interval)) if bounds else static_condition(*condition)

    def _results(self, joined: DataFrame, left: DataFrame, right: DataFrame) -> DataFrame:
        times = result_times(self._last_time(), _TIMES.get(self.result_time))
        return joined.select(*self.names.key_columns(), *quoted(self.names.payload(left, right)), *times)

    def _last_time(self) -> Column:
        """The time up to which a pair or an unmatched row waits for rows, in epoch ms."""
        left, right = F.col(_LEFT_MS), F.col(_RIGHT_MS)
        unmatched = F.when(F.col(_HAS_RIGHT).isNull(), left + self.interval.forward)
        return unmatched.when(F.col(_HAS_LEFT).isNull(), right + self.interval.backward).otherwise(F.greatest(left, right))
