"""Converts between UTC days and epoch milliseconds.

Python's dates are limited to the years 1 to 9999. An instant outside of them, such as a watermark, is clamped to them.
"""

from datetime import UTC, date, datetime, timedelta

from operators.timing import DAY_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

FIRST_MS = (date.min - _EPOCH.date()).days * DAY_MS
"""0001-01-01 00:00:00.000 UTC."""
LAST_MS = (date.max - _EPOCH.date()).days * DAY_MS + DAY_MS - 1
"""9999-12-31 23:59:59.999 UTC."""


def read_day(text: object) -> date | None:
    """The day of a text of the form YYYY-MM-DD; None for anything else, such as another form of ISO 8601, as 20260301.

    >>> read_day("2026-03-01"), read_day("20260301")
    (datetime.date(2026, 3, 1), None)
    """
    try:
        day = date.fromisoformat(text)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return None
    return day if str(day) == text else None


def day_start(day: date) -> int:
    """The first millisecond of a day."""
    return (day - _EPOCH.date()).days * DAY_MS


def day_end(day: date) -> int:
    """The last millisecond of a day."""
    return day_start(day) + DAY_MS - 1


def day_of(epoch_ms: int) -> date:
    """The day of an instant."""
    return _EPOCH.date() + timedelta(days=_clamped(epoch_ms) // DAY_MS)


def days_from(first: date, last: date) -> list[date]:
    """The days from `first` to `last`, both included; empty if `last` is earlier."""
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def moment(epoch_ms: int) -> datetime:
    """An instant as a datetime in UTC."""
    return _EPOCH + timedelta(milliseconds=_clamped(epoch_ms))


def _clamped(epoch_ms: int) -> int:
    return min(max(epoch_ms, FIRST_MS), LAST_MS)


def timestamp_sql(epoch_ms: int) -> str:
    """An instant as a SQL expression."""
    return f"timestamp_millis({epoch_ms}L)"
