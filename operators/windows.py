"""Windows as checked values.

A window is `[start, end)` in epoch milliseconds. The same rules hold before 1970 as after it.

Time is divided into panes of equal length such that no window starts or ends inside a pane. A row is assigned to its one pane, however
many windows overlap there, and panes are then assigned to windows.

`Tumbling`, `Sliding` and `Cumulative` windows do not depend on the rows. Each has, in milliseconds, the length of its `longest`
window, the length of its `pane`, an `origin` at which a pane starts, and the `period` between the starts of its longest windows.
`windows_of_pane` gives the windows that contain a pane, as an array of `start` and `end` (bigint) in rising order, and `last_end` the
largest of their ends, or null if no window contains the pane. The `result_time` and `final_at` of such a window are its last millisecond,
`end - 1 ms`, as in Flink.

A `Session` depends on the rows of a key, has no panes, and is final at its `end`.
"""

from dataclasses import dataclass
from functools import cached_property
from math import gcd

from pyspark.sql import Column
from pyspark.sql import functions as F

from operators.errors import OperatorError
from operators.timing import Duration, check_not_too_long, duration_ms, positive_ms

START, END = "start", "end"
_MOST_LITERAL_WINDOWS = 64
"""Up to this many windows of a pane are written into the plan as literals."""
_NO_WINDOWS = f"array<struct<{START}:bigint,{END}:bigint>>"


def since_last_multiple(time: Column, origin: int, length: int) -> Column:
    """The time since the last instant `origin + n * length` at or before `time`, in ms."""
    return F.pmod(time - F.lit(origin).cast("bigint"), F.lit(length).cast("bigint"))


def window_of(start: Column, end: Column) -> Column:
    """A window as a struct, from its bounds in epoch ms."""
    return F.struct(start.cast("bigint").alias(START), end.cast("bigint").alias(END))


class _Shifted:
    """Windows that can be shifted from 1970."""

    offset: Duration

    @cached_property
    def origin(self) -> int:
        """The offset in ms."""
        origin = duration_ms(self.offset, "offset")
        check_not_too_long(self.offset, origin, "offset")
        return origin


@dataclass(frozen=True, kw_only=True)
class Tumbling(_Shifted):
    """Windows of one size, each of which starts where the one before ends: `offset + n * size <= t < offset + (n + 1) * size`.

    Args:
        size: the length, more than zero: ms, a timedelta, or words such as `'1 hour'`.
        offset: how far the windows are shifted from 1970-01-01 00:00 UTC; negative values are legal.

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
        """The size in ms: a pane is a whole window."""
        return positive_ms(self.size, "size")

    @property
    def longest(self) -> int:
        """The size in ms."""
        return self.pane

    @property
    def period(self) -> int:
        """The size in ms."""
        return self.pane

    def windows_of_pane(self, pane: Column) -> Column:
        """The one window."""
        return F.array(window_of(pane, pane + self.pane))

    def last_end(self, pane: Column) -> Column:
        """The one window's end."""
        return pane + self.pane


