"""Windows as checked values, and one way to assign rows to them: by panes.

A pane is the longest stretch of time that lies in every window it touches whole, so a row is placed once, in its pane,
however many windows overlap there; what was counted by pane is then handed to the windows. Times are epoch
milliseconds, windows `[start, end)`, before 1970 as after it. A window's `result_time` and `final_at` are its
last millisecond, `end - 1 ms`, as in Flink; a session, which is no pane's, is final at its `end`.

Every window tells its `longest` length and its `pane` length in ms, an `origin` at which a pane
starts, the windows `of_pane` (an array of `start` and `end`, bigint, rising), and the `last_end` of those, null where there is none.
"""

from dataclasses import dataclass
from functools import cached_property
from math import gcd

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.columns import temporary
from operators.contract import WATERMARK
from operators.errors import OperatorError, WindowError
from operators.timing import Duration, duration_ms, millis

START, END = "start", "end"
PANE, CLOSED, WINDOW = temporary("pane"), temporary("closed"), temporary("window")
_WRITTEN_OUT = 64
"""As many windows of a pane are told one by one."""
_NO_WINDOWS = f"array<struct<{START}:bigint,{END}:bigint>>"


def pane_of(window: "Aligned", time: Column) -> Column:
    """The start of the pane that a time lies in, both in epoch ms; floored, so before 1970 too."""
    return time - _past(time, window.origin, window.pane)


def _past(time: Column, origin: int, length: int) -> Column:
    """How far a time lies past the newest of the instants `origin + n * length`, never below zero."""
    return F.pmod(time - F.lit(origin).cast("bigint"), F.lit(length).cast("bigint"))


def whole(parameter: str, value: Duration) -> int:
    """Read a duration of more than zero, in milliseconds."""
    length = duration_ms(value, parameter)
    if length <= 0:
        raise WindowError.empty(parameter, value)
    return length


class _Shifted:
    """Windows that may be shifted from 1970."""

    offset: Duration

    @cached_property
    def origin(self) -> int:
        """The offset in ms."""
        return duration_ms(self.offset, "offset")


@dataclass(frozen=True, kw_only=True)
class Tumbling(_Shifted):
    """Windows of one size, each beginning where the last one ends: `offset + n * size <= t < offset + (n + 1) * size`.

    Args:
        size: the length, more than zero: ms, a timedelta, or words such as `'1 hour'`.
        offset: how far the windows are shifted from 1970-01-01 00:00 UTC; it may be negative.

    Raises:
        OperatorError: a value is not legal.

    >>> Tumbling(size="1 day", offset="-8 hours").longest
    86400000
    """

    size: Duration
    offset: Duration = 0

    def __post_init__(self) -> None:
        _ = self.pane, self.origin

    @cached_property
    def pane(self) -> int:
        """A pane is a window."""
        return whole("size", self.size)

    @property
    def longest(self) -> int:
        """The size in ms."""
        return self.pane

    def of_pane(self, pane: Column) -> Column:
        """The one window."""
        return F.array(window_of(pane, pane + self.pane))

    def last_end(self, pane: Column) -> Column:
        """The one window's end."""
        return pane + self.pane


