"""Deduplicate: one row a key, the first or the last, of the whole stream or of each window."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.panes import WINDOW
from operators._support.window_assignment import (
    assign_windows,
    check_aligned,
    is_missed,
    last_final_at,
    reads_windows,
    window_bounds,
    window_times,
)
from operators.columns import FINAL_AT, RESULT_TIME, WINDOW_END, WINDOW_START, check_distinct, check_present, check_time, names, temporary
from operators.contract import ARRIVAL, EVENT_TIME, SEQ, SETTLED, WHICH, Append, Closed, Entries, Upsert, plain, tie_breakers
from operators.errors import OperatorError, StreamingError
from operators.timing import Duration, length_ms
from operators.windows import Aligned

Keep = Literal["first", "last"]
By = Literal["event_time", "arrival"]
_ROW = temporary("row")


@dataclass(frozen=True, kw_only=True)
class Deduplicate:
    """Of each key the first or the last row, by event time or by arrival; with a window, of each key and window.

    Of rows with one event time the one that arrived first is the first, the one that arrived last is the last; where the frame
    does not tell, they go by their other columns of plain types, nulls first. A null key is an ordinary key. By event time, a
    row with a null time is left out.

    Over the whole stream the table is kept current: a step replaces a key's row where a new one goes before it. By event time a
    first row is final when the watermark reaches it, so a row is late when `event_time <= watermark`, and is left out; a
    last row, or one by arrival, is never late. With a window a result is added at the window's end, `result_time = final_at =
    end - 1 ms`, and rows are judged for each of their windows, as in `WindowedAggregate`.

    The semantics are those of Flink's SQL deduplication and window deduplication (`ROW_NUMBER() = 1`); where Flink waits with a
    first row by event time until the watermark reaches it, it is here at once, and may still be replaced.

    Args:
        by: the key columns.
        keep: which row of a key.
        order: what makes a row the first: its event time, or when it arrived.
        window: where the windows lie; None for the whole stream.
        time: the event time, a timestamp column.
        allowed_lateness: with a window, how long after its end, in the watermark's time, a row may still replace its result.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> Deduplicate(by="order_id", keep="last").emits
    Upsert(key=('order_id',))
    """

    by: str | Sequence[str]
    keep: Keep = "first"
    order: By = "event_time"
    window: Aligned | None = None
    time: str = EVENT_TIME
    allowed_lateness: Duration = 0

    def __post_init__(self) -> None:
        check_aligned(self.window, "a session's first or last row is a `min_by` or `max_by` of a WindowedAggregate")
        if self.lateness and not self.window:
            legal = "zero without a `window`: of the whole stream a row is kept current however late it is"
            raise OperatorError.bad_value("allowed_lateness", self.allowed_lateness, legal)
        if not self.key:
            raise OperatorError.bad_value("by", self.by, "at least one column; without a key one row would be left of all")
        if self.keep not in get_args(Keep):
            raise OperatorError.bad_value("keep", self.keep, ", ".join(get_args(Keep)))
        if self.order not in get_args(By):
            raise OperatorError.bad_value("order", self.order, ", ".join(get_args(By)))

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return names(self.by)

    @cached_property
    def lateness(self) -> int:
        """The allowed lateness in ms."""
        return length_ms(self.allowed_lateness, "allowed_lateness")

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("rows",)

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`)."""
        return (*inputs[0], *((WINDOW_START, WINDOW_END, RESULT_TIME, FINAL_AT) if self.window else ()))

    @property
    def emits(self) -> Append | Upsert:
        """A window has one row of each key; of the whole stream the table is kept current by key."""
        return Append((*self.key, WINDOW_START, WINDOW_END)) if self.window else Upsert(self.key)

    @property
    def reads(self) -> Closed | Entries:
        """With a window closed ranges; else new entries, folded into the current rows."""
        return reads_windows(self.window, self.lateness) if self.window else Entries()

    def late(self, event_time: Column, watermark: Column) -> Column:
        """With a window, whether none took the row; else only of first rows by event time, `event_time <= watermark`."""
        if self.window:
            return is_missed(self.window, event_time, watermark, self.lateness)
        return F.coalesce(event_time <= watermark, F.lit(False)) if (self.keep, self.order) == ("first", "event_time") else F.lit(False)

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Deduplicate a frame.

        Args:
            frames: the rows, static; `seq` and `arrival` order them where their times do not.

        Returns:
            The columns of the frame; with a window also `window_start`, `window_end`, `result_time` and `final_at` (timestamp).
        """
        [rows] = frames
        self._check(rows)
        if not self.window:
            return self._chosen(rows, self.key)
        each = assign_windows(rows, self.window, time=self.time, lateness=self.lateness, group=self.key)
        return self._chosen(each, (*self.key, WINDOW)).select(*plain(rows).columns, *window_bounds(), *window_times(self.window))

    def settles(self, *frames: DataFrame) -> DataFrame:
        """With a window, when a row's last one is final (see `Settling`); else never."""
        [rows] = frames
        final = last_final_at(self.window, F.col(self.time)) if self.window else F.lit(None).cast("timestamp")
        return rows.select(F.lit(0).alias(WHICH), EVENT_TIME, final.alias(SETTLED))

    def fold(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        """The rows of the touched keys, from those before the step and the new entries' rows."""
        [rows] = frames
        return self._chosen(current.unionByName(rows), self.key)

    def _chosen(self, rows: DataFrame, key: Sequence[str]) -> DataFrame:
        timed = self.order == "event_time"
        order = F.struct(*([F.col(self.time)] if timed else []), *tie_breakers(rows))
        choose = F.min_by if self.keep == "first" else F.max_by
        there = rows.where(F.col(self.time).isNotNull()) if timed else rows
        return there.groupBy(*key).agg(choose(F.struct(*rows.columns), order).alias(_ROW)).select(f"{_ROW}.*")

    def _check(self, rows: DataFrame) -> None:
        frame = plain(rows)
        check_present(frame, self.key, "by")
        check_time(frame, self.time, "time")
        if self.order == "arrival":
            check_present(frame, (SEQ, ARRIVAL), "order")
        if self.window:
            check_distinct([*frame.columns, WINDOW_START, WINDOW_END, RESULT_TIME, FINAL_AT])
        if rows.isStreaming:
            why = "Spark keeps the first row that it meets, whatever its time, and drops late rows unseen"
            raise StreamingError.refused("Deduplicate", why, "let the engine run it, or use Spark's `dropDuplicatesWithinWatermark`")
