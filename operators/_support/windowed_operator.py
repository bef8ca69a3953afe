"""The part of the operator contract that all operators over windows share."""

from collections.abc import Sequence
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.firings import FIRING, Purging, firing_reads, reach_time
from operators._support.lateness import Lateness
from operators._support.matched_rows import finality
from operators._support.panes import WINDOW
from operators._support.session_lateness import lateness_decisions
from operators._support.session_windows import TIME
from operators._support.window_assignment import (
    are_all_windows_closed,
    assign_shared_windows,
    bound_of_closed_windows,
    last_final_at,
    lateness_columns,
    union_inputs,
    window_reads,
)
from operators.columns import WINDOW_END, WINDOW_START
from operators.engine_columns import ARRIVAL, EVENT_TIME, FINALIZED_AT, NEW, SEQ, SESSION, WATERMARK, WHICH
from operators.errors import OperatorError
from operators.steps import Append, ByTimeRange
from operators.timing import Duration, timestamp
from operators.triggers import Trigger, shown_columns
from operators.windows import END, AnyWindow, Session


class WindowedOperator:
    """The contract of an operator whose results all belong to windows."""

    window: AnyWindow
    allowed_lateness: Duration
    early: Trigger | None = None
    purging: Purging | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs."""
        raise NotImplementedError

    @property
    def result_key(self) -> tuple[str, ...]:
        """The columns that identify a result; empty if only the whole row does."""
        return ()

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which rows are grouped."""
        raise NotImplementedError

    @property
    def window_key(self) -> tuple[str, ...]:
        """The columns of a result that identify its window (see `EarlyByWindow`)."""
        return (*self.key, WINDOW_START, WINDOW_END)

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns of a result that have the window's bounds, and the number of the firing if the window purges."""
        return (WINDOW_START, WINDOW_END, *(() if self.purging is None else (FIRING,)))

    @property
    def shown_columns(self) -> tuple[str, ...]:
        """The columns that early results have in addition; none without a trigger."""
        return shown_columns(self.early)

    @cached_property
    def lateness(self) -> Lateness:
        """The allowed lateness."""
        return Lateness.read(self.allowed_lateness)

    @property
    def emits(self) -> Append:
        """Results are added when their windows end; rows within the allowed lateness correct them."""
        return Append(self.result_key)

    @property
    def reads(self) -> ByTimeRange:
        """Closed ranges, and rows with the watermark before their batch or with recorded lateness decisions."""
        reads = window_reads(self.window, self.lateness, len(self.inputs))
        return reads if self.purging is None else firing_reads(reads, self.lateness.ms)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Whether all windows of a row had closed: `last end - 1 ms + allowed lateness <= watermark`; false in a gap between windows.

        For sessions, whether the row would be late as the only one of its session; `lateness_decisions` gives the decision.
        """
        return are_all_windows_closed(self.window, event_time, watermark, self.lateness)

    def late_before(self, watermark: int) -> int | None:
        """The time before which all windows of a row had closed (see `BoundsLateness`); None for sessions, or if there are gaps."""
        return None if isinstance(self.window, Session) else bound_of_closed_windows(self.window, watermark, self.lateness)

    def group_and_time(self, frame: DataFrame, index: int) -> tuple[list[Column], str]:
        """The columns that group the rows of input `index`, with the same names for all inputs, and the input's event time."""
        raise NotImplementedError

    def lateness_decisions(self, watermark: int, *frames: DataFrame) -> DataFrame:
        """Decide which rows of a batch are late for sessions, where they may join older rows (see `DecidesLateness`)."""
        if not isinstance(self.window, Session):
            raise OperatorError(f"{type(self).__name__} over {type(self.window).__name__} decides lateness row by row: call `late`")
        inputs = [self._grouping_columns(frame, index, *_batch_position(frame), NEW) for index, frame in enumerate(frames)]
        return lateness_decisions(reduce(DataFrame.unionByName, inputs), self.window, self.lateness, watermark)

    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        """When the last window of a row is final; null in a gap between windows (see `ReportsFinality`).

        With `purging`, a row that reaches its last window after the window's last millisecond is final when it reaches the window.
        """
        return self._finality(frames)

    def finalized_by_time(self, which: int, event_time: Column) -> Column | None:
        """When the last window of a row is final (see `FinalizesByTime`); None for sessions, and with `purging`."""
        return None if isinstance(self.window, Session) or self.purging is not None else last_final_at(self.window, event_time)

    def _finality(self, frames: Sequence[DataFrame], *columns: str) -> DataFrame:
        """When the last window of a row is final, as `finalized_at`; with some of the frames' columns."""
        if self.purging is None and not isinstance(self.window, Session):
            window, times = self.window, [self.group_and_time(frame, index)[1] for index, frame in enumerate(frames)]
            return finality(frames, times, lambda _, time: last_final_at(window, time), *columns)
        watermarks = [[WATERMARK] if self.purging is not None and WATERMARK in frame.columns else [] for frame in frames]
        inputs = [self._grouping_columns(f, index, EVENT_TIME, *columns, *watermarks[index]) for index, f in enumerate(frames)]
        if isinstance(self.window, Session):
            group = [c for c in inputs[0].columns if c not in (TIME, WHICH, SESSION, EVENT_TIME, *columns)]
            rows_in_windows = assign_shared_windows(inputs, self.window, self.lateness, group)
            return rows_in_windows.select(WHICH, EVENT_TIME, timestamp(F.col(WINDOW)[END]).alias(FINALIZED_AT), *columns)
        rows, final_at = union_inputs(inputs), last_final_at(self.window, F.col(TIME))
        reached_at = F.when(final_at.isNotNull(), F.greatest(final_at, timestamp(reach_time(rows, F.col(TIME)))))
        return rows.select(WHICH, EVENT_TIME, reached_at.alias(FINALIZED_AT), *columns)

    def _grouping_columns(self, frame: DataFrame, index: int, *columns: Column | str) -> DataFrame:
        """The columns that decide a row's windows: its group, its time, and the session that it was assigned to before."""
        group, time = self.group_and_time(frame, index)
        session = [c for c in lateness_columns(frame) if c == SESSION]
        return frame.select(*group, F.col(time).alias(TIME), F.lit(index).alias(WHICH), *session, *columns)


def _batch_position(frame: DataFrame) -> list[Column]:
    """`seq` and `arrival`; null where a frame has none."""
    return [F.col(c) if c in frame.columns else F.lit(None).cast("bigint").alias(c) for c in (SEQ, ARRIVAL)]
