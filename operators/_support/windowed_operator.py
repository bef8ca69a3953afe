"""Rows into windows of any kind, and the contract that follows from the windows."""

from collections.abc import Sequence
from functools import cached_property, partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.columns import FINAL_AT, RESULT_TIME, WINDOW_END, WINDOW_START, temporary
from operators.contract import ARRIVAL, EVENT_TIME, NEW, SEQ, SESSION, SETTLED, WATERMARK, WHICH, Append, Closed
from operators.errors import OperatorError
from operators.sessions import TIME, Session, in_sessions, verdicts
from operators.timing import Duration, length_ms, millis, timestamp
from operators.windows import END, START, WINDOW, Aligned, in_panes, in_windows, pane_of

AnyWindow = Aligned | Session
"""Every kind of window."""
APART = temporary("apart")


def check_aligned(window: object, way_out: str) -> None:
    """Raise `OperatorError` where a window is a session, whose rows only an operator that gives verdicts can judge."""
    if isinstance(window, Session):
        raise OperatorError.bad_value("window", window, f"Tumbling, Sliding or Cumulative; {way_out}")


def placed(rows: DataFrame, window: AnyWindow, *, time: str, lateness: int, group: Sequence[str]) -> DataFrame:
    """Rows, once for each of their windows that took them when they came, with the `WINDOW`; sessions are those of a group."""
    if isinstance(window, Session):
        return in_sessions(rows, window, group, time)
    return in_windows(in_panes(rows, window, time, lateness), window)


def together(sides: Sequence[DataFrame], window: AnyWindow, lateness: int, group: Sequence[str]) -> DataFrame:
    """Rows of several sides, each with the group's columns and `TIME`, placed as one: what a side lacks is null."""
    both = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), sides)
    return placed(both, window, time=TIME, lateness=lateness, group=group)


def side_group(key: Sequence[str], which: int) -> list[Column]:
    """The group that a row of one of two sides lies in: its key, and `APART` for a null one, which meets no other side's."""
    alone = reduce(lambda a, b: a | b, [F.col(c).isNull() for c in key])
    return [*map(F.col, key), F.when(alone, which).alias(APART)]


def judged(frame: DataFrame) -> list[str]:
    """The columns of a frame that tell how its rows were judged."""
    return [c for c in (WATERMARK, SESSION) if c in frame.columns]


def missed(window: AnyWindow, event_time: Column, watermark: Column, lateness: int = 0) -> Column:
    """Whether no window took a row: `last end - 1 ms + lateness <= watermark`. A row in a gap between windows has missed none.

    Of sessions, whether a row would have come too late on its own; one that goes on may take it.
    """
    if isinstance(window, Session):
        return F.coalesce(millis(event_time) + window.gap_ms + F.lit(lateness) <= millis(watermark), F.lit(False))
    return F.coalesce(_last_moment_of(window, event_time) + F.lit(lateness) <= millis(watermark), F.lit(False))


def last_final(window: Aligned, time: Column) -> Column:
    """When the last window that holds a time is final: its last millisecond; null in a gap."""
    return timestamp(_last_moment_of(window, time))


def _last_moment_of(window: Aligned, time: Column) -> Column:
    """The last millisecond of the last window that holds a time, in epoch ms; null in a gap."""
    return window.last_end(pane_of(window, millis(time))) - 1


def closed_with(window: AnyWindow, lateness: int, inputs: int = 1) -> Closed:
    """The closed ranges that hold windows whole: of rows with the watermark that was in force before them, or with recorded verdicts."""
    if isinstance(window, Session):
        return Closed(reach=(window.reach,) * inputs, delay=1, lateness=lateness, recorded=True)
    return Closed(reach=(window.longest,) * inputs, judged=True, lateness=lateness)