@dataclass(frozen=True, kw_only=True)
class Sliding(_Shifted):
    """Windows of one size that begin at every `slide`: a row lies in all `[s, s + size)` with `s <= t < s + size`.

    Where `slide` is longer than `size` there are gaps, and a row in a gap lies in no window.

    Args:
        size: the length, more than zero.
        slide: the distance from one window's start to the next's, more than zero.
        offset: how far the windows are shifted from 1970-01-01 00:00 UTC; it may be negative.

    Raises:
        OperatorError: a value is not legal.

    >>> Sliding(size="10 s", slide="4 s").pane
    2000
    """

    size: Duration
    slide: Duration
    offset: Duration = 0

    def __post_init__(self) -> None:
        _ = self.pane, self.origin

    @cached_property
    def longest(self) -> int:
        """The size in ms."""
        return whole("size", self.size)

    @cached_property
    def step(self) -> int:
        """The slide in ms."""
        return whole("slide", self.slide)

    @cached_property
    def pane(self) -> int:
        """The greatest length that divides size and slide."""
        return gcd(self.longest, self.step)

    def of_pane(self, pane: Column) -> Column:
        """Up to `size / slide` windows, rounded up; none in a gap."""
        if self.pane == self.step and self.longest <= _WRITTEN_OUT * self.step:  # Spark generates code for these, and none for a lambda
            return F.array(*[window_of(pane - at, pane - at + self.longest) for at in range(self.longest - self.step, -1, -self.step)])
        newest = pane - self._past_newest(pane)
        others = F.floor((self.longest - self.pane - self._past_newest(pane)) / self.step).cast("bigint")
        starts = F.sequence(newest - others * self.step, newest, F.lit(self.step).cast("bigint"))
        found = F.transform(starts, lambda start: window_of(start, start + self.longest))
        return found if self._no_gaps else F.when(self._inside(pane), found).otherwise(F.array().cast(_NO_WINDOWS))

    def last_end(self, pane: Column) -> Column:
        """The end of the window that began last."""
        end = pane - self._past_newest(pane) + self.longest
        return end if self._no_gaps else F.when(self._inside(pane), end)

    @property
    def _no_gaps(self) -> bool:
        return self.step <= self.longest

    def _inside(self, pane: Column) -> Column:
        return self._past_newest(pane) < self.longest

    def _past_newest(self, pane: Column) -> Column:
        return _past(pane, self.origin, self.step)


@dataclass(frozen=True, kw_only=True)
class Cumulative(_Shifted):
    """Windows that begin together and end at every `step` until `size` is full: `[s, s + step)`, `[s, s + 2 * step)`, ... `[s, s + size)`.

    Args:
        size: the longest window's length, a multiple of `step`.
        step: how much longer each window is than the one before.
        offset: how far the windows are shifted from 1970-01-01 00:00 UTC; it may be negative.

    Raises:
        OperatorError: a value is not legal.

    >>> Cumulative(size="1 day", step="1 hour").pane
    3600000
    """

    size: Duration
    step: Duration
    offset: Duration = 0

    def __post_init__(self) -> None:
        if self.longest % self.pane:
            raise OperatorError.bad_value(
                "step", self.step, f"a length that divides `size` ({self.size!r}), or the last window would be cut short"
            )
        _ = self.origin

    @cached_property
    def longest(self) -> int:
        """The size in ms."""
        return whole("size", self.size)

    @cached_property
    def pane(self) -> int:
        """The step in ms."""
        return whole("step", self.step)

    def of_pane(self, pane: Column) -> Column:
        """The windows that end after the pane, up to the longest."""
        start = self._start(pane)
        ends = F.sequence(pane + self.pane, start + self.longest, F.lit(self.pane).cast("bigint"))
        return F.transform(ends, lambda end: window_of(start, end))

    def last_end(self, pane: Column) -> Column:
        """The end of the longest window."""
        return self._start(pane) + self.longest

    def _start(self, pane: Column) -> Column:
        return pane - _past(pane, self.origin, self.longest)


Aligned = Tumbling | Sliding | Cumulative
"""The windows whose place does not depend on the rows."""


def window_of(start: Column, end: Column) -> Column:
    """A window, from its bounds in epoch ms."""
    return F.struct(start.cast("bigint").alias(START), end.cast("bigint").alias(END))


def in_panes(rows: DataFrame, window: Aligned, time: str, lateness: int = 0) -> DataFrame:
    """Rows with their `PANE`, and `CLOSED`: the instant up to which windows took no more rows, where one of the row's had ended.

    That is the watermark before the row, less the allowed lateness. Rows with a null time are left out. Without
    `WATERMARK` every window took the row.
    """
    placed = rows.where(F.col(time).isNotNull()).withColumn(PANE, pane_of(window, millis(F.col(time))))
    before = millis(F.col(WATERMARK)) - F.lit(lateness) if WATERMARK in rows.columns else F.lit(None).cast("bigint")
    return placed.withColumn(CLOSED, F.when(before >= F.col(PANE) + window.pane - 1, before)).drop(WATERMARK)


def in_windows(placed: DataFrame, window: Aligned) -> DataFrame:
    """Rows or panes, once for each of their windows that was open when they came, with the `WINDOW`."""
    each = placed.withColumn(WINDOW, F.explode(window.of_pane(F.col(PANE))))
    return each.where(F.col(CLOSED).isNull() | (F.col(WINDOW)[END] - 1 > F.col(CLOSED)))
