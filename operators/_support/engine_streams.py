"""Event times and watermarks for Spark, chosen so that Spark decides about late and final rows as the engine does.

The engine sets Spark's watermark to a value that follows from the watermark in its ledger. The two have different rules:

- Spark drops a row of a join if `time <= watermark`. In the engine a row is late if `time < watermark`.
- Spark removes a left row without a match if `time + upper + 1 ms <= watermark`. In the engine it is final under the same condition.

No watermark satisfies both: the first needs one that is 1 ms lower. So Spark joins by doubled times. With the watermark `2 w - 1` it drops
a row if `2 t <= 2 w - 1`, that is `t < w`, and removes one if `2 t + 2 upper + 1 <= 2 w - 1`, that is `t + upper + 1 <= w`. Both are
the engine's rules, in whole milliseconds.

Spark drops a row of a window, and emits the window, if `end <= watermark`. In the engine both happen at `end - 1 <= watermark`, so
Spark's watermark is `w + 1`.

`time_bounds` extends the bounds of a join so that they include 0. Otherwise Spark could remove a row when it arrives, and so lose it.

Spark's watermark is never below 1970, and the bounds of a join are exact up to the year 3000: they are doubles, in microseconds.
"""

from datetime import timedelta
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.lateness import Lateness
from operators._support.spark_streaming import DELAY, check_kind
from operators.timing import Interval, timestamp


def add_doubled_times(*sides: tuple[DataFrame, str]) -> tuple[list[DataFrame], list[Column]]:
    """Add a doubled time with a watermark to the rows of each side of a join.

    Args:
        sides: the rows of each side, and the name of their time column, in epoch ms.

    Returns:
        The rows with the doubled times, and the doubled times.
    """
    rows = [side.select("*", timestamp(F.col(ms) * 2).alias(f"{ms}_doubled", metadata={DELAY: 0})) for side, ms in sides]
    return rows, [F.col(f"{ms}_doubled") for _, ms in sides]


def time_bounds(left: Column, right: Column, interval: Interval) -> Column:
    """The bounds of a join over doubled times, in the only form from which Spark infers when it can remove state."""
    lower, upper = (F.lit(timedelta(milliseconds=2 * bound)) for bound in (-interval.backward, interval.forward))
    return (right >= left + lower) & (right <= left + upper)


def window_time(end: Column, name: str) -> Column:
    """The end of a window, as a column with a watermark; `end` is in epoch ms."""
    return timestamp(end).alias(name, metadata={DELAY: 0})


def watermark_of_windows(watermark: int) -> int:
    """Spark's watermark for the engine's; both in epoch ms."""
    return watermark + 1


class _Join(Protocol):
    """The parameters of an interval join that decide whether Spark's join of streams has the same results."""

    @property
    def how(self) -> str: ...

    @property
    def lateness(self) -> Lateness: ...

    @property
    def late_rows(self) -> str: ...


class JoinedByQuery:
    """The methods of `RunsAsQuery` that an interval join implements without reading rows."""

    def check_query(self: _Join) -> None:
        """Raise `StreamingError` for the kinds and parameters that Spark's join of streams does not have."""
        check_kind(self.how, allowed_lateness=self.lateness.ms, late_rows="join" if self.late_rows == "join" else None)

    def query_watermark(self, closed_to: int) -> int:
        """Spark's watermark at which the results up to `closed_to` are final; both in epoch ms."""
        return 2 * closed_to - 1
