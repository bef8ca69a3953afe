"""A span of event times."""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from operators.timing import instant


@dataclass(frozen=True)
class Span:
    """Event times to read: `first <= event_time <= last`, in epoch ms; None for no end."""

    first: int | None = None
    last: int | None = None

    def holds(self, time: Column) -> Column:
        """Whether a time lies in the span."""
        condition = F.lit(True) if self.first is None else time >= instant(self.first, time)
        return condition if self.last is None else condition & (time <= instant(self.last, time))


EVER = Span()
