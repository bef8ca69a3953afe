"""The Top-K of a window: its first rows by a total order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators.columns import FINAL_AT, RESULT_TIME, WINDOW_END, WINDOW_START, check_distinct, check_present, check_time, names
from operators.contract import ARRIVAL, EVENT_TIME, SEQ, WATERMARK, Append, Closed
from operators.errors import OperatorError, StreamingError
from operators.ordering import Ordering
from operators.windows import Aligned, bounds, in_panes, in_windows, missed

RANK = "rank"
_SOURCE = {name: f"source_{name}" for name in (WINDOW_START, WINDOW_END)}


@dataclass(frozen=True, kw_only=True)
class TopK:
    """Of each window, or of each window and group, the `k` first rows; `rank` counts from 1.

    The order is total: after `order_by`, rows that arrived first come first, where the frame tells; then they go by all their
    other columns, ascending, nulls first, in the order of the columns. So a tie is broken the same way each time, and only
    rows that are equal in every column are interchangeable.

    Without `window` its input is the result of a windowed operator, over the *same* window: Flink's consecutive windows,
    `windowAll` behind `keyBy().window()`, or a window Top-N of its SQL. With one it ranks any rows, each in every
    window that holds its time and was open before its entry came; a window that the rows have already is kept as
    `source_window_start` and `source_window_end`. A window's ranks are final when it is, `result_time = final_at = end - 1 ms`.

    Args:
        k: how many rows to keep, at least 1.
        order_by: columns, each with `ASC` or `DESC` and `NULLS FIRST` or `NULLS LAST` at will: `"clicks DESC"`. Nulls are the
            smallest value unless said otherwise, as in Flink.
        by: the columns of a group; none for one ranking a window.
        window: where the windows lie; None for the window that the rows have.
        time: the event time, a timestamp column; asked for with `window` alone.

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

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or self.k < 1:
            raise OperatorError.bad_value("k", self.k, "a whole number of at least 1")
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

    @property
    def emits(self) -> Append:
        """Every result is final."""
        return Append()

    @property
    def reads(self) -> Closed:
        """Closed ranges: the windows that end there."""
        return Closed(reach=(self.window.longest,), judged=True) if self.window else Closed(reach=(0,))

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Whether no window of a row was open; never without `window`: results are final before they are read."""
        return missed(self.window, event_time, watermark) if self.window else F.lit(False)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Rank a frame.

        Args:
            frames: static rows, with `window_start` and `window_end` (timestamp) where no `window` is given.

        Returns:
            The columns of the frame, without `event_time` where the rows have a window already; then `window_start` and
            `window_end` where they had none, `rank` (int), `result_time` and `final_at` (timestamp).
        """
        [rows] = frames
        self._check_times(rows)
        placed = self._placed(rows, self.window) if self.window else rows.drop(EVENT_TIME)
        self._check(placed)
        own = [c for c in placed.columns if c not in (RESULT_TIME, FINAL_AT)]
        within = Window.partitionBy(WINDOW_START, WINDOW_END, *names(self.by)).orderBy(*self._total(own))
        last = F.col(WINDOW_END) - F.expr("INTERVAL 1 MILLISECOND")
        ranked = placed.select(*own, F.row_number().over(within).alias(RANK), last.alias(RESULT_TIME), last.alias(FINAL_AT))
        return ranked.where(F.col(RANK) <= self.k)

    def _placed(self, rows: DataFrame, window: Aligned) -> DataFrame:
        """Each row in its windows; the window it came with under another name."""
        own = [F.col(c).alias(_SOURCE.get(c, c)) for c in rows.columns if c not in (WATERMARK, RESULT_TIME, FINAL_AT)]
        return in_windows(in_panes(rows, window, self.time), window).select(*own, *bounds())

    def _total(self, columns: Sequence[str]) -> list[Column]:
        settled = {*self.columns, *names(self.by), WINDOW_START, WINDOW_END}
        ties = [c for c in (SEQ, ARRIVAL) if c in columns] + [c for c in columns if c not in (SEQ, ARRIVAL)]
        return [o.by() for o in self.order] + [F.col(c).asc_nulls_first() for c in ties if c not in settled]

    def _check_times(self, rows: DataFrame) -> None:
        for time in (self.time,) if self.window else (WINDOW_START, WINDOW_END):
            check_time(rows.drop(WATERMARK), time, "time" if self.window else time)
        if rows.isStreaming:
            why = "Spark ranks no streaming frame by anything but time"
            raise StreamingError.refused("TopK", why, "let the engine run it on closed windows, or rank in `foreachBatch`")

    def _check(self, rows: DataFrame) -> None:
        check_present(rows, self.columns, "order_by")
        check_present(rows, names(self.by), "by")
        check_distinct([*(c for c in rows.columns if c not in (RESULT_TIME, FINAL_AT)), RANK])
