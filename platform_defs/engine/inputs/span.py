"""A span of times."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.timing import instant


@dataclass(frozen=True)
class Span:
    """The times `first <= time <= last` of rows to read, in epoch ms: their event times, or their `final_at`. None for no end."""

    first: int | None = None
    last: int | None = None

    def holds(self, time: Column) -> Column:
        """Whether a time lies in the span."""
        condition = F.lit(True) if self.first is None else time >= instant(self.first, time)
        return condition if self.last is None else condition & (time <= instant(self.last, time))

    def rows_of(self, frame: DataFrame, column: str) -> DataFrame:
        """The rows of a frame whose time in a column lies in the span. Without ends these are all rows, also those without a time."""
        return frame if self == EVER else frame.where(self.holds(F.col(column)))


EVER = Span()
