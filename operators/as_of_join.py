"""The as-of join: each left row with the version of its key that was valid at the row's time, or newest when the row was ingested."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators._support.join_columns import JoinColumns
from operators._support.lateness import Lateness
from operators._support.matched_rows import ROW_ID, finality, ids_in_pairs, with_ids, with_matched
from operators.changelog import DELETE, INSERT, UPDATE_AFTER
from operators.columns import FINAL_AT, RESULT_TIME, check_present, check_time, quoted, quoted_name, temporary
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ, tie_breakers
from operators.errors import ColumnError, OperatorError, StreamingError
from operators.parameters import check_column
from operators.steps import Append, ByTimeRange
from operators.timing import Duration, bounded_length_ms, millis, timestamp

How = Literal["inner", "left"]
AsOf = Literal["event_time", "arrival"]
_POSITION, _IS_LEFT, _VERSION = temporary("at"), temporary("is_left"), temporary("version")
_TIES, _IS_END, _FROM_NEWEST = temporary("ties"), temporary("ends"), temporary("from_newest")


@dataclass(frozen=True, kw_only=True)
class AsOfJoin:
    """Each left row joined with one version: the newest right row of its key with `right time <= left time`.

    This is Flink's event-time temporal join (`FOR SYSTEM_TIME AS OF`), for example of orders with the price of each order's product at
    the time of the order. Each right row is a version of its key. A version is valid from its time until the time of the next version. Of
    versions with one time, the one that arrived last is valid (by `seq` and `arrival`; a frame without these is ordered by its other
    columns that Spark can order, nulls first). Time has a resolution of 1 ms, and finer times are floored. Null keys and null times match
    nothing.

    With `change`, each right row has a change kind in Flink's terms: `+I` and `+U` are versions, and a `-D` ends the version before it,
    so that nothing is valid until the next `+I` or `+U`. Rows with another kind are ignored: a `-U` says only that a `+U` follows.

    A left row without a valid version is left out (`inner`) or kept once, with nulls in the right columns (`left`). So each left row gives
    at most one result. `result_time` is the left row's time, and `final_at` is 1 ms later: until then a version of the same millisecond may
    arrive. In the engine a row of either side is late if `event_time + allowed_lateness < watermark`; a late left row is not in the result,
    and a late version is not used. A row that arrives behind closed results and is not late corrects them: a left row adds its result, and
    a version changes the results of the left rows for which it is the newest version. The page `docs/explanation/flink.md` lists the
    differences from Flink.

    With `max_age`, a step reads the versions that may still be valid. Without it, over a source, the engine keeps the newest old version
    of each key beside the table, and a step reads these and the later versions; over a table, a step reads all versions.

    With `as_of="arrival"` the join is Flink's lookup join (`FOR SYSTEM_TIME AS OF PROCTIME()`), in a form that can be repeated: each left
    row is joined with the version of its key that had arrived last when the left row's batch was ingested, by the order of the batches
    (`right seq <= left seq`, so a version of the same batch counts). The event time of a version has no meaning, no version is late,
    and the watermark is that of the left side. A backfill gives the same rows, because the log has each row's batch; the same rows in
    other batches give other results. Both inputs must be sources.

    Args:
        on: the key columns, with the same names on both sides.
        how: which left rows are kept: those with a valid version (`inner`), or all (`left`).
        as_of: what decides which version is valid: the `event_time` of the left row, or the `arrival` of its batch.
        change: the right column with a row's change kind; the result does not have it. None if every right row is a version.
        max_age: how long before the left row's time the version's time may be (`left time - max_age <= right time`). An older version
            is not valid. None for no limit. Not available with `as_of="arrival"`.
        left_time: the left event time, a timestamp column.
        right_time: the right event time, a timestamp column.
        left_prefix: added to the name of a left column that the right side has too, or that is `result_time` or `final_at`.
        right_prefix: the same for the right side.
        allowed_lateness: how long, in the watermark's time, a row behind closed results may still correct them. Not available with
            `as_of="arrival"`.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> AsOfJoin(on="product", how="left", max_age="7 days").reads.lookback
    (0, 604800000)
    """

    on: str | Sequence[str]
    how: How = "inner"
    as_of: AsOf = "event_time"
    change: str | None = None
    max_age: Duration | None = None
    left_time: str = EVENT_TIME
    right_time: str = EVENT_TIME
    left_prefix: str = "left_"
    right_prefix: str = "right_"
    allowed_lateness: Duration = 0

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            legal = f"{', '.join(get_args(How))}; a version that no row uses is no result, so there is no outer kind for the right side"
            raise OperatorError.bad_value("how", self.how, legal)
        check_column("change", self.change, is_optional=True)
        check_column("left_time", self.left_time)
        check_column("right_time", self.right_time)
        if self.as_of not in get_args(AsOf):
            raise OperatorError.bad_value("as_of", self.as_of, ", ".join(get_args(AsOf)))
        if self.max_age is not None and self.as_of == "arrival":
            legal = "None with `as_of='arrival'`: versions that are found by arrival have no age; use `as_of='event_time'`"
            raise OperatorError.bad_value("max_age", self.max_age, legal)
        if self.change is not None and self.change.lower() in map(str.lower, (*self.names.key, self.right_time)):
            raise OperatorError.bad_value("change", self.change, "a right column that is neither in `on` nor the `right_time`")
        if self.lateness and self.as_of == "arrival":
            legal = "zero with `as_of='arrival'`: the event times of versions have no meaning; use `as_of='event_time'`"
            raise OperatorError.bad_value("allowed_lateness", self.allowed_lateness, legal)
        _ = self.names, self.longest_age

    @cached_property
    def names(self) -> JoinColumns:
        """The names of the result."""
        return JoinColumns.read(self.on, self.left_prefix, self.right_prefix, (RESULT_TIME, FINAL_AT))

    @cached_property
    def longest_age(self) -> int | None:
        """`max_age` in ms."""
        return None if self.max_age is None else bounded_length_ms(self.max_age, "max_age")

    @cached_property
    def lateness(self) -> Lateness:
        """The allowed lateness."""
        return Lateness.read(self.allowed_lateness)

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`)."""
        left, right = inputs
        return self.names.result_columns(left, [c for c in right if c != self.change])

    @property
    def inputs(self) -> tuple[str, str]:
        """The names of the inputs."""
        return ("left", "right")

    @property
    def emits(self) -> Append:
        """Results are added when they are final; rows that arrive behind closed results, within the lateness, correct them."""
        return Append()

    @property
    def reads(self) -> ByTimeRange:
        """Closed ranges, with the versions that may be valid in the range: those up to `max_age` before it, or all."""
        by_arrival = (1,) if self.as_of == "arrival" else ()
        lookback, lateness = (0, self.longest_age), self.lateness.ms
        return ByTimeRange(lookback=lookback, watermark_delay=1, lateness=lateness, versions=(1,), by_arrival=by_arrival)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """`event_time + allowed_lateness < watermark`, as for the interval join."""
        is_late = millis(event_time) < millis(watermark) - self.lateness.ms if self.lateness else event_time < watermark
        return F.coalesce(is_late, F.lit(False))

    def late_before(self, watermark: int) -> int:
        """The watermark less the allowed lateness (see `BoundsLateness`)."""
        return watermark - self.lateness.ms

    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        """When a left row's result is final, and when a version can be looked up: 1 ms after the row's time (see `ReportsFinality`)."""
        return finality(frames, (self.left_time, self.right_time), self.finalized_at_if_unmatched)

    def finalized_by_time(self, which: int, event_time: Column) -> Column:
        """The `final_at` of the row if unmatched (see `FinalizesByTime`)."""
        return self.finalized_at_if_unmatched(which, event_time)

    def matches(self, *frames: DataFrame) -> DataFrame:
        """Which left rows have a valid version, and which versions a left row uses (see `ReportsMatches`)."""
        rows = with_ids(frames)
        finalized = finality(rows, (self.left_time, self.right_time), self.finalized_at_if_unmatched, ROW_ID)
        return with_matched(finalized, ids_in_pairs(replace(self, how="inner")(*rows), self.names.traced_names(ROW_ID)))

    def keeps_unmatched(self, which: int) -> bool:
        """Whether the result keeps unmatched rows: of the left side (0) if `how` is `left`."""
        return self.how == "left" and which == 0

    def finalized_at_if_unmatched(self, which: int, event_time: Column) -> Column:
        """The `final_at` of an unmatched row: 1 ms after its time."""
        return timestamp(millis(event_time) + 1)

    def newest_versions(self, rows: DataFrame) -> DataFrame:
        """The newest version of each key; none of a key that was deleted (see `KeepsVersions`)."""
        versions = self._versions(rows)
        newest_first = Window.partitionBy(*self.names.key).orderBy(
            self._position(1).desc(), *[c.desc_nulls_last() for c in tie_breakers(versions)]
        )
        newest = versions.withColumn(_FROM_NEWEST, F.row_number().over(newest_first)).where(F.col(_FROM_NEWEST) == 1).drop(_FROM_NEWEST)
        return newest if self.change is None else newest.where(F.col(self.change) != DELETE)

    def traced(self, column: str) -> tuple[str, str]:
        """The result's names of a column that both sides have."""
        return self.names.traced_names(column)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Join two frames.

        Args:
            frames: the left frame and the frame of versions, both static.

        Returns:
            The key columns, the left columns, the right columns without `change` (a name that both sides have gets its side's prefix),
            `result_time` and `final_at` (timestamp).
        """
        left, right = frames
        self._check(left, right)
        versions, right_without_change = self._versions(right), right.drop(self.change) if self.change else right
        rows_with_version = (
            self._rows_of_both_sides(left, versions, right_without_change).withColumn(_VERSION, self._last_version()).where(_IS_LEFT)
        )
        is_valid = self._is_valid()
        version_values = [
            F.when(is_valid, F.col(_VERSION)[name]).alias(name) for name in self.names.payload_of(right_without_change, left, 1)
        ]
        left_ms = millis(F.col(self.names.joined_name(self.left_time, right_without_change, 0)))
        result_times = [timestamp(left_ms).alias(RESULT_TIME), timestamp(left_ms + 1).alias(FINAL_AT)]
        rows = rows_with_version.where(is_valid) if self.how == "inner" else rows_with_version
        left_columns = quoted([*self.names.key, *self.names.payload_of(left, right_without_change, 0)])
        return rows.select(*left_columns, *version_values, *result_times)

    def _check(self, left: DataFrame, right: DataFrame) -> None:
        if self.change is not None:
            check_present(right, [self.change], "change")
        self.names.check(left, right.drop(self.change) if self.change else right)
        check_time(left, self.left_time, "left_time")
        if self.as_of == "event_time":
            check_time(right, self.right_time, "right_time")
        for frame in (left, right) if self.as_of == "arrival" else ():
            self._check_arrival(frame)
        if left.isStreaming or right.isStreaming:
            reason = "Spark has no join of a stream with the versions of another one"
            raise StreamingError.refused("AsOfJoin", reason, "let the engine run it")

    def _check_arrival(self, frame: DataFrame) -> None:
        if not {SEQ, ARRIVAL} <= {*frame.columns}:
            legal = f"event_time, for frames without the columns {SEQ!r} and {ARRIVAL!r}; the engine's sources have them"
            raise ColumnError.bad_value("as_of", self.as_of, legal)

    def _position(self, index: int) -> Column:
        """The position of a side's row among the versions: its time in ms, or its batch."""
        return F.col(SEQ).cast("bigint") if self.as_of == "arrival" else millis(F.col((self.left_time, self.right_time)[index]))

    def _versions(self, right: DataFrame) -> DataFrame:
        """The right rows that begin or end a version."""
        is_usable = self._position(1).isNotNull()
        for column in self.names.key:
            is_usable = F.col(column).isNotNull() & is_usable
        return right.where(is_usable if self.change is None else F.col(self.change).isin(INSERT, UPDATE_AFTER, DELETE) & is_usable)

    def _rows_of_both_sides(self, left: DataFrame, versions: DataFrame, right_without_change: DataFrame) -> DataFrame:
        """The rows of both sides: left rows with their names in the result, and versions as structs."""
        names = self.names
        is_end = F.lit(False) if self.change is None else F.col(self.change) == DELETE
        payload = [F.col(quoted_name(c)).alias(names.result_name(c, left, 1)) for c in right_without_change.columns if c not in names.key]
        position = self._position(1).alias(_POSITION)
        version = F.struct(F.struct(*tie_breakers(versions)).alias(_TIES), position, is_end.alias(_IS_END), *payload).alias(_VERSION)
        right_rows = versions.select(*names.key, position, F.lit(False).alias(_IS_LEFT), version)
        left_rows = left.select(
            *names.side_columns(left.columns, right_without_change, 0), self._position(0).alias(_POSITION), F.lit(True).alias(_IS_LEFT)
        )
        return left_rows.unionByName(right_rows, allowMissingColumns=True)

    def _last_version(self) -> Column:
        """The last version at or before a row. Versions of one millisecond precede its left rows."""
        by_time = Window.partitionBy(*self.names.key).orderBy(_POSITION, _IS_LEFT, f"{_VERSION}.{_TIES}")
        return F.last(_VERSION, ignorenulls=True).over(by_time.rowsBetween(Window.unboundedPreceding, Window.currentRow))

    def _is_valid(self) -> Column:
        version = F.col(_VERSION)
        is_valid = version.isNotNull() & ~version[_IS_END]
        if self.longest_age is not None:
            is_valid = is_valid & (F.col(_POSITION) - version[_POSITION] <= self.longest_age)
        return F.coalesce(is_valid, F.lit(False))
