"""The windowed aggregate: one row for each key and window, of all rows that lie there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support import spark_streaming
from operators._support.aggregate_expressions import Aggregates
from operators._support.panes import CLOSED, PANE, WINDOW, in_panes, in_windows
from operators._support.window_assignment import assign_windows, times_of_end, window_bounds, window_times
from operators._support.windowed_operator import WindowedOperator
from operators.columns import FINAL_AT, RESULT_TIME, WINDOW_END, WINDOW_START, check_distinct, check_present, check_time, names
from operators.contract import ASIDE, EVENT_TIME, plain
from operators.errors import OperatorError
from operators.evictors import Evictor
from operators.timing import Duration
from operators.triggers import IS_FINAL, ROWS_SEEN, EveryInterval, EveryRows, Trigger
from operators.windows import Aligned, AnyWindow, Session, Tumbling


@dataclass(frozen=True, kw_only=True)
class WindowedAggregate(WindowedOperator):
    """For each key and each window that holds a row of it: Spark aggregates over the rows with `start <= time < end`.

    A window's result is added when the watermark reaches its last millisecond: `result_time = final_at = end - 1 ms`; a session's
    `final_at` is its `end`. In the engine a row is judged for each of its windows: it counts in those that took rows before its
    entry came, `end - 1 ms + allowed lateness > watermark`, and is late when none did. A row that comes after its window's result
    corrects it. A null key is an ordinary key; a row with a null time lies in no window.

    The semantics are those of Flink's `keyBy().window().aggregate()`, and of the windowing table functions of its SQL. Streaming
    frames are aggregated by Spark's own state, and refused where that would be wrong.
    Where windows overlap, rows are counted by pane, and panes are merged into windows, if every aggregate is a single call of
    `count`, `sum`, `min`, `max`, `bool_and`, `bool_or`, `bit_and`, `bit_or` or `bit_xor`; with any other each row is handed
    to each of its windows.
    An aggregate whose value depends on the order in which Spark meets rows (`first`, `last`, `any_value`, an unsorted `collect_list`), on
    chance or on the clock is refused; `min_by(v, struct(event_time, seq, arrival))` is the first row's value.
    A sum of doubles depends on the order of its rows: computed anew, its last bit may differ, and a correction or the law takes that for
    another result. Sum decimals.

    Args:
        by: the key columns; none for one row a window.
        window: where the windows lie.
        aggregates: the result's columns, as SQL: `{"clicks": "count(*)", "spent": "sum(price * quantity)"}`.
        time: the event time, a timestamp column.
        allowed_lateness: how long after a window's end, in the watermark's time, a row still corrects the window's results.
        evictor: which rows of a window count; None for all of them.
        early: when a window that is still open shows what it holds so far, in `early/<asset>`; None for never. The results
            do not depend on it.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> WindowedAggregate(by="item_id", window=Tumbling(size="10 s"), aggregates={"clicks": "count(*)"}).reads.reach
    (10000,)
    """

    by: str | Sequence[str] = ()
    window: AnyWindow
    aggregates: Mapping[str, str]
    time: str = EVENT_TIME
    allowed_lateness: Duration = 0
    evictor: Evictor | None = None
    early: Trigger | None = field(default=None, metadata={ASIDE: True})

    def __post_init__(self) -> None:
        _ = self.lateness
        if self.evictor and isinstance(self.early, EveryRows):
            raise OperatorError.bad_value(
                "early", self.early, "EveryStep or EveryInterval beside an `evictor`, which holds rows back from the count"
            )
        if isinstance(self.window, Session) and isinstance(self.early, EveryRows | EveryInterval):
            legal = "EveryStep over sessions: one that goes on is another window, of which nothing was shown yet"
            raise OperatorError.bad_value("early", self.early, legal)
        _ = self._values
        shown = (ROWS_SEEN, IS_FINAL) if self.early else ()
        check_distinct([*self.key, *self.aggregates, WINDOW_START, WINDOW_END, RESULT_TIME, FINAL_AT, *shown])

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return names(self.by)

    @cached_property
    def _values(self) -> Aggregates:
        return Aggregates.read(self.aggregates)

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("rows",)

    @property
    def result_key(self) -> tuple[str, ...]:
        """Each key has one result a window."""
        return (*self.key, WINDOW_START, WINDOW_END)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Aggregate a frame.

        Args:
            frames: the rows, static (then the result is the whole answer), or streaming with a watermark on the time: then it is
                Spark's own aggregation, to be written in append mode.

        Returns:
            The key columns, `window_start` and `window_end` (timestamp, the end excluded), the aggregates by their own types,
            `result_time` and `final_at` (timestamp).
        """
        [rows] = frames
        self._check(rows)
        if rows.isStreaming:
            return self._streamed(rows)
        whole = self.evictor or not self._merges
        found = self._by_row(rows) if isinstance(self.window, Session) or whole else self._by_pane(rows, self.window)
        return found.select(*self.key, *window_bounds(), *self.aggregates, *window_times(self.window))

    def so_far(self, *frames: DataFrame) -> DataFrame:
        """What a call returns, and `rows_seen` (bigint): of how many rows a result was made (see `Early`)."""
        return replace(self, aggregates={**self.aggregates, ROWS_SEEN: "count(*)"}, early=None)(*frames)

    def groups(self, frame: DataFrame, which: int) -> tuple[list[Column], str]:
        """The key, and the time."""
        return [F.col(c) for c in self.key], self.time

    def _check(self, rows: DataFrame) -> None:
        check_present(plain(rows), self.key, "by")
        check_time(plain(rows), self.time, "time")

    def _streamed(self, rows: DataFrame) -> DataFrame:
        unsupported = {"allowed_lateness": self.lateness.ms, "evictor": self.evictor, "early": self.early}
        window = spark_streaming.check_windows(rows, self.time, self.window, type(self).__name__, **unsupported)
        each = rows.withColumn(WINDOW, spark_streaming.window_struct(F.col(self.time), window)).groupBy(*self.key, WINDOW)
        found = each.agg(*self._values.columns())
        return found.select(*self.key, *spark_streaming.bounds(F.col(WINDOW)), *self.aggregates).withColumns(times_of_end())

    @property
    def _merges(self) -> bool:
        return isinstance(self.window, Tumbling) or self._values.are_mergeable

    def _by_pane(self, rows: DataFrame, window: Aligned) -> DataFrame:
        """Each row counted once, in its pane; then panes merged. Rows that came when some windows were closed are merged apart."""
        paned = in_panes(rows, window, self.time, self.lateness)
        panes = paned.groupBy(*self.key, PANE, CLOSED).agg(*self._values.columns())
        windowed = in_windows(panes, window)
        if isinstance(window, Tumbling):
            return windowed
        merged = self._values.typed(self._values.merged(), panes.schema)
        return windowed.groupBy(*self.key, WINDOW).agg(*merged)

    def _by_row(self, rows: DataFrame) -> DataFrame:
        each = assign_windows(rows, self.window, time=self.time, lateness=self.lateness, group=self.key)
        each = self.evictor.keep(each, (*self.key, WINDOW), self.time) if self.evictor else each
        return each.groupBy(*self.key, WINDOW).agg(*self._values.columns())
