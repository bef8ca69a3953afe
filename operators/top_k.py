"""The Top-K of a window: its first rows by a total order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators._support import spark_streaming
from operators._support.lateness import Lateness
from operators._support.ordering import Ordering, canonical_order
from operators._support.row_windows import SOURCE_WINDOW, AssignedWindows, ResultWindows
from operators._support.window_assignment import times_of_end, window_bounds
from operators.column_types import can_be_ordered
from operators.columns import (
    FINAL_AT,
    RANK,
    RESULT_TIME,
    WINDOW_END,
    WINDOW_START,
    check_distinct,
    check_present,
    names,
    quoted,
    quoted_name,
    temporary,
)
from operators.contract import ASIDE, CANONICAL
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ, drop_engine_columns
from operators.errors import OperatorError, StreamingError, check_count
from operators.parameters import check_column, check_columns, check_orders
from operators.steps import Append, ByTimeRange
from operators.timing import Duration
from operators.triggers import ROWS_SEEN, Trigger, check_trigger, shown_columns
from operators.windows import AnyWindow, check_window

_FIRST, _INDEX = temporary("first"), temporary("index")


@dataclass(frozen=True, kw_only=True)
class TopK:
    """The `k` first rows of each window, or of each window and group; `rank` counts from 1.

    The order is total: rows that are equal by `order_by` are ordered by `seq` and `arrival`, if the frame has them, and then by all
    their other columns that Spark can order (no maps and variants), ascending, nulls first, in the order of the columns. So ties are
    always broken in the same way, and only rows that are equal in each of these columns are interchangeable.

    Without `window` the input is the result of a windowed operator, and is ranked over the *same* windows: Flink's consecutive
    windows, `windowAll` after `keyBy().window()`, or a window Top-N of its SQL. With `window` the input is any rows. Each is ranked in
    every window that holds its time and was open when the row's batch arrived. If the rows already have a window, it is kept as
    `source_window_start` and `source_window_end`. Sessions are those of a group: the rows of one value of `by`, or all rows.

    A window's ranks are added when it ends, `result_time = final_at = end - 1 ms`; a session's `final_at` is its `end`. If its input is
    corrected, or a row arrives within the allowed lateness, each rank that changes is corrected once.

    Args:
        k: how many rows to keep, at least 1.
        order_by: columns, each optionally followed by `ASC` or `DESC` and by `NULLS FIRST` or `NULLS LAST`: `"clicks DESC"`. By default
            nulls are the smallest values, as in Flink.
        by: the columns of a group; empty for one ranking of each window.
        window: the windows; None for the windows that the rows already have.
        time: the event time, a timestamp column; used with `window` only.
        allowed_lateness: how long after a window's end, in the watermark's time, a row still corrects its ranks; with `window` only:
            corrections of a windowed operator's results always correct the ranks.
        early: when a window that is still open shows its ranks so far, in `early/<asset>`; with `window` only. None for never. The results
            do not depend on it.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> TopK(k=3, order_by=["clicks DESC", "item_id"]).columns
    ('clicks', 'item_id')
    """

    k: int
    order_by: str | Sequence[str] = field(metadata={CANONICAL: canonical_order})
    by: str | Sequence[str] = ()
    window: AnyWindow | None = None
    time: str = EVENT_TIME
    allowed_lateness: Duration = 0
    early: Trigger | None = field(default=None, metadata={ASIDE: True})

    def __post_init__(self) -> None:
        check_window(self.window, is_optional=True)
        check_trigger("early", self.early)
        check_columns("by", self.by)
        check_column("time", self.time)
        check_orders("order_by", self.order_by)
        if self.early and not self.window:
            legal = "None without a `window`: the windows that the rows already have are final when they are read"
            raise OperatorError.bad_value("early", self.early, legal)
        if self.lateness and not self.window:
            legal = "zero without a `window`: the operator that makes the windows decides which rows are late"
            raise OperatorError.bad_value("allowed_lateness", self.allowed_lateness, legal)
        check_count("k", self.k)
        _ = self.order

    @cached_property
    def order(self) -> tuple[Ordering, ...]:
        """The columns of `order_by`, parsed."""
        return tuple(Ordering.read(text, "order_by") for text in names(self.order_by))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the order."""
        return tuple(o.column for o in self.order)

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("results",)

    @cached_property
    def lateness(self) -> Lateness:
        """The allowed lateness."""
        return Lateness.read(self.allowed_lateness)

    @cached_property
    def _windows(self) -> AssignedWindows | ResultWindows:
        if self.window is None:
            return ResultWindows()
        return AssignedWindows(self.window, self.time, self.allowed_lateness, names(self.by))

    @property
    def emits(self) -> Append:
        """One row of each window, group and rank."""
        return Append((WINDOW_START, WINDOW_END, *names(self.by), RANK))

    @property
    def window_key(self) -> tuple[str, ...]:
        """The columns of a result that identify its group and window (see `EarlyByWindow`)."""
        return (*names(self.by), WINDOW_START, WINDOW_END)

    @property
    def reads(self) -> ByTimeRange:
        """Closed ranges: the windows that end in the range."""
        return self._windows.reads

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Whether all windows of a row had closed; never without `window`: a derived table's rows are never late."""
        return self._windows.late(event_time, watermark)

    def late_before(self, watermark: int) -> int | None:
        """The time before which all windows of a row had closed (see `BoundsLateness`); None for sessions, or if there are gaps."""
        return self._windows.late_before(watermark)

    def lateness_decisions(self, watermark: int, *frames: DataFrame) -> DataFrame:
        """With sessions, decide which rows of a batch are late, where they may join older rows (see `DecidesLateness`)."""
        return self._windows.lateness_decisions(watermark, *frames)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Rank a frame.

        Args:
            frames: static rows, with `window_start` and `window_end` (timestamp) if there is no `window`; or the result of a
                `WindowedAggregate` for a streaming frame, to be written in append mode.

        Returns:
            The columns of the frame, without `event_time` if there is no `window`; `window_start` and `window_end` if there is one;
            `rank` (int), `result_time` and `final_at` (timestamp).
        """
        [rows] = frames
        return self._rank_rows(rows, [])

    def so_far(self, *frames: DataFrame) -> DataFrame:
        """The result of a call, and `rows_seen` (bigint), the number of rows of the group in the window (see `Early`)."""
        [rows] = frames
        return self._rank_rows(rows, [F.count("*").over(Window.partitionBy(*self.window_key)).alias(ROWS_SEEN)])

    def _rank_rows(self, rows: DataFrame, row_count: Sequence[Column]) -> DataFrame:
        """The ranks; `row_count` is the expression for `rows_seen`, or is empty."""
        self._check_windows(rows)
        rows_in_windows = self._assign_windows(rows)
        self._check(rows_in_windows)
        columns = [c for c in rows_in_windows.columns if c not in (RESULT_TIME, FINAL_AT)]
        if rows_in_windows.isStreaming:
            return self._rank_stream(rows_in_windows.select(*quoted(columns)))
        by_order = Window.partitionBy(*self.window_key).orderBy(*[o.sort_expression() for o in self._total_order(rows_in_windows)])
        ranked = rows_in_windows.select(*quoted(columns), F.row_number().over(by_order).alias(RANK), *row_count).withColumns(
            self._windows.times()
        )
        return ranked.where(F.col(RANK) <= self.k)

    def _rank_stream(self, rows: DataFrame) -> DataFrame:
        """The ranks of a stream's windows. Spark collects, sorts and cuts the rows of a window when it ends."""
        spark_streaming.check_results(rows, type(self).__name__)
        group = (WINDOW_START, WINDOW_END, *names(self.by))
        order = [o for o in self._total_order(rows) if o.column not in group]
        rows_of_group = F.collect_list(F.struct(*quoted(c for c in rows.columns if c not in group)))
        first_rows = F.slice(F.array_sort(rows_of_group, lambda a, b: spark_streaming.compare_structs(a, b, order)), 1, self.k)
        ranked = rows.groupBy(*group).agg(first_rows.alias(_FIRST)).select(*group, F.posexplode(_FIRST).alias(_INDEX, _FIRST))
        columns = [F.col(c) if c in group else F.col(f"{_FIRST}.{quoted_name(c)}") for c in rows.columns]
        return ranked.select(*columns, (F.col(_INDEX) + 1).alias(RANK)).withColumns(times_of_end())

    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        """When the last window of a row is final (see `ReportsFinality`); without `window`, the row's own window."""
        return self._windows.finalized_at(*frames)

    def finalized_by_time(self, which: int, event_time: Column) -> Column | None:
        """When the last window of a row with an event time is final (see `FinalizesByTime`); None for sessions."""
        return self._windows.finalized_by_time(which, event_time)

    def _assign_windows(self, rows: DataFrame) -> DataFrame:
        """Each row in its windows; a window that the rows had before gets another name."""
        if isinstance(self._windows, ResultWindows):
            return rows.drop(EVENT_TIME)
        columns = [c for c in drop_engine_columns(rows).columns if c not in (RESULT_TIME, FINAL_AT)]
        renamed = [F.col(quoted_name(c)).alias(SOURCE_WINDOW.get(c, c)) for c in columns]
        return self._windows.assign(rows).select(*renamed, *window_bounds())

    def _total_order(self, rows: DataFrame) -> list[Ordering]:
        """The order, completed by `seq` and `arrival`, which the results of a join can repeat, and by all other columns."""
        ordered_columns = {*self.columns, *names(self.by), WINDOW_START, WINDOW_END, RESULT_TIME, FINAL_AT}
        orderable_columns = [f.name for f in rows.schema.fields if can_be_ordered(f.dataType)]
        arrival = [c for c in (SEQ, ARRIVAL) if c in orderable_columns]
        ties = [c for c in dict.fromkeys([*arrival, *orderable_columns]) if c not in ordered_columns]
        return [*self.order, *[Ordering(c, descending=False, nulls_first=True) for c in ties]]

    def _check_windows(self, rows: DataFrame) -> None:
        self._windows.check(rows)
        if rows.isStreaming and self.window:
            reason = "Spark would keep every row of a window to rank them"
            raise StreamingError.refused(
                "TopK", reason, "aggregate by window first, and rank that without `window`; or let the engine run it"
            )

    def _check(self, rows: DataFrame) -> None:
        check_present(rows, self.columns, "order_by")
        check_present(rows, names(self.by), "by")
        check_distinct([*(c for c in rows.columns if c not in (RESULT_TIME, FINAL_AT)), RANK, *shown_columns(self.early)])
