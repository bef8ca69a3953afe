"""The allowed lateness of windows, of joins by time and of selections, as a checked value."""

from dataclasses import dataclass
from typing import Self

from pyspark.sql import Column
from pyspark.sql import functions as F

from operators.errors import DurationError
from operators.timing import Duration, bounded_length_ms


@dataclass(frozen=True)
class Lateness:
    """How far the watermark may be past a window's end, or past the time of a row of a join or a selection, before a row no longer counts.

    Until then, results are corrected. A row of an interval join or an as-of join is late if `event_time + lateness < watermark`, a row of a
    selection if `event_time + lateness <= watermark`.

    Args:
        ms: the duration in ms, zero or more.

    Raises:
        DurationError: the duration is negative.

    >>> Lateness.read("5 minutes")
    Lateness(ms=300000)
    """

    ms: int = 0

    def __post_init__(self) -> None:
        if self.ms < 0:
            raise DurationError.negative("allowed_lateness", self.ms)

    @classmethod
    def read(cls, duration: Duration) -> Self:
        """Read the parameter `allowed_lateness`."""
        return cls(bounded_length_ms(duration, "allowed_lateness"))

    def __bool__(self) -> bool:
        return self.ms > 0

    def has_closed(self, last: Column, watermark: Column) -> Column:
        """Whether a window accepts no more rows, or a selected row is late: `last + lateness <= watermark`.

        Args:
            last: the window's last millisecond, the end of a session, or the time of the row, in epoch ms.
            watermark: a watermark in epoch ms.
        """
        return last + F.lit(self.ms) <= watermark

    def closed_up_to(self, watermark: Column) -> Column:
        """The largest last millisecond of a window that accepts no more rows at a watermark; both in epoch ms."""
        return watermark - F.lit(self.ms)
