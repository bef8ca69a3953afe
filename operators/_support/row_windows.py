"""The windows of an operator with one input: assigned by event time, or read from the rows' own columns."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.window_assignment import assign_windows, times_of_end
from operators._support.windowed_operator import WindowedOperator
from operators.columns import FINAL_AT, WINDOW_END, WINDOW_START, check_present, check_time
from operators.contract import NEVER_LATE
from operators.engine_columns import EVENT_TIME, FINALIZED_AT, WHICH, drop_engine_columns
from operators.errors import OperatorError
from operators.steps import ByTimeRange
from operators.timing import Duration
from operators.windows import AnyWindow, Session

SOURCE_WINDOW = {name: f"source_{name}" for name in (WINDOW_START, WINDOW_END)}
"""The result's names of the input's window columns, for a result that has windows of its own."""


@dataclass(frozen=True)
class AssignedWindows(WindowedOperator):
    """Windows that are assigned to rows by their event time.

    Args:
        window: the windows.
        time: the event time, a timestamp column.
        allowed_lateness: how long after its end, in the watermark's time, a window still accepts rows.
        group: the columns of a group, whose rows form sessions; windows of other kinds do not depend on groups.
    """

    window: AnyWindow
    time: str
    allowed_lateness: Duration
    group: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("rows",)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of a group."""
        return self.group

    def group_and_time(self, frame: DataFrame, index: int) -> tuple[list[Column], str]:
        """The columns of a group, and the time."""
        return [F.col(c) for c in self.key], self.time

    def times(self) -> dict[str, Column]:
        """`result_time`, the last millisecond of the window, and `final_at`: the same, or the end of a session."""
        return {**times_of_end(), **({FINAL_AT: F.col(WINDOW_END)} if isinstance(self.window, Session) else {})}

    def check(self, rows: DataFrame) -> None:
        """Raise `ColumnError` unless the rows have the event time, and for sessions the columns of a group."""
        check_time(drop_engine_columns(rows), self.time, "time")
        if isinstance(self.window, Session):
            check_present(drop_engine_columns(rows), self.key, "by")

    def assign(self, rows: DataFrame) -> DataFrame:
        """Assign rows to the windows that accepted them: one row for each window, with `WINDOW`."""
        return assign_windows(rows, self.window, time=self.time, lateness=self.lateness, group=self.key)


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

    def lateness_decisions(self, watermark: int, *frames: DataFrame) -> DataFrame:
        """Raise `OperatorError`: no row is late."""
        raise OperatorError("the rows of a windowed operator's results are never late, so there is nothing to decide")

    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        """The result's own time."""
        [rows] = frames
        return rows.select(F.lit(0).alias(WHICH), EVENT_TIME, F.col(EVENT_TIME).alias(FINALIZED_AT))

    def finalized_by_time(self, which: int, event_time: Column) -> Column:
        """The result's own time."""
        return event_time

    def times(self) -> dict[str, Column]:
        """`result_time` and `final_at`: the last millisecond of the window."""
        return times_of_end()

    def check(self, rows: DataFrame) -> None:
        """Raise `ColumnError` unless the rows have a window."""
        for bound in (WINDOW_START, WINDOW_END):
            check_time(drop_engine_columns(rows), bound, bound)
