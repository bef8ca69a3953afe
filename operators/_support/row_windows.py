"""The windows of an operator with one input: assigned by event time, or read from the rows' own columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.lateness import Lateness
from operators._support.window_assignment import assign_windows, is_missed, last_final_at, missed_before, reads_windows
from operators.columns import WINDOW_END, WINDOW_START, check_time
from operators.contract import EVENT_TIME, NEVER_LATE, ByTimeRange, plain
from operators.windows import Aligned


class RowWindows(Protocol):
    """The windows of an operator's rows, and the parts of the operator contract that depend on them."""

    @property
    def reads(self) -> ByTimeRange:
        """What a step reads."""
        ...

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Whether all windows of a row had closed."""
        ...

    def late_before(self, watermark: int) -> int | None:
        """The time before which all windows of a row had closed; None if there are gaps between windows."""
        ...

    def final_at(self) -> Column:
        """When the last window of a row is final; null if it is in none."""
        ...

    def check(self, rows: DataFrame) -> None:
        """Raise `ColumnError` unless the rows have the columns that decide their windows."""
        ...


@dataclass(frozen=True)
class AssignedWindows:
    """Windows that are assigned to rows by their event time.

    Args:
        window: the windows.
        time: the event time, a timestamp column.
        lateness: the allowed lateness.
    """

    window: Aligned
    time: str
    lateness: Lateness

    @property
    def reads(self) -> ByTimeRange:
        """Closed ranges, and rows with the watermark before their batch."""
        return reads_windows(self.window, self.lateness)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Whether all windows of a row had closed."""
        return is_missed(self.window, event_time, watermark, self.lateness)

    def late_before(self, watermark: int) -> int | None:
        """The time before which all windows of a row had closed; None if there are gaps between windows."""
        return missed_before(self.window, watermark, self.lateness)

    def final_at(self) -> Column:
        """When the last window of a row is final; null in a gap between windows."""
        return last_final_at(self.window, F.col(self.time))

    def check(self, rows: DataFrame) -> None:
        """Raise `ColumnError` unless the rows have the event time."""
        check_time(plain(rows), self.time, "time")

    def assign(self, rows: DataFrame, group: Sequence[str] = ()) -> DataFrame:
        """Rows, once for each of their windows that accepted them, with the `WINDOW`."""
        return assign_windows(rows, self.window, time=self.time, lateness=self.lateness, group=group)


class ResultWindows:
    """The windows that rows already have, as results of a windowed operator: `window_start` and `window_end`."""

    @property
    def reads(self) -> ByTimeRange:
        """Closed ranges of a derived table: the windows that end in the range."""
        return ByTimeRange(lookback=(0,), results=True)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Never: the operator that made the windows has decided the lateness of their rows."""
        return F.lit(False)

    def late_before(self, watermark: int) -> int:
        """No row is late."""
        return NEVER_LATE

    def final_at(self) -> Column:
        """The result's own time."""
        return F.col(EVENT_TIME)

    def check(self, rows: DataFrame) -> None:
        """Raise `ColumnError` unless the rows have a window."""
        for bound in (WINDOW_START, WINDOW_END):
            check_time(plain(rows), bound, bound)
