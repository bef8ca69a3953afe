"""Time as checked values: durations, intervals and closed ranges, in whole milliseconds, UTC."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

from operators.columns import parameter, parameter_sql, quoted_name
from operators.errors import DurationError, OperatorError, WindowError, is_whole

Duration = int | str | timedelta
"""Whole milliseconds, words such as `'24 hours'`, or a `timedelta` of whole milliseconds."""

TimeKind = Literal["event", "processing"]
"""Event time, or processing time."""

DAY_MS = 86_400_000
FOREVER = 10_000 * 366 * DAY_MS
"""A duration, in ms, that is longer than from the first to the last timestamp (year 1 to 9999)."""
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}
_WORDS = {"millisecond": "ms", "msec": "ms", "second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d", "week": "w"}
_DURATION = re.compile(r"\s*([+-]?\d{1,18})\s*([a-z]+)\s*", re.IGNORECASE)


def duration_ms(value: Duration, parameter: str) -> int:
    """Read a duration as whole milliseconds.

    Args:
        value: milliseconds, words (`'24 hours'`, `'90 s'`, `'-250 ms'`), or a `timedelta`.
        parameter: the name to use in an error.

    Raises:
        DurationError: the value is not a duration, or is finer than 1 ms.

    >>> duration_ms("24 hours", "upper")
    86400000
    """
    if isinstance(value, bool):
        raise DurationError.unreadable(parameter, value)
    if isinstance(value, int):
        return value
    if isinstance(value, timedelta):
        return _from_timedelta(value, parameter)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    word = match[2].lower() if match else ""
    unit = _UNITS.get(word) or _UNITS.get(_WORDS.get(word.removesuffix("s"), ""))
    if match is None or unit is None:
        raise DurationError.unreadable(parameter, value)
    return int(match[1]) * unit


def length_ms(value: Duration, parameter: str) -> int:
    """Read a duration of zero or more, in milliseconds.

    Raises:
        DurationError: the value is not a duration, is finer than 1 ms, or is negative.
    """
    length = duration_ms(value, parameter)
    if length < 0:
        raise DurationError.negative(parameter, value)
    return length


def bounded_length_ms(value: Duration, parameter: str) -> int:
    """Read a duration of zero or more that is added to times, in milliseconds.

    Raises:
        DurationError: the value is not a duration, is finer than 1 ms, is negative, or is longer than 10,000 years.
    """
    length = length_ms(value, parameter)
    check_not_too_long(value, length, parameter)
    return length


def positive_ms(value: Duration, parameter: str) -> int:
    """Read a duration of more than zero, in milliseconds.

    Raises:
        DurationError: the value is not a duration, is finer than 1 ms, or is longer than 10,000 years.
        WindowError: the duration is zero or negative.
    """
    length = duration_ms(value, parameter)
    if length <= 0:
        raise WindowError.empty(parameter, value)
    check_not_too_long(value, length, parameter)
    return length


def check_not_too_long(value: object, ms: int, parameter: str) -> None:
    """Raise `DurationError` if times in ms could overflow when a duration is added to them."""
    if abs(ms) >= FOREVER:
        raise DurationError.too_long(parameter, value)


def _from_timedelta(value: timedelta, parameter: str) -> int:
    milliseconds, remainder = divmod(value, timedelta(milliseconds=1))
    if remainder:
        raise DurationError.unreadable(parameter, value)
    return milliseconds


def millis(time: Column) -> Column:
    """A timestamp as epoch milliseconds, floored."""
    return F.unix_millis(time)


def timestamp(epoch_ms: Column) -> Column:
    """Epoch milliseconds as a timestamp."""
    return F.timestamp_millis(epoch_ms)


def instant(epoch_ms: int, column: Column | str) -> Column:
    """One instant as a timestamp, for use with a timestamp column; null where the column is (see `columns.parameter`)."""
    return F.expr(_instant_sql(epoch_ms, column)) if isinstance(column, str) else timestamp(parameter(epoch_ms, millis(column)))


def is_between(column: str, first: int | None, last: int | None, *, includes_first: bool = True) -> Column:
    """Whether `first <= time <= last`: null for a null time, and true for every time if there are no ends.

    Args:
        column: the name of a timestamp column.
        first: the first time in epoch ms; None for no end.
        last: the last time in epoch ms; None for no end.
        includes_first: whether the first time is included, as the last one is.
    """
    after = [] if first is None else [f"{quoted_name(column)} {'>=' if includes_first else '>'} {_instant_sql(first, column)}"]
    until = [] if last is None else [f"{quoted_name(column)} <= {_instant_sql(last, column)}"]
    return F.expr(" AND ".join([*after, *until]) or "TRUE")


def _instant_sql(epoch_ms: int, column: str) -> str:
    return f"timestamp_millis({parameter_sql(epoch_ms, f'unix_millis({quoted_name(column)})')})"


@dataclass(frozen=True)
class Interval:
    """`lower <= right time - left time <= upper`, in milliseconds, both ends included.

    An interval whose lower end is above its upper end is legal and empty.
    """

    lower: int
    upper: int

    def __post_init__(self) -> None:
        for end, bound in (("lower", self.lower), ("upper", self.upper)):
            if not is_whole(bound):
                raise OperatorError.bad_value(end, bound, "whole milliseconds; `Interval.between` reads text such as '5 minutes'")
            check_not_too_long(bound, bound, end)

    @classmethod
    def between(cls, lower: Duration, upper: Duration, *, lower_exclusive: bool = False, upper_exclusive: bool = False) -> "Interval":
        """Build an interval with open or closed ends.

        Time has a resolution of 1 ms, so an open end is a closed end that is 1 ms further in.
        """
        return cls(duration_ms(lower, "lower") + lower_exclusive, duration_ms(upper, "upper") - upper_exclusive)

    @property
    def forward(self) -> int:
        """How long a left row waits for right rows, at least 0."""
        return max(0, self.upper)

    @property
    def backward(self) -> int:
        """How long a right row waits for left rows, at least 0."""
        return max(0, -self.lower)

    @property
    def mirrored(self) -> "Interval":
        """The same interval from the view of the other side."""
        return Interval(-self.upper, -self.lower)


@dataclass(frozen=True)
class ClosedRange:
    """The results that a step closes: `after < final_at <= upto`, in epoch milliseconds.

    `after` is None for the first range, which has no lower end.
    """

    after: int | None
    upto: int

    def __post_init__(self) -> None:
        if not is_whole(self.upto):
            raise OperatorError.bad_value("upto", self.upto, "whole epoch milliseconds")
        if self.after is not None and not is_whole(self.after):
            raise OperatorError.bad_value("after", self.after, "whole epoch milliseconds, or None for no lower end")
        if self.after is not None and self.after > self.upto:
            raise OperatorError.bad_value("after", self.after, f"at most `upto` ({self.upto}): a watermark never goes back")

    def holds(self, final_at: Column | str) -> Column:
        """Whether a result's `final_at`, given as a column or by its name, is in this range."""
        if isinstance(final_at, str):
            return is_between(final_at, self.after, self.upto, includes_first=False)
        upto = final_at <= instant(self.upto, final_at)
        return upto if self.after is None else upto & (final_at > instant(self.after, final_at))
