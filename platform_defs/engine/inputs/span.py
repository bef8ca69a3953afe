"""A span of times."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame

from operators.timing import is_between


@dataclass(frozen=True)
class Span:
    """The times `first <= time <= last` of rows to read, in epoch ms: of `event_time`, `result_time` or `final_at`. None for no end."""

    first: int | None = None
    last: int | None = None

    def holds(self, column: str) -> Column:
        """Whether the time in a column lies in the span."""
        return is_between(column, self.first, self.last)

    def rows_of(self, frame: DataFrame, column: str) -> DataFrame:
        """The rows of a frame whose time in a column lies in the span. A span without ends has all rows, even those without a time."""
        return frame if self == ALL_TIMES else frame.where(self.holds(column))


ALL_TIMES = Span()