@dataclass(frozen=True, kw_only=True)
class Sliding(_Shifted):
    """Windows of one size; one starts every `slide`: a row is in each window `[s, s + size)` with `s <= t < s + size`.

    If `slide` is longer than `size`, there are gaps between the windows, and a row in a gap is in no window.

    Args:
        size: the length, more than zero.
        slide: the distance from one window's start to the next's, more than zero.
        offset: how far the windows are shifted from 1970-01-01 00:00 UTC; negative values are legal.

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
        return positive_ms(self.size, "size")

    @cached_property
    def step(self) -> int:
        """The slide in ms."""
        return positive_ms(self.slide, "slide")

    @property
    def period(self) -> int:
        """The slide in ms."""
        return self.step

    @cached_property
    def pane(self) -> int:
        """The greatest length that divides size and slide."""
        return gcd(self.longest, self.step)

    def windows_of_pane(self, pane: Column) -> Column:
        """Up to `size / slide` windows, rounded up; none in a gap."""
        if self.pane == self.step and self.longest <= _MOST_LITERAL_WINDOWS * self.step:  # Spark compiles these, but not a lambda
            return F.array(
                *[window_of(pane - shift, pane - shift + self.longest) for shift in range(self.longest - self.step, -1, -self.step)]
            )
        newest = pane - self._since_newest_start(pane)
        earlier_windows = F.floor((self.longest - self.pane - self._since_newest_start(pane)) / self.step).cast("bigint")
        starts = F.sequence(newest - earlier_windows * self.step, newest, F.lit(self.step).cast("bigint"))
        windows = F.transform(starts, lambda start: window_of(start, start + self.longest))
        return windows if self._is_gapless else F.when(self._is_in_a_window(pane), windows).otherwise(F.array().cast(_NO_WINDOWS))

    def last_end(self, pane: Column) -> Column:
        """The end of the window that started last."""
        end = pane - self._since_newest_start(pane) + self.longest
        return end if self._is_gapless else F.when(self._is_in_a_window(pane), end)

    @property
    def _is_gapless(self) -> bool:
        return self.step <= self.longest

    def _is_in_a_window(self, pane: Column) -> Column:
        return self._since_newest_start(pane) < self.longest

    def _since_newest_start(self, pane: Column) -> Column:
        return since_last_multiple(pane, self.origin, self.step)


@dataclass(frozen=True, kw_only=True)
class Cumulative(_Shifted):
    """Windows with the same start that end at every `step` up to `size`: `[s, s + step)`, `[s, s + 2 * step)`, ... `[s, s + size)`.

    Args:
        size: the longest window's length, a multiple of `step`.
        step: how much longer each window is than the one before.
        offset: how far the windows are shifted from 1970-01-01 00:00 UTC; negative values are legal.

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
            legal = f"a length that divides `size` ({self.size!r}), or the last window would be cut short"
            raise OperatorError.bad_value("step", self.step, legal)
        _ = self.origin

    @cached_property
    def longest(self) -> int:
        """The size in ms."""
        return positive_ms(self.size, "size")

    @property
    def period(self) -> int:
        """The size in ms."""
        return self.longest

    @cached_property
    def pane(self) -> int:
        """The step in ms."""
        return positive_ms(self.step, "step")

    def windows_of_pane(self, pane: Column) -> Column:
        """The windows that end after the pane, up to the longest."""
        start = self._start(pane)
        ends = F.sequence(pane + self.pane, start + self.longest, F.lit(self.pane).cast("bigint"))
        return F.transform(ends, lambda end: window_of(start, end))

    def last_end(self, pane: Column) -> Column:
        """The end of the longest window."""
        return self._start(pane) + self.longest

    def _start(self, pane: Column) -> Column:
        return pane - since_last_multiple(pane, self.origin, self.longest)


Aligned = Tumbling | Sliding | Cumulative
"""The windows that do not depend on the rows."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """Windows from a key's first row to `gap` after its last row, in which consecutive rows are at most `gap` apart.

    A row at the very end of a session still belongs to it. So a session is final when the watermark reaches its `end`, 1 ms after its
    last millisecond. A session ends after `longest` at the latest. The rows that follow form sessions of their own, which are cut at
    whole multiples of `longest` since 1970.

    Args:
        gap: how long a key must have no row until its session ends, more than zero.
        longest: the longest duration of a session, at least `gap`; it bounds what a step reads again.

    Raises:
        OperatorError: a value is not legal.

    >>> Session(gap="30 minutes", longest="12 hours").lookback
    88200000
    """

    gap: Duration
    longest: Duration = "1 day"

    def __post_init__(self) -> None:
        if self.longest_ms < self.gap_ms:
            raise OperatorError.bad_value("longest", self.longest, f"at least `gap` ({self.gap!r}), the duration of a session of one row")

    @cached_property
    def gap_ms(self) -> int:
        """The gap in ms."""
        return positive_ms(self.gap, "gap")

    @cached_property
    def longest_ms(self) -> int:
        """The longest session in ms."""
        return positive_ms(self.longest, "longest")

    @property
    def lookback(self) -> int:
        """How far before the end of a session rows can decide where it is cut, in ms."""
        return 2 * self.longest_ms + self.gap_ms


AnyWindow = Aligned | Session
"""Every kind of window."""


def check_window(window: object, *, is_optional: bool = False) -> None:
    """Raise `OperatorError` unless a parameter `window` is a kind of window, or None if it is optional."""
    if not isinstance(window, AnyWindow) and not (is_optional and window is None):
        legal = "windows, such as Tumbling(size='1 hour'), Sliding, Cumulative or Session"
        raise OperatorError.bad_value("window", window, legal)
