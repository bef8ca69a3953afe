"""Select: the rows of an input, as a table of final results."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators._support.lateness import Lateness
from operators._support.matched_rows import finality
from operators.columns import FINAL_AT, RESULT_TIME, check_distinct, check_time
from operators.engine_columns import EVENT_TIME, drop_engine_columns
from operators.errors import StreamingError
from operators.steps import Append, ByTimeRange
from operators.timing import Duration, millis


@dataclass(frozen=True, kw_only=True)
class Select:
    """The rows of its input, each once. Their columns and the condition are those of the table's `prepare`.

    It is for a query that only selects: `SELECT a, b * 2 AS c FROM source WHERE ...`. The table's `Preparation` has the `select` and the
    `where`, so rows that do not match are counted as `filtered`.

    A row is a result when the watermark reaches it, `result_time = final_at = event_time`. It is late if
    `event_time + allowed_lateness <= watermark`; a late row is not in the table. A row at or behind the watermark that is not late is added
    by a correction. A row with a null time is dropped. Of a source in processing time (`event_time="ingested_at"`) no row is late, and
    with a watermark bound of 0 each row is a result in the step after its ingest.

    In Flink a selection emits each row when it arrives, and no row is late. The page `docs/explanation/flink.md` lists the differences.

    Args:
        allowed_lateness: how far the watermark may be past the time of a row before the row is late.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> Select(allowed_lateness="1 hour").reads.lateness
    3600000
    """

    allowed_lateness: Duration = 0

    def __post_init__(self) -> None:
        _ = self.lateness

    @cached_property
    def lateness(self) -> Lateness:
        """The allowed lateness."""
        return Lateness.read(self.allowed_lateness)

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("rows",)

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`)."""
        columns = (*inputs[0], RESULT_TIME, FINAL_AT)
        check_distinct(columns)
        return columns

    @property
    def emits(self) -> Append:
        """Rows are added when they are final; rows within the allowed lateness are added by corrections."""
        return Append()

    @property
    def reads(self) -> ByTimeRange:
        """Closed ranges: the rows of the range itself."""
        return ByTimeRange(lookback=(0,), lateness=self.lateness.ms)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """`event_time + allowed_lateness <= watermark`."""
        return F.coalesce(self.lateness.has_closed(millis(event_time), millis(watermark)), F.lit(False))

    def late_before(self, watermark: int) -> int:
        """1 ms after the watermark less the allowed lateness (see `BoundsLateness`)."""
        return watermark - self.lateness.ms + 1

    def finalized_at(self, *frames: DataFrame) -> DataFrame:
        """When a row is final: at its time (see `ReportsFinality`)."""
        return finality(frames, [EVENT_TIME], self.finalized_by_time)

    def finalized_by_time(self, which: int, event_time: Column) -> Column:
        """The row's time (see `FinalizesByTime`)."""
        return event_time

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Select the rows of a frame.

        Args:
            frames: the rows, static, with `event_time` (timestamp).

        Returns:
            The columns of the frame, `result_time` and `final_at` (timestamp).
        """
        [rows] = frames
        rows = drop_engine_columns(rows)
        check_time(rows, EVENT_TIME, "rows")
        check_distinct([*rows.columns, RESULT_TIME, FINAL_AT])
        if rows.isStreaming:
            raise StreamingError.refused("Select", "Spark selects without an operator", "use `where` and `select` of the frame")
        time = F.col(EVENT_TIME)
        return rows.where(time.isNotNull()).select("*", time.alias(RESULT_TIME), time.alias(FINAL_AT))
