"""ProcessWindow: a function of all rows of a key and window."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators._support.firings import FIRED_AT, FIRING, Purging, assign_firings, check_purging, firing_times
from operators._support.ordered_rows import collect_in_order
from operators._support.panes import WINDOW
from operators._support.window_assignment import assign_windows, window_bounds, window_times
from operators._support.windowed_operator import WindowedOperator
from operators.columns import FINAL_AT, RESULT_TIME, check_distinct, check_present, check_time, names, quoted, temporary
from operators.contract import ASIDE
from operators.engine_columns import EVENT_TIME, drop_engine_columns, tie_breakers
from operators.errors import StreamingError
from operators.evictors import Evictor, check_evictor
from operators.nondeterministic import check_deterministic
from operators.parameters import check_column, check_columns, check_sql
from operators.timing import Duration
from operators.triggers import ROWS_SEEN, Trigger
from operators.windows import AnyWindow

ELEMENTS = "elements"
"""The rows of a window, in the result, and in the expression of a `ProcessWindow`."""
_ORDER, _ROW, _ROW_COUNT = temporary("order"), temporary("row"), temporary("rows_seen")


@dataclass(frozen=True, kw_only=True)
class ProcessWindow(WindowedOperator):
    """For each key and window with at least one row: the rows that a function of all of these rows returns.

    The function is SQL over `elements`, an array with the window's rows as structs. The elements are ordered by event time, then by
    arrival; without `seq` and `arrival`, then by their columns that Spark can order. A null key is an ordinary key. A row with a null time
    is in no window.

    Use this operator if a result needs the order of the rows, or if a window has several results: differences between consecutive rows,
    pairs, paths. If one row of aggregates is enough, use `WindowedAggregate`: it needs less memory, because it does not hold the rows.

    A result is added when the watermark reaches the last millisecond of its window: `result_time = final_at = end - 1 ms`. The `final_at`
    of a session is its `end`. In the engine a row counts in each of its windows that was open when the row's batch arrived:
    `end - 1 ms + allowed lateness > watermark`. A row is late if all of its windows were closed. A row that arrives after its window's
    results corrects them.

    The semantics are those of Flink's `keyBy().window().process()` and, without `by`, of `windowAll().process()`. In place of Flink's
    `ProcessWindowFunction`, `rows` is an expression, and `DerivedAsset.shape` takes any function of the result's frame. `CoGroup` does
    the same for two inputs.

    Args:
        by: the key columns; empty for one group of all rows of a window.
        window: the windows.
        rows: a SQL expression that computes the result's rows of a window from `elements`, the key columns, `window_start` and
            `window_end`. Its value is an array with a struct for each row of the result:
            `"transform(elements, (e, i) -> named_struct('id', e.id, 'position', i + 1))"`. None returns the array of elements.
        time: the event time, a timestamp column.
        allowed_lateness: how far past a window's end the watermark may be for a row to still correct the window's results.
        evictor: chooses the rows of a window that are elements; None for all.
        early: when a window that is still open shows its results so far, in `early/<asset>`; None for never. The results do not depend
            on it.
        purging: when a window emits the results of the rows since its last firing and then clears these rows, as for
            `WindowedAggregate`. The results then have `firing` (bigint, from 1). None for results of all rows.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> from operators import Tumbling
    >>> ProcessWindow(by="user", window=Tumbling(size="1 hour")).emits.key
    ('user', 'window_start', 'window_end')
    """

    by: str | Sequence[str] = ()
    window: AnyWindow
    rows: str | None = None
    time: str = EVENT_TIME
    allowed_lateness: Duration = 0
    evictor: Evictor | None = None
    early: Trigger | None = field(default=None, metadata={ASIDE: True})
    purging: Purging | None = None

    def __post_init__(self) -> None:
        _ = self.lateness
        check_columns("by", self.by)
        check_column("time", self.time)
        check_evictor(self.evictor)
        check_sql("rows", self.rows)
        check_deterministic("rows", self.rows or "", (*self.key, ELEMENTS, *self.bounds))
        check_purging(self.purging, self.window, self.early)
        check_distinct([*self.key, ELEMENTS, *self.bounds, RESULT_TIME, FINAL_AT, *self.shown_columns])

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return names(self.by)

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("rows",)

    @property
    def result_key(self) -> tuple[str, ...]:
        """Key, window and firing. Empty with `rows`, because a window can then have several results."""
        return () if self.rows else (*self.key, *self.bounds)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Process a frame.

        Args:
            frames: the rows, static.

        Returns:
            The key columns; `elements` (array of structs with the columns of the frame), or with `rows` the columns of its structs;
            `window_start` and `window_end` (timestamp, the end excluded), with `purging` `firing`, and `result_time` and `final_at`
            (timestamp).
        """
        [rows] = frames
        return self._results(rows, [])

    def so_far(self, *frames: DataFrame) -> DataFrame:
        """The result of a call, and `rows_seen` (bigint), the number of rows of the window, evicted or not (see `Early`)."""
        [rows] = frames
        return self._results(rows, [F.max(_ROW_COUNT).alias(ROWS_SEEN)])

    def group_and_time(self, frame: DataFrame, index: int) -> tuple[list[Column], str]:
        """The key, and the time."""
        return [F.col(c) for c in self.key], self.time

    def _results(self, rows: DataFrame, row_count: Sequence[Column]) -> DataFrame:
        """The results; `row_count` is the aggregate for `rows_seen`, or is empty."""
        self._check(rows)
        rows_in_windows = self._assign_windows(rows, with_row_count=bool(row_count))
        groups = rows_in_windows.groupBy(*self._group).agg(collect_in_order(_ORDER, _ROW).alias(ELEMENTS), *row_count)
        windows = groups.select("*", *window_bounds())
        times = window_times(self.window) if self.purging is None else firing_times()
        added_columns = (*self.bounds, *([ROWS_SEEN] if row_count else []), *times)
        if self.rows is None:
            return windows.select(*self.key, ELEMENTS, *added_columns)
        results = windows.withColumn(_ROW, F.explode(F.expr(self.rows))).select(*self.key, f"{_ROW}.*", *added_columns)
        check_distinct([*results.columns, *([] if row_count else self.shown_columns)])
        return results

    @property
    def _group(self) -> tuple[str, ...]:
        return (*self.key, WINDOW, *(() if self.purging is None else (FIRING, FIRED_AT)))

    def _assign_windows(self, rows: DataFrame, *, with_row_count: bool) -> DataFrame:
        """Each row as a struct, with its order, in each of its windows; `with_row_count` adds the number of the window's rows."""
        plain_rows = drop_engine_columns(rows)
        order = F.struct(self.time, *tie_breakers(plain_rows)).alias(_ORDER)
        structs = rows.select("*", order, F.struct(*quoted(plain_rows.columns)).alias(_ROW))
        if self.purging is None:
            rows_in_windows = assign_windows(structs, self.window, time=self.time, lateness=self.lateness, group=self.key)
        else:
            rows_in_windows = assign_firings(structs, self.window, self.purging, time=self.time, lateness=self.lateness, group=self.key)
        rows_in_windows = (
            rows_in_windows.withColumn(_ROW_COUNT, F.count("*").over(Window.partitionBy(*self._group)))
            if with_row_count
            else rows_in_windows
        )
        return rows_in_windows if self.evictor is None else self.evictor.keep(rows_in_windows, self._group, self.time)

    def _check(self, rows: DataFrame) -> None:
        check_present(drop_engine_columns(rows), self.key, "by")
        check_time(drop_engine_columns(rows), self.time, "time")
        if rows.isStreaming:
            reason = "Spark would keep every row of a window, and has no order of the rows in an array"
            raise StreamingError.refused("ProcessWindow", reason, "let the engine run it, or use `WindowedAggregate`")
