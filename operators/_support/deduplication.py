"""Deduplicates the whole stream, or each window."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators._support.panes import WINDOW
from operators._support.row_windows import SOURCE_WINDOW, AssignedWindows
from operators._support.time_to_live import GENERATION, TimeToLive, ends_at_or_after
from operators._support.window_assignment import window_bounds, window_times
from operators.columns import FINAL_AT, RESULT_TIME, WINDOW_END, WINDOW_START, quoted, quoted_name, temporary
from operators.contract import NEVER_LATE
from operators.engine_columns import EVENT_TIME, FINALIZED_AT, WHICH, drop_engine_columns, tie_breakers
from operators.errors import OperatorError
from operators.steps import Append, ByKey, ByTimeRange, NewRows, Upsert
from operators.triggers import ROWS_SEEN

Keep = Literal["first", "last"]
RowOrder = Literal["event_time", "arrival"]
_ROW = temporary("row")


@dataclass(frozen=True)
class RowChoice:
    """Which row of a group is kept.

    Args:
        keep: the first or the last.
        order: what orders the rows.
        time: the event time, a timestamp column.
    """

    keep: Keep
    order: RowOrder
    time: str

    def select(self, rows: DataFrame, group: Sequence[str]) -> DataFrame:
        """The row that is kept of each group; by event time, rows with a null time are dropped."""
        choose = F.min_by if self.keep == "first" else F.max_by
        chosen_row = F.struct(*quoted(rows.columns))
        if self.order == "event_time":
            rows = rows.where(F.col(self.time).isNotNull())
        return rows.groupBy(*group).agg(choose(chosen_row, self._order(rows)).alias(_ROW)).select(f"{_ROW}.*")

    def _order(self, rows: DataFrame) -> Column:
        time = [F.col(self.time)] if self.order == "event_time" else []
        return F.struct(*time, *tie_breakers(rows))


@dataclass(frozen=True)
class StreamDeduplication:
    """Keeps one row of each key of the whole stream; the table is updated by key.

    Args:
        key: the key columns.
        choice: which row is kept.
        ttl: how long a key's rows count; None for no limit.
    """

    key: tuple[str, ...]
    choice: RowChoice
    ttl: TimeToLive | None = None
    added: tuple[str, ...] = ()
    """The columns that the result adds."""

    def input_columns(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The names of the rows' own columns in the result."""
        return tuple(columns)

    @property
    def emits(self) -> Upsert:
        """One row of each key."""
        return Upsert(self.key)

    @property
    def reads(self) -> NewRows | ByKey:
        """The rows of new batches, which are merged with the current rows; with a time to live, the kept rows of their keys too."""
        return self.ttl.reads(self.key) if self.ttl else NewRows()

    def late(self, event_time: Column, watermark: Column) -> Column:
        """`event_time <= watermark` for first rows by event time, else never."""
        return F.coalesce(event_time <= watermark, F.lit(False)) if self._is_final_behind_watermark else F.lit(False)

    def late_before(self, watermark: int) -> int:
        """The time after the watermark for first rows by event time, else `NEVER_LATE`."""
        return watermark + 1 if self._is_final_behind_watermark else NEVER_LATE

    @property
    def _is_final_behind_watermark(self) -> bool:
        """Whether a key's row is final once the watermark has passed it."""
        return (self.choice.keep, self.choice.order) == ("first", "event_time")

    def lateness_decisions(self, watermark: int, *frames: DataFrame) -> DataFrame:
        """Raise `OperatorError`: lateness depends only on a row and the watermark."""
        raise OperatorError("Deduplicate without a `window` decides lateness row by row: call `late`")

    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        """Null for every row: without windows, no row is reported as finalized."""
        [rows] = frames
        return rows.select(F.lit(0).alias(WHICH), EVENT_TIME, F.lit(None).cast("timestamp").alias(FINALIZED_AT))

    def finalized_by_time(self, which: int, event_time: Column) -> Column:
        """Null: no row is ever finalized."""
        return F.lit(None).cast("timestamp")

    def deduplicate(self, rows: DataFrame) -> DataFrame:
        """The row of each key."""
        return self.choice.select(self.ttl.current_rows(self.key, rows) if self.ttl else rows, self.key)

    def still_needed(self, rows: DataFrame, oldest: int | None) -> DataFrame:
        """The chosen row of each generation of a key that did not end before `oldest` (ms); it stands for its generation."""
        if self.ttl is None:
            return rows
        periods = self.ttl.with_periods(self.key, rows).where(ends_at_or_after(oldest))
        return self.choice.select(periods, (*self.key, GENERATION)).drop(GENERATION)

    def so_far(self, rows: DataFrame) -> DataFrame:
        """Raise `OperatorError`: there are no windows."""
        raise OperatorError("Deduplicate without a `window` has no open windows: its table has the current row of each key")