class InWindows:
    """The contract of an operator all of whose results are those of windows."""

    window: AnyWindow
    allowed_lateness: Duration

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs."""
        raise NotImplementedError

    @property
    def result_key(self) -> tuple[str, ...]:
        """The columns that name a result; none where only the whole row does."""
        return ()

    @cached_property
    def lateness(self) -> int:
        """The allowed lateness in ms."""
        return length_ms(self.allowed_lateness, "allowed_lateness")

    @property
    def emits(self) -> Append:
        """Results are added when their windows end; rows within the allowed lateness correct them."""
        return Append(self.result_key)

    @property
    def reads(self) -> Closed:
        """Closed ranges, and rows with the watermark that was in force before them."""
        return closed_with(self.window, self.lateness, len(self.inputs))

    def late(self, event_time: Column, watermark: Column) -> Column:
        """Whether no window took a row: `last end - 1 ms + allowed lateness <= watermark`; never in a gap between windows.

        Of sessions, whether a row would have been late alone: `verdicts` tells which were.
        """
        return missed(self.window, event_time, watermark, self.lateness)

    def groups(self, frame: DataFrame, which: int) -> tuple[list[Column], str]:
        """What makes the group that a row of input `which` lies in, by the same names for all, and the input's event time."""
        raise NotImplementedError

    def verdicts(self, watermark: int, *frames: DataFrame) -> DataFrame:
        """Judge the rows of an entry that lie behind the watermark, with sessions: first merged, then judged (see `Judging`)."""
        if not isinstance(self.window, Session):
            raise OperatorError(f"{type(self).__name__} over {type(self.window).__name__} judges each row by itself: ask `late`")
        known = [[F.col(c) if c in frame.columns else F.lit(None).cast("bigint").alias(c) for c in (SEQ, ARRIVAL)] for frame in frames]
        sides = [self._side_by_group(frame, which, *known[which], NEW) for which, frame in enumerate(frames)]
        return verdicts(reduce(DataFrame.unionByName, sides), self.window, self.lateness, watermark)

    def settles(self, *frames: DataFrame) -> DataFrame:
        """When a row's last window is final; null in a gap between windows (see `Settling`)."""
        sides = [self._side_by_group(frame, which, EVENT_TIME) for which, frame in enumerate(frames)]
        if isinstance(self.window, Session):
            group = [c for c in sides[0].columns if c not in (TIME, WHICH, SESSION, EVENT_TIME)]
            each = together(sides, self.window, self.lateness, group)
            return each.select(WHICH, EVENT_TIME, timestamp(F.col(WINDOW)[END]).alias(SETTLED))
        both = reduce(DataFrame.unionByName, [side.select(WHICH, EVENT_TIME, TIME) for side in sides])
        return both.select(WHICH, EVENT_TIME, last_final(self.window, F.col(TIME)).alias(SETTLED))

    def _side_by_group(self, frame: DataFrame, which: int, *more: Column | str) -> DataFrame:
        """What tells a row's windows: its group and its time, and the session it stays in."""
        group, time = self.groups(frame, which)
        return frame.select(*group, F.col(time).alias(TIME), F.lit(which).alias(WHICH), *[c for c in judged(frame) if c == SESSION], *more)


def bounds() -> tuple[Column, Column]:
    """`window_start` and `window_end`."""
    window = F.col(WINDOW)
    return timestamp(window[START]).alias(WINDOW_START), timestamp(window[END]).alias(WINDOW_END)


def last_moment(window: AnyWindow) -> tuple[Column, Column]:
    """`result_time`, the window's last millisecond, and `final_at`: the same, but for a session its end."""
    last, end = timestamp(F.col(WINDOW)[END] - 1), timestamp(F.col(WINDOW)[END])
    return last.alias(RESULT_TIME), (end if isinstance(window, Session) else last).alias(FINAL_AT)


def times_of_end() -> dict[str, Column]:
    """`result_time` and `final_at` by `window_end`: its last millisecond, whole windows being final then."""
    last = F.col(WINDOW_END) - F.expr("INTERVAL 1 MILLISECOND")
    return {RESULT_TIME: last, FINAL_AT: last}
