"""The Top-K of a window: its first rows by a total order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators.columns import FINAL_AT, RESULT_TIME, WINDOW_END, WINDOW_START, check_distinct, check_present, check_time, names
from operators.contract import EVENT_TIME, Append, Closed
from operators.errors import OperatorError, StreamingError
from operators.ordering import Ordering

RANK = "rank"


@dataclass(frozen=True, kw_only=True)
class TopK:
    """Of each window, or of each window and group, the `k` first rows; `rank` counts from 1.

    The order is total: after `order_by`, rows go by all their other columns, ascending, nulls first, in the order of the
    columns. So a tie is broken the same way each time, and only rows that are equal in every column are interchangeable.

    Its input is the result of a windowed operator, over the *same* window: Flink's consecutive windows, `windowAll` behind
    `keyBy().window()`, or a window Top-N of its SQL. A window's ranks are final when its rows are,
    `result_time = final_at = window_end - 1 ms`.

    Args:
        k: how many rows to keep, at least 1.
        order_by: columns, each with `ASC` or `DESC` and `NULLS FIRST` or `NULLS LAST` at will: `"clicks DESC"`. Nulls are the
            smallest value unless said otherwise, as in Flink.
        by: the columns of a group; none for one ranking a window.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> TopK(k=3, order_by=["clicks DESC", "item_id"]).columns
    ('clicks', 'item_id')
    """

    k: int
    order_by: str | Sequence[str]
    by: str | Sequence[str] = ()

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
        return Closed(reach=(0,))

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Never: results of the window below are final before they are read."""
        return F.lit(False)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Rank a frame.

        Args:
            frames: rows with `window_start` and `window_end` (timestamp), static.

        Returns:
            The columns of the frame but for `event_time`, then `rank` (int), `result_time` and `final_at` (timestamp).
        """
        [rows] = frames
        self._check(rows)
        own = [c for c in rows.columns if c not in (EVENT_TIME, RESULT_TIME, FINAL_AT)]
        within = Window.partitionBy(WINDOW_START, WINDOW_END, *names(self.by)).orderBy(*self._total(own))
        last = F.col(WINDOW_END) - F.expr("INTERVAL 1 MILLISECOND")
        ranked = rows.select(*own, F.row_number().over(within).alias(RANK), last.alias(RESULT_TIME), last.alias(FINAL_AT))
        return ranked.where(F.col(RANK) <= self.k)

    def _total(self, columns: Sequence[str]) -> list[Column]:
        settled = {*self.columns, *names(self.by), WINDOW_START, WINDOW_END}
        return [o.by() for o in self.order] + [F.col(c).asc_nulls_first() for c in columns if c not in settled]

    def _check(self, rows: DataFrame) -> None:
        check_time(rows, WINDOW_START, "window_start")
        check_time(rows, WINDOW_END, "window_end")
        check_present(rows, self.columns, "order_by")
        check_present(rows, names(self.by), "by")
        check_distinct([*(c for c in rows.columns if c not in (RESULT_TIME, FINAL_AT)), RANK])
        if rows.isStreaming:
            why = "Spark ranks no streaming frame by anything but time"
            raise StreamingError.refused("TopK", why, "let the engine run it on closed windows, or rank in `foreachBatch`")
