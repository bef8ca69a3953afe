"""The aggregate without windows: one row for each key, computed from all rows of the key so far, and updated as rows are added."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructType

from operators._support.aggregate_expressions import Aggregates, unmergeable_sum
from operators._support.time_to_live import GENERATION, AfterTtl, TimeToLive
from operators.columns import are_rows_equal, check_distinct, check_present, names, quoted_name, temporary
from operators.contract import NEVER_LATE
from operators.engine_columns import ARRIVAL, PARTIAL, PERIOD_END, PERIOD_START, SEQ, drop_engine_columns
from operators.errors import StreamingError
from operators.parameters import check_columns
from operators.steps import ByKey, NewRows, Upsert
from operators.timing import Duration, TimeKind

_PREVIOUS, _VALUES, _NTH, _POSITION = (temporary(name) for name in ("previous", "values", "nth", "position"))
_IS_ONLY = temporary("is_only")


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """For each key: Spark aggregates over all of its rows so far; the result is updated as rows are added.

    The result is an upserted table with a changelog: the first row of a key inserts a result, and a later row that changes an aggregate
    updates it. Event time is not used, so no row is late. A null is an ordinary key.

    `seq` and `arrival` of a result are those of the row that last changed one of its values. A Top-N of the results can therefore order
    ties by when each result took its value. A row that changes no value (a smaller value, for a maximum) does not change `seq` and
    `arrival`. If an aggregate cannot be merged, they are those of the newest row of the key.

    An aggregate is refused if its value depends on the order in which Spark reads rows (`first`, `last`, `any_value`, an unsorted
    `collect_list`, `percentile_approx`), on random numbers, files, the session or the clock. `min_by(v, struct(seq, arrival))` is the
    value that arrived first. Sums, averages and statistics of doubles are computed as in `WindowedAggregate`. An aggregate that is only a
    `sum` of doubles is refused, because a rounded sum cannot be merged: sum decimals, or write a longer expression, such as
    `round(sum(v), 4)`.

    With `ttl`, a key expires if it gets no new row for longer than `ttl`: when it gets a row again, its older rows no longer count. The
    result of an expired key stays until the key's next row, or with `after_ttl="retract"` the engine removes it with the first step after
    the expiry.

    The semantics are those of Flink SQL's `GROUP BY` on a stream, and of its `table.exec.state.ttl`. A step reads its new rows and the
    results of their keys, if every aggregate is a single call of `count`, `sum`, `min`, `max`, `bool_and`, `bool_or`, `bit_and`,
    `bit_or` or `bit_xor`. With any other aggregate it reads every row of the keys of its new rows.

    With `ttl`, over a source, the engine keeps the result of each key beside the table (with any other aggregate, the rows of the key)
    until no new row can be within `ttl` of the kept rows. A step reads its new rows, and the kept results or rows of their keys. If a new
    row is more than `ttl` behind the watermark, the step reads the log. Over a table of final results, a step reads every row of the keys
    of its new rows.

    Args:
        by: the key columns, at least one.
        aggregates: the result's columns, as SQL: `{"orders": "count(*)", "revenue": "sum(price * quantity)"}`.
        ttl: how long the rows of a key count after its newest row; None for no limit.
        ttl_by: whether `ttl` is `event` time, by the watermark, or `processing` time, by the ledger's clock.
        after_ttl: whether to `keep` or to `retract` the result of an expired key.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> Aggregate(by="seller_id", aggregates={"revenue": "sum(price)"}).emits.key
    ('seller_id',)
    """

    by: str | Sequence[str]
    aggregates: Mapping[str, str]
    ttl: Duration | None = None
    ttl_by: TimeKind = "event"
    after_ttl: AfterTtl = "keep"

    def __post_init__(self) -> None:
        check_columns("by", self.by, why_needed="for a total of all rows, use a column with one value in all rows")
        _ = self._aggregates, self._ttl
        check_distinct([*self.key, *self.aggregates, SEQ, ARRIVAL])

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return names(self.by)

    @cached_property
    def _ttl(self) -> TimeToLive | None:
        return TimeToLive.read(self.ttl, self.ttl_by, self.after_ttl, key=self.key)

    @cached_property
    def _aggregates(self) -> Aggregates:
        return Aggregates.read(self.aggregates)

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("rows",)

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`)."""
        return (*self.key, *self.aggregates, *([SEQ, ARRIVAL] if {SEQ, ARRIVAL} <= {*inputs[0]} else []))

    @property
    def emits(self) -> Upsert:
        """One row of each key."""
        return Upsert(self.key)

    @property
    def reads(self) -> NewRows | ByKey:
        """The rows of new batches, which are merged into the results; or all rows of the keys of new rows."""
        if self._ttl:
            return self._ttl.reads(self.key)
        return NewRows() if self._aggregates.are_mergeable else ByKey(self.key)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """No row is late."""
        return F.lit(False)

    def late_before(self, watermark: int) -> int:
        """No row is late (see `BoundsLateness`)."""
        return NEVER_LATE

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Aggregate a frame.

        Args:
            frames: the rows, static.

        Returns:
            The key columns, the aggregates with their own types, and `seq` and `arrival` (bigint) if the rows have them.
        """
        [rows] = frames
        self._check(rows)
        if self._ttl:
            return self._aggregate_all(self._ttl.current_rows(self.key, rows))
        if _has_positions(rows) and not self._takes_newest_position:
            return self._merge_by_arrival(self._results_of_single_rows(rows))
        return self._aggregate_by_key(
            rows, self._aggregates.plain_columns() if self._aggregates.are_mergeable else self._aggregates.columns(rows)
        )

    def fold(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        """The results of the keys of new rows, from the results so far and the new rows."""
        [rows] = frames
        self._check(rows)
        if _has_positions(rows) and not self._takes_newest_position:
            return self._merge_by_arrival(current.unionByName(self._results_of_single_rows(rows)))
        partial = self._check_sums(current.unionByName(self(rows)))
        return self._aggregate_by_key(partial, self._aggregates.restore_types(self._aggregates.merge_columns(partial), partial.schema))

    def still_needed(self, rows: DataFrame, oldest: int | None) -> DataFrame:
        """With `ttl`, the rows of each key's periods, or one row with their result (see `KeepsRows`).

        If a late row joined two periods, their results could not be merged, because the position of a result depends on the order of all
        rows. So the rows of a key are replaced by one row only while all of them are of one period. Otherwise they stay.
        """
        if self._ttl is None:
            return rows
        needed_rows = self._ttl.needed_rows(self.key, rows, oldest)
        if not self._aggregates.are_mergeable:
            return needed_rows.drop(GENERATION)
        by_key = Window.partitionBy(*self.key)
        marked = needed_rows.withColumn(_IS_ONLY, F.min(GENERATION).over(by_key) == F.max(GENERATION).over(by_key)).drop(GENERATION)
        rows_of_one_period = marked.where(_IS_ONLY).drop(_IS_ONLY)
        return marked.where(~F.col(_IS_ONLY)).drop(_IS_ONLY).unionByName(self._as_one_row(rows_of_one_period), allowMissingColumns=True)

    def check_types(self, rows: StructType) -> None:
        """Raise `OperatorError` if columns of these types certainly cannot be aggregated; it needs no Spark session."""
        self._aggregates.check_merged_sums(rows)

    def why_never_moves_back(self, column: str, never_negative: Collection[str], *, is_descending: bool, nulls_first: bool) -> str:
        """Why further rows never move a key's value back in an order; empty if they might, or if the column is not an aggregate.

        Args:
            column: a column of the result.
            never_negative: columns of the input, in lower case, whose values are not negative.
            is_descending: whether large values come first.
            nulls_first: whether null comes before all values.

        >>> Aggregate(by="k", aggregates={"n": "count(*)"}).why_never_moves_back("n", (), is_descending=True, nulls_first=False)
        'count(*) never falls'
        """
        expression = None if self._ttl else self._aggregates.expressions.get(column)  # the older rows of an expired key no longer count
        return (
            ""
            if expression is None
            else expression.why_never_moves_back(never_negative, is_descending=is_descending, nulls_first=nulls_first)
        )

    def always_changes_one_of(self, columns: Sequence[str]) -> bool:
        """Whether each change of a result changes at least one of the given columns."""
        return self._aggregates.always_changes_one_of(columns)

    def _as_one_row(self, rows: DataFrame) -> DataFrame:
        """One row of each key: its result so far, in `PARTIAL`, and the period of its rows."""
        results = self._aggregate_all(rows.drop(PERIOD_START, PERIOD_END)).alias("r")
        periods = rows.groupBy(*self.key).agg(F.min(PERIOD_START).alias(PERIOD_START), F.max(PERIOD_END).alias(PERIOD_END)).alias("p")
        joined = results.join(periods, are_rows_equal("r", "p", self.key))
        partial = F.struct(*[F.col(f"r.{quoted_name(name)}").alias(name) for name in self.aggregates]).alias(PARTIAL)
        return joined.select(*[f"r.{quoted_name(c)}" for c in (*self.key, SEQ, ARRIVAL)], PERIOD_START, PERIOD_END, partial)

    def _aggregate_all(self, rows: DataFrame) -> DataFrame:
        """The results of all rows, without regard to the TTL. A row with `PARTIAL` is itself the result of earlier rows."""
        without_ttl = replace(self, ttl=None, ttl_by="event", after_ttl="keep")
        if PARTIAL not in rows.columns:
            return without_ttl(rows)
        partial = rows.where(F.col(PARTIAL).isNotNull()).select(*self.key, f"{PARTIAL}.*", SEQ, ARRIVAL)
        return without_ttl.fold(partial, rows.where(F.col(PARTIAL).isNull()).drop(PARTIAL))

    @property
    def _takes_newest_position(self) -> bool:
        """Whether `seq` and `arrival` of a result are those of the newest row of its key."""
        return not self._aggregates.are_mergeable or self._aggregates.change_with_every_row

    def _aggregate_by_key(self, rows: DataFrame, values: Sequence[Column]) -> DataFrame:
        """One row of each key, with the newest `seq` and `arrival` if the rows have them."""
        position = [F.max(F.struct(SEQ, ARRIVAL)).alias(_POSITION)] if _has_positions(rows) else []
        results = rows.groupBy(*self.key).agg(*values, *position)
        return self._check_sums(results.select(*self.key, *self.aggregates, *([f"{_POSITION}.*"] if position else [])))

    def _results_of_single_rows(self, rows: DataFrame) -> DataFrame:
        """The result of each row as the only one of its key."""
        single_row = Window.partitionBy(*self.key).orderBy(SEQ, ARRIVAL).rowsBetween(Window.currentRow, Window.currentRow)
        values = [F.expr(sql).over(single_row).alias(name) for name, sql in self.aggregates.items()]
        return rows.select(*self.key, *values, SEQ, ARRIVAL)

    def _merge_by_arrival(self, partial: DataFrame) -> DataFrame:
        """Merge partial results in the order of arrival: the last values, and the position of the row that last changed one of them."""
        by_arrival = Window.partitionBy(*self.key).orderBy(SEQ, ARRIVAL)
        until_now = by_arrival.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        values = self._aggregates.restore_types(
            [value.over(until_now) for value in self._aggregates.merge_columns(self._check_sums(partial))], partial.schema
        )
        running_results = partial.select(*self.key, *values, SEQ, ARRIVAL).withColumn(_VALUES, F.struct(*self.aggregates))
        results_with_previous = running_results.withColumns(
            {_PREVIOUS: F.lag(_VALUES).over(by_arrival), _NTH: F.row_number().over(by_arrival)}
        )
        is_change = (F.col(_NTH) == 1) | ~F.col(_VALUES).eqNullSafe(F.col(_PREVIOUS))
        last_values = [F.max_by(name, F.struct(SEQ, ARRIVAL)).alias(name) for name in self.aggregates]
        position = F.max(F.when(is_change, F.struct(SEQ, ARRIVAL))).alias(_POSITION)
        return self._check_sums(
            results_with_previous.groupBy(*self.key).agg(*last_values, position).select(*self.key, *self.aggregates, f"{_POSITION}.*")
        )

    def _check_sums(self, results: DataFrame) -> DataFrame:
        """The results unchanged; raises `OperatorError` if a sum of floats depends on the order of its rows."""
        for name, expression in self._aggregates.expressions.items():
            if expression.merge_function == "sum" and isinstance(results.schema[name].dataType, DoubleType | FloatType):
                raise unmergeable_sum(expression.sql)
        return results

    def _check(self, rows: DataFrame) -> None:
        if rows.isStreaming:
            reason = "Spark would keep the state of every key forever"
            raise StreamingError.refused("Aggregate", reason, "let the engine run it, or give `WindowedAggregate` a window")
        check_present(drop_engine_columns(rows), self.key, "by")
        self._aggregates.check_bare_names(rows.columns)
        if self._ttl:
            self._ttl.check(drop_engine_columns(rows))


def _has_positions(rows: DataFrame) -> bool:
    return {SEQ, ARRIVAL} <= {*rows.columns}