@dataclass(frozen=True)
class WindowDeduplication:
    """Keeps one row of each key and window.

    Args:
        key: the key columns.
        choice: which row is kept.
        windows: the windows.
    """

    key: tuple[str, ...]
    choice: RowChoice
    windows: AssignedWindows
    added: tuple[str, ...] = (WINDOW_START, WINDOW_END, RESULT_TIME, FINAL_AT)
    """The columns that the result adds."""

    def input_columns(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The names of the rows' own columns in the result: a window that the rows had before gets another name."""
        return tuple(SOURCE_WINDOW.get(c, c) for c in columns)

    @property
    def emits(self) -> Append:
        """One row of each key and window."""
        return Append((*self.key, WINDOW_START, WINDOW_END))

    @property
    def reads(self) -> ByTimeRange:
        """Closed ranges, and rows with the watermark before their batch."""
        return self.windows.reads

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Whether all windows of a row had closed."""
        return self.windows.late(event_time, watermark)

    def late_before(self, watermark: int) -> int | None:
        """The time before which all windows of a row had closed; None for sessions, or if there are gaps between windows."""
        return self.windows.late_before(watermark)

    def lateness_decisions(self, watermark: int, *frames: DataFrame) -> DataFrame:
        """Decide which rows of a batch are late for sessions (see `DecidesLateness`)."""
        return self.windows.lateness_decisions(watermark, *frames)

    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        """When the last window of each row is final; null in a gap between windows."""
        return self.windows.finalized_at(*frames)

    def finalized_by_time(self, which: int, event_time: Column) -> Column | None:
        """When the last window of a row with an event time is final; None for sessions."""
        return self.windows.finalized_by_time(which, event_time)

    def deduplicate(self, rows: DataFrame) -> DataFrame:
        """The row of each key and window, with the window and its times."""
        return self._choose_by_window(self.windows.assign(rows), drop_engine_columns(rows).columns)

    def still_needed(self, rows: DataFrame, oldest: int | None) -> DataFrame:
        """Raise `OperatorError`: a step reads the rows of its windows."""
        raise OperatorError("Deduplicate with a `window` keeps no rows beside its table: a step reads the rows of its windows")

    def so_far(self, rows: DataFrame) -> DataFrame:
        """What `deduplicate` returns, with `ROWS_SEEN`: the number of rows of the key in the window."""
        row_count = F.count("*").over(Window.partitionBy(*self.key, WINDOW))
        return self._choose_by_window(
            self.windows.assign(rows).withColumn(ROWS_SEEN, row_count), drop_engine_columns(rows).columns, ROWS_SEEN
        )

    def _choose_by_window(self, rows: DataFrame, columns: Sequence[str], *row_count: str) -> DataFrame:
        """The chosen row of each key and window, with the result's names of some columns.

        Args:
            rows: the rows in their windows.
            columns: the columns of the input.
            row_count: the column with the number of the window's rows, if the result has it.
        """
        chosen_rows = self.choice.select(rows, (*self.key, WINDOW))
        renamed = [F.col(quoted_name(c)).alias(name) for c, name in zip(columns, self.input_columns(columns), strict=True)]
        return chosen_rows.select(*renamed, *window_bounds(), *row_count, *window_times(self.windows.window))
