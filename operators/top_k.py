"""The Top-K of a window: its first rows by a total order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators._support import spark_streaming
from operators._support.ordering import Ordering
from operators._support.window_assignment import (
    assign_windows,
    check_aligned,
    is_missed,
    last_final_at,
    reads_windows,
    times_of_end,
    window_bounds,
)
from operators.columns import (
    FINAL_AT,
    RANK,
    RESULT_TIME,
    WINDOW_END,
    WINDOW_START,
    check_distinct,
    check_present,
    check_time,
    names,
    temporary,
)
from operators.contract import ARRIVAL, EVENT_TIME, SEQ, SETTLED, WHICH, Append, Closed, plain
from operators.errors import OperatorError, StreamingError, check_count
from operators.timing import Duration, length_ms
from operators.windows import Aligned

_FIRST, _PLACE = temporary("first"), temporary("place")
_SOURCE = {name: f"source_{name}" for name in (WINDOW_START, WINDOW_END)}


@dataclass(frozen=True, kw_only=True)
class TopK:
    """Of each window, or of each window and group, the `k` first rows; `rank` counts from 1.

    The order is total: after `order_by`, rows that arrived first come first, where the frame tells; then they go by all their
    other columns, ascending, nulls first, in the order of the columns. So a tie is broken the same way each time, and only
    rows that are equal in every column are interchangeable.

    Without `window` its input is the result of a windowed operator, over the *same* window: Flink's consecutive windows,
    `windowAll` behind `keyBy().window()`, or a window Top-N of its SQL. With one it ranks any rows, each in every
    window that holds its time and took rows before its entry came; a window that the rows have already is kept as
    `source_window_start` and `source_window_end`. A window's ranks are added when it ends, `result_time = final_at = end - 1 ms`.
    Where its input is corrected, or a row comes within the allowed lateness, the ranks that change are, each once.

    Args:
        k: how many rows to keep, at least 1.
        order_by: columns, each with `ASC` or `DESC` and `NULLS FIRST` or `NULLS LAST` at will: `"clicks DESC"`. Nulls are the
            smallest value unless said otherwise, as in Flink.
        by: the columns of a group; none for one ranking a window.
        window: where the windows lie; None for the window that the rows have.
        time: the event time, a timestamp column; asked for with `window` alone.
        allowed_lateness: how long after a window's end, in the watermark's time, a row still corrects its ranks; with `window`
            alone: corrections of a windowed operator's results are always followed.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> TopK(k=3, order_by=["clicks DESC", "item_id"]).columns
    ('clicks', 'item_id')
    """

    k: int
    order_by: str | Sequence[str]
    by: str | Sequence[str] = ()
    window: Aligned | None = None
    time: str = EVENT_TIME
    allowed_lateness: Duration = 0

    def __post_init__(self) -> None:
        check_aligned(self.window, "make sessions by a WindowedAggregate first, and rank its results in one of these")
        if self.lateness and not self.window:
            legal = "zero without a `window`: it is the operator that makes the windows that judges their rows"
            raise OperatorError.bad_value("allowed_lateness", self.allowed_lateness, legal)
        check_count("k", self.k)
        if not self.columns:
            raise OperatorError.bad_value("order_by", self.order_by, "at least one column, such as 'clicks DESC'")

    @cached_property
    def order(self) -> tuple[Ordering, ...]:
        """What `order_by` says."""
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
    def lateness(self) -> int:
        """The allowed lateness in ms."""
        return length_ms(self.allowed_lateness, "allowed_lateness")

    @property
    def emits(self) -> Append:
        """A window's and group's rank is one row."""
        return Append((WINDOW_START, WINDOW_END, *names(self.by), RANK))

    @property
    def reads(self) -> Closed:
        """Closed ranges: the windows that end there."""
        return reads_windows(self.window, self.lateness) if self.window else Closed(reach=(0,), results=True)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Whether no window took a row; never without `window`: a derived table's rows are never late."""
        return is_missed(self.window, event_time, watermark, self.lateness) if self.window else F.lit(False)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Rank a frame.

        Args:
            frames: static rows, with `window_start` and `window_end` (timestamp) where no `window` is given; or what a
                `WindowedAggregate` gives for a streaming frame, to be written in append mode.

        Returns:
            The columns of the frame, without `event_time` where the rows have a window already; then `window_start` and
            `window_end` where they had none, `rank` (int), `result_time` and `final_at` (timestamp).
        """
        [rows] = frames
        self._check_times(rows)
        each = self._placed(rows, self.window) if self.window else rows.drop(EVENT_TIME)
        self._check(each)
        own = [c for c in each.columns if c not in (RESULT_TIME, FINAL_AT)]
        if each.isStreaming:
            return self._streamed(each.select(*own))
        within = Window.partitionBy(WINDOW_START, WINDOW_END, *names(self.by)).orderBy(*[o.by() for o in self._total(own)])
        ranked = each.select(*own, F.row_number().over(within).alias(RANK)).withColumns(times_of_end())
        return ranked.where(F.col(RANK) <= self.k)

    def _streamed(self, rows: DataFrame) -> DataFrame:
        """A stream's windows, each collected when it ends, sorted and cut."""
        spark_streaming.check_results(rows, type(self).__name__)
        group = (WINDOW_START, WINDOW_END, *names(self.by))
        order = [o for o in self._total(rows.columns) if o.column not in group]
        held = F.collect_list(F.struct(*[c for c in rows.columns if c not in group]))
        first = F.slice(F.array_sort(held, lambda a, b: spark_streaming.compared(a, b, order)), 1, self.k)
        ranked = rows.groupBy(*group).agg(first.alias(_FIRST)).select(*group, F.posexplode(_FIRST).alias(_PLACE, _FIRST))
        unpacked = [F.col(c) if c in group else F.col(f"{_FIRST}.`{c}`") for c in rows.columns]
        return ranked.select(*unpacked, (F.col(_PLACE) + 1).alias(RANK)).withColumns(times_of_end())

    def settles(self, *frames: DataFrame) -> DataFrame:
        """When a row's last window is final (see `Settling`): with no `window`, its own."""
        [rows] = frames
        final = last_final_at(self.window, F.col(self.time)) if self.window else F.col(EVENT_TIME)
        return rows.select(F.lit(0).alias(WHICH), EVENT_TIME, final.alias(SETTLED))

    def _placed(self, rows: DataFrame, window: Aligned) -> DataFrame:
        """Each row in its windows; the window it came with under another name."""
        own = [F.col(c).alias(_SOURCE.get(c, c)) for c in plain(rows).columns if c not in (RESULT_TIME, FINAL_AT)]
        return assign_windows(rows, window, time=self.time, lateness=self.lateness, group=()).select(*own, *window_bounds())

    def _total(self, columns: Sequence[str]) -> list[Ordering]:
        settled = {*self.columns, *names(self.by), WINDOW_START, WINDOW_END}
        ties = [c for c in (SEQ, ARRIVAL) if c in columns] + [c for c in columns if c not in (SEQ, ARRIVAL)]
        return [*self.order, *[Ordering(c, descending=False, nulls_first=True) for c in ties if c not in settled]]

    def _check_times(self, rows: DataFrame) -> None:
        for time in (self.time,) if self.window else (WINDOW_START, WINDOW_END):
            check_time(plain(rows), time, "time" if self.window else time)
        if rows.isStreaming and self.window:
            why = "Spark would keep every row of a window to rank them"
            raise StreamingError.refused("TopK", why, "aggregate by window first, and rank that without `window`; or let the engine run it")

    def _check(self, rows: DataFrame) -> None:
        check_present(rows, self.columns, "order_by")
        check_present(rows, names(self.by), "by")
        check_distinct([*(c for c in rows.columns if c not in (RESULT_TIME, FINAL_AT)), RANK])
