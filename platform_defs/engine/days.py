"""Days of UTC as epoch milliseconds, and back."""

from datetime import UTC, date, datetime, timedelta

from operators.timing import DAY_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def day_start(day: date) -> int:
    """The first millisecond of a day."""
    return (day - _EPOCH.date()).days * DAY_MS


def day_of(epoch_ms: int) -> date:
    """The day that holds an instant."""
    return _EPOCH.date() + timedelta(days=epoch_ms // DAY_MS)


def moment(epoch_ms: int) -> datetime:
    """An instant."""
    return _EPOCH + timedelta(milliseconds=epoch_ms)


def text(epoch_ms: int) -> str:
    """An instant as a SQL literal."""
    return f"timestamp_millis({epoch_ms}L)"
