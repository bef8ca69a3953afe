"""The windowed aggregate: one row for each key and window, of all rows in the window."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators._support import engine_streams, spark_streaming
from operators._support.aggregate_expressions import Aggregates
from operators._support.firings import FIRED_AT, FIRING, Purging, assign_firings, check_purging, firing_times
from operators._support.panes import CLOSED, PANE, WINDOW, assign_panes, expand_to_windows
from operators._support.window_assignment import assign_windows, times_of_end, window_bounds, window_times
from operators._support.windowed_operator import WindowedOperator
from operators.columns import FINAL_AT, RESULT_TIME, check_distinct, check_present, check_time, names, quoted_name, temporary
from operators.contract import ASIDE
from operators.engine_columns import EVENT_TIME, drop_engine_columns
from operators.errors import OperatorError, StreamingError
from operators.evictors import Evictor, check_evictor
from operators.parameters import check_column, check_columns
from operators.timing import Duration
from operators.triggers import ROWS_SEEN, Trigger
from operators.windows import END, Aligned, AnyWindow, Session, Tumbling

GROUPING_ID = "grouping_id"
"""The column of a result that says which grouping set it belongs to."""
_ROW_COUNT, _END = temporary("rows_seen"), temporary("end")


@dataclass(frozen=True, kw_only=True)
class WindowedAggregate(WindowedOperator):
    """For each key and each window with a row of the key: Spark aggregates over the rows with `start <= time < end`.

    A window's result is added when the watermark reaches its last millisecond, `result_time = final_at = end - 1 ms`; a session's
    `final_at` is its `end`. In the engine a row counts in each of its windows that was open when the row's batch arrived:
    `end - 1 ms + allowed lateness > watermark`. A row is late if all of its windows were closed. A row that arrives after its window's
    result corrects it. A null key is an ordinary key. A row with a null time is in no window.

    The semantics are those of Flink's `keyBy().window().aggregate()`, and of the windowing table functions of its SQL. Streaming frames
    are aggregated by Spark's own streaming aggregation, and refused if its result would be wrong.

    If windows overlap and every aggregate is a single call of `count`, `sum`, `min`, `max`, `bool_and`, `bool_or`, `bit_and`, `bit_or`
    or `bit_xor`, rows are aggregated by pane and panes are merged into windows. With any other aggregate, each row is aggregated once
    for each of its windows.

    An aggregate is refused if its value depends on the order in which Spark reads rows (`first`, `last`, `any_value`, an unsorted
    `collect_list`, `percentile_approx`), on random numbers, files, the session or the clock. `min_by(v, struct(event_time, seq, arrival))`
    is the first row's value.

    Results are computed again and compared, so static frames give the same value in whatever order Spark reads rows:

    - `sum` and `avg` of doubles are those of the exact sum, rounded once (over overlapping windows: of the sums of their panes). The
      absolute value of a finite double must be below 2e37, and its bits below 2e-47 are cut off.
    - `stddev`, `variance`, `skewness`, `kurtosis`, `corr`, `covar_*` and `regr_*` are computed from the sorted values, which must fit
      into a task's memory for each key and window.
    - Of rows that are equal in the order of `min_by` or `max_by`, the one with the smallest or the largest value is chosen. `mode` gives
      the smallest of the most frequent values.

    Args:
        by: the key columns; empty for one row for each window.
        window: the windows.
        aggregates: the result's columns, as SQL: `{"clicks": "count(*)", "spent": "sum(price * quantity)"}`.
        time: the event time, a timestamp column.
        allowed_lateness: how far past a window's end the watermark may be for a row to still correct the window's results.
        evictor: which rows of a window count; None for all of them.
        early: when a window that is still open shows an early result, in `early/<asset>`; None for never. The results do not depend on
            it.
        grouping_sets: lists of key columns, as in SQL's GROUPING SETS. Each list gives the results of an aggregate whose key is the list;
            the other key columns are null in them. `grouping_id` (bigint) says to which list a result belongs: it has one bit for each
            key column, the highest for the first column. The bit is 1 if the column is left out. Not for sessions, nor with early results.
        purging: when a window emits the result of the rows since its last firing and clears these rows: after every `n` rows
            (`EveryRows(n)`) or at every multiple of an interval of event time (`EveryInterval`), and at the window's end; None for one
            result of all rows. Not for sessions. See [purging](windows.md#purging).

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> WindowedAggregate(by="item_id", window=Tumbling(size="10 s"), aggregates={"clicks": "count(*)"}).reads.lookback
    (10000,)
    """

    by: str | Sequence[str] = ()
    window: AnyWindow
    aggregates: Mapping[str, str]
    time: str = EVENT_TIME
    allowed_lateness: Duration = 0
    evictor: Evictor | None = None
    early: Trigger | None = field(default=None, metadata={ASIDE: True})
    grouping_sets: Sequence[Sequence[str]] | None = None
    purging: Purging | None = None

    def __post_init__(self) -> None:
        check_columns("by", self.by)
        check_column("time", self.time)
        check_evictor(self.evictor)
        _ = self.lateness
        _ = self._aggregates
        check_purging(self.purging, self.window, self.early)
        check_distinct([*self.key, *self._added_columns, *self.bounds, *self.aggregates, RESULT_TIME, FINAL_AT, *self.shown_columns])
        if self.grouping_sets is not None:
            self._check_sets(self.grouping_sets)

    def _check_sets(self, sets: Sequence[Sequence[str]]) -> None:
        legal = f"different lists of some of the columns of `by`, which are {', '.join(self.key) or 'none'}"
        are_lists = isinstance(sets, Collection) and all(isinstance(one, Collection) and not isinstance(one, str) for one in sets)  # pyright: ignore[reportUnnecessaryIsInstance]
        column_sets = [{*columns} for columns in sets] if are_lists and all(c in self.key for one in sets for c in one) else []
        if not column_sets or any(
            len(one) < len(columns) or column_sets.count(one) > 1 for one, columns in zip(column_sets, sets, strict=True)
        ):
            raise OperatorError.bad_value("grouping_sets", sets, legal)
        if isinstance(self.window, Session):
            raise OperatorError.bad_value("grouping_sets", sets, "None for sessions, which are those of one key: make a table for each set")
        if self.early is not None:
            raise OperatorError.bad_value("early", self.early, "None with `grouping_sets`")

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return names(self.by)

    @cached_property
    def _aggregates(self) -> Aggregates:
        return Aggregates.read(self.aggregates)

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("rows",)

    @property
    def _added_columns(self) -> tuple[str, ...]:
        return () if self.grouping_sets is None else (GROUPING_ID,)

    @property
    def result_key(self) -> tuple[str, ...]:
        """One result for each key and window, for each grouping set, and for each firing."""
        return (*self.key, *self._added_columns, *self.bounds)

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`)."""
        return (*self.key, *self._added_columns, *self.bounds, *self.aggregates, RESULT_TIME, FINAL_AT)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Aggregate a frame.

        Args:
            frames: the rows, static (then the result is complete), or streaming with a watermark on the time (then it is Spark's own
                aggregation, to be written in append mode).

        Returns:
            The key columns, `grouping_id` (bigint) if there are grouping sets, `window_start` and `window_end` (timestamp, the end
            excluded), with `purging` `firing` (bigint, from 1), the aggregates with their own types, `result_time` and `final_at`
            (timestamp; with `purging` the time of the firing).
        """
        [rows] = frames
        self._check(rows)
        if rows.isStreaming:
            return self._aggregate_stream(rows)
        if self.grouping_sets is not None:
            return reduce(DataFrame.union, [self._aggregate_set(rows, grouping_set) for grouping_set in self.grouping_sets])
        if self.purging is not None:
            return self._aggregate_by_firing(rows, self.purging)
        needs_rows = self.evictor or not self._merges_panes
        results = (
            self._aggregate_by_row(rows, self.evictor)
            if isinstance(self.window, Session) or needs_rows
            else self._aggregate_by_pane(rows, self.window)
        )
        return results.select(*self.key, *window_bounds(), *self.aggregates, *window_times(self.window))

    def so_far(self, *frames: DataFrame) -> DataFrame:
        """The result of a call, and `rows_seen` (bigint), the number of rows of its window, evicted or not (see `Early`)."""
        if self.evictor is None:
            return replace(self, aggregates={**self.aggregates, ROWS_SEEN: "count(*)"}, early=None)(*frames)
        [rows] = frames
        self._check(rows)
        results = self._aggregate_by_row(rows, self.evictor, with_row_count=True)
        return results.select(*self.key, *window_bounds(), *self.aggregates, ROWS_SEEN, *window_times(self.window))

    def _aggregate_set(self, rows: DataFrame, columns: Sequence[str]) -> DataFrame:
        """The results of a grouping set."""
        results = replace(self, by=tuple(columns), grouping_sets=None)(rows)
        keys = [
            F.col(quoted_name(c)) if c in columns else F.lit(None).cast(rows.select(quoted_name(c)).schema[0].dataType).alias(c)
            for c in self.key
        ]
        left_out = sum(1 << n for n, c in enumerate(reversed(self.key)) if c not in columns)
        return results.select(*keys, F.lit(left_out).cast("bigint").alias(GROUPING_ID), *results.columns[len(columns) :])

    def group_and_time(self, frame: DataFrame, index: int) -> tuple[list[Column], str]:
        """The key, and the time."""
        return [F.col(c) for c in self.key], self.time

    def _check(self, rows: DataFrame) -> None:
        plain_rows = drop_engine_columns(rows)
        check_present(plain_rows, self.key, "by")
        check_time(plain_rows, self.time, "time")
        self._aggregates.check_bare_names(plain_rows.columns)

    def _aggregate_stream(self, rows: DataFrame) -> DataFrame:
        unsupported = {
            "allowed_lateness": self.lateness.ms,
            "evictor": self.evictor,
            "early": self.early,
            "grouping_sets": self.grouping_sets,
            "purging": self.purging,
        }
        window = spark_streaming.check_windows(rows, self.time, self.window, type(self).__name__, **unsupported)
        rows_by_window = rows.withColumn(WINDOW, spark_streaming.window_struct(F.col(self.time), window)).groupBy(*self.key, WINDOW)
        results = rows_by_window.agg(*self._aggregates.plain_columns())
        return results.select(*self.key, *spark_streaming.window_bounds(F.col(WINDOW)), *self.aggregates).withColumns(times_of_end())

    def check_query(self) -> None:
        """Raise `StreamingError` if Spark's own windows have other results than a step (see `RunsAsQuery`)."""
        name, way_out = type(self).__name__, spark_streaming.STATIC_WAY_OUT
        if isinstance(self.window, Session):
            reason = "a session that Spark keeps open may be closed by the watermark before a row's batch"
            raise StreamingError.refused(name, reason, way_out)
        unsupported = {"evictor": self.evictor, "grouping_sets": self.grouping_sets, "purging": self.purging}
        spark_streaming.check_parameters(name, allowed_lateness=self.lateness.ms, **unsupported)
        for sql, expression in zip(self.aggregates.values(), self._aggregates.expressions.values(), strict=True):
            if expression.is_distinct:
                raise StreamingError.refused(name, f"Spark has no DISTINCT aggregates of streams, as {sql!r} is", way_out)
            if not isinstance(self.window, Tumbling) and self._aggregates.are_mergeable and expression.is_sum:
                reason = f"over overlapping windows a step adds the sums of panes, and Spark the rows, so that a {sql!r} of doubles differs"
                raise StreamingError.refused(name, reason, f"write '{sql} + 0', for which a step adds the rows too")

    def query_watermark(self, closed_to: int) -> int:
        """Spark's watermark at which the windows up to `closed_to` are final (see `RunsAsQuery`)."""
        return engine_streams.watermark_of_windows(closed_to)

    def as_query(self, *frames: DataFrame) -> DataFrame:
        """The aggregation of a stream of the engine (see `RunsAsQuery`)."""
        [rows] = frames
        self._check(rows)
        rows_in_windows = assign_windows(rows, self.window, time=self.time, lateness=self.lateness, group=self.key)
        rows_with_time = rows_in_windows.select("*", engine_streams.window_time(F.col(WINDOW)[END], _END))
        results = rows_with_time.groupBy(*self.key, WINDOW, _END).agg(*self._aggregates.columns(rows_in_windows))
        return results.select(*self.key, *window_bounds(), *self.aggregates, *window_times(self.window))

    @property
    def _merges_panes(self) -> bool:
        return isinstance(self.window, Tumbling) or self._aggregates.are_mergeable

    def _aggregate_by_pane(self, rows: DataFrame, window: Aligned) -> DataFrame:
        """Aggregate each row once, in its pane; then merge panes. Rows that some of their windows did not accept have separate panes."""
        rows_in_panes = assign_panes(rows, window, self.time, self.lateness)
        panes = rows_in_panes.groupBy(*self.key, PANE, CLOSED).agg(*self._aggregates.columns(rows_in_panes))
        panes_in_windows = expand_to_windows(panes, window)
        if isinstance(window, Tumbling):
            return panes_in_windows
        values = self._aggregates.restore_types(self._aggregates.merge_columns(panes), panes.schema)
        return panes_in_windows.groupBy(*self.key, WINDOW).agg(*values)

    def _aggregate_by_row(self, rows: DataFrame, evictor: Evictor | None, *, with_row_count: bool = False) -> DataFrame:
        """Aggregate each row once for each of its windows; `with_row_count` adds `rows_seen`, the number of rows before any is evicted."""
        group = (*self.key, WINDOW)
        windowed_rows = assign_windows(rows, self.window, time=self.time, lateness=self.lateness, group=self.key)
        if with_row_count:
            windowed_rows = windowed_rows.withColumn(_ROW_COUNT, F.count("*").over(Window.partitionBy(*group)))
        windowed_rows = windowed_rows if evictor is None else evictor.keep(windowed_rows, group, self.time)
        return windowed_rows.groupBy(*group).agg(
            *self._aggregates.columns(windowed_rows), *([F.max(_ROW_COUNT).alias(ROWS_SEEN)] if with_row_count else [])
        )

    def _aggregate_by_firing(self, rows: DataFrame, trigger: Purging) -> DataFrame:
        """Aggregate each row once for each of its windows, with the other rows of its firing."""
        rows_by_firing = assign_firings(rows, self.window, trigger, time=self.time, lateness=self.lateness, group=self.key)
        group = (*self.key, WINDOW, FIRING, FIRED_AT)
        kept_rows = rows_by_firing if self.evictor is None else self.evictor.keep(rows_by_firing, group, self.time)
        results = kept_rows.groupBy(*group).agg(*self._aggregates.columns(kept_rows))
        return results.select(*self.key, *window_bounds(), FIRING, *self.aggregates, *firing_times())
