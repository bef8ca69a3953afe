"""Count windows: aggregates of every so many rows of a key, in the order of arrival."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from operators._support.aggregate_expressions import Aggregates
from operators.columns import check_distinct, check_present, names, temporary
from operators.contract import NEVER_LATE
from operators.engine_columns import ARRIVAL, SEQ
from operators.errors import OperatorError, StreamingError, check_count
from operators.steps import ByKey, Upsert

WINDOW_NUMBER = "window_number"
"""In the results: the number of a key's window, from 1."""
_ROW, _ROWS, _POSITION = temporary("row_number"), temporary("rows"), temporary("position")


@dataclass(frozen=True, kw_only=True)
class CountWindowAggregate:
    """For each key and each window of `size` rows: Spark aggregates over the rows, in the order in which they arrived.

    Window `n` of a key (`window_number`, from 1) ends with row `n * slide` of the key, and contains the `size` rows up to that one. If
    `size` is larger than `slide`, the first windows have fewer rows; if it is smaller, some rows are in no window. A window is added when
    its last row has arrived; over a source it never changes. The rows after a key's last complete window are in no result yet. Event time
    is not used, so no row is late. A null key is an ordinary key.

    The order is that of the event log: by batch (`seq`), and by position in the batch (`arrival`). It is recorded, so a rebuild gives the
    same windows, wherever steps are cut. Rows that arrive in another order give other windows, as in Flink. Over an upserted table its
    current rows are counted, by their `seq` and `arrival`; if one of them changes, the windows of its key are computed again.

    The semantics are those of Flink's `countWindow(size)` and `countWindow(size, slide)`: a global window with a purging `CountTrigger`, or
    with a `CountEvictor` and a `CountTrigger`. A step reads every row of the keys of its new rows.

    Args:
        by: the key columns; empty to count all rows together.
        size: the number of rows in a window, at least 1.
        slide: after how many rows of a key the next window ends, at least 1; None for `size`, so that each row is in one window.
        aggregates: the result's columns, as SQL: `{"trips": "count(*)", "farthest": "max(distance)"}`.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> CountWindowAggregate(by="machine", size=100, aggregates={"failures": "sum(failed)"}).emits.key
    ('machine', 'window_number')
    """

    by: str | Sequence[str] = ()
    size: int
    slide: int | None = None
    aggregates: Mapping[str, str]

    def __post_init__(self) -> None:
        check_count("size", self.size)
        check_count("slide", self._slide)
        _ = self._aggregates
        check_distinct([*self.key, WINDOW_NUMBER, *self.aggregates, SEQ, ARRIVAL])

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return names(self.by)

    @cached_property
    def _aggregates(self) -> Aggregates:
        return Aggregates.read(self.aggregates)

    @property
    def _slide(self) -> int:
        return self.size if self.slide is None else self.slide

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("rows",)

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`).

        Raises:
            OperatorError: the rows have no order of arrival.
        """
        [columns] = inputs
        _check_positions(columns)
        return (*self.key, WINDOW_NUMBER, *self.aggregates, SEQ, ARRIVAL)

    @property
    def emits(self) -> Upsert:
        """One row of each key and window."""
        return Upsert((*self.key, WINDOW_NUMBER))

    @property
    def reads(self) -> ByKey:
        """All rows of the keys of new rows."""
        return ByKey(self.key)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """No row is late."""
        return F.lit(False)

    def late_before(self, watermark: int) -> int:
        """No row is late (see `BoundsLateness`)."""
        return NEVER_LATE

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Aggregate a frame.

        Args:
            frames: the rows, static, with `seq` and `arrival`.

        Returns:
            The key columns, `window_number` (bigint), the aggregates with their own types, and `seq` and `arrival` (bigint) of the window's
            last row.
        """
        [rows] = frames
        self._check(rows)
        rows_of_key = Window.partitionBy(*self.key)
        numbered_rows = rows.withColumn(_ROW, F.row_number().over(rows_of_key.orderBy(SEQ, ARRIVAL)).cast("bigint"))
        rows_with_count = numbered_rows.withColumn(_ROWS, F.count("*").over(rows_of_key))
        rows_in_windows = rows_with_count.withColumn(WINDOW_NUMBER, F.explode(self._window_numbers(F.col(_ROW), F.col(_ROWS))))
        last_position = F.max(F.struct(SEQ, ARRIVAL)).alias(_POSITION)
        results = rows_in_windows.groupBy(*self.key, WINDOW_NUMBER).agg(*self._aggregates.columns(rows_in_windows), last_position)
        return results.select(*self.key, WINDOW_NUMBER, *self.aggregates, f"{_POSITION}.*")

    def _window_numbers(self, row: Column, rows: Column) -> Column:
        """The numbers of the complete windows that contain a row.

        Args:
            row: the row's number among the rows of its key, from 1.
            rows: the number of rows of the key.
        """
        first_window = F.ceil(row / self._slide)
        last_window = F.least(F.floor((row + self.size - 1) / self._slide), F.floor(rows / self._slide))
        return F.when(first_window <= last_window, F.sequence(first_window, last_window)).otherwise(F.array().cast("array<bigint>"))

    def _check(self, rows: DataFrame) -> None:
        if rows.isStreaming:
            raise StreamingError.refused("CountWindowAggregate", "Spark has no windows by count", "let the engine run it")
        check_present(rows, self.key, "by")
        _check_positions(rows.columns)


def _check_positions(columns: Sequence[str]) -> None:
    """Raise `OperatorError` unless rows have the order of arrival."""
    if not {SEQ, ARRIVAL} <= {*columns}:
        way_out = "read a source, or an upserted table whose rows have both"
        reason = f"CountWindowAggregate counts rows in the order of arrival, and these have no {SEQ!r} and {ARRIVAL!r}"
        raise OperatorError(f"{reason}; {way_out}")
