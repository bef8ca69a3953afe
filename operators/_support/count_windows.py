"""Windows by count, and windows that end with a row that satisfies a condition: their rows, and the contract of operators over them."""

from collections.abc import Sequence
from itertools import pairwise

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from operators._support.sql_tokens import tokens_of
from operators.columns import check_present, names, temporary
from operators.contract import NEVER_LATE
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ, drop_engine_columns
from operators.errors import OperatorError, StreamingError, check_count
from operators.evictors import Evictor, TimeEvictor, check_evictor, keep_by_arrival
from operators.nondeterministic import check_deterministic
from operators.parameters import check_columns, check_sql
from operators.steps import ByKey

WINDOW_NUMBER = "window_number"
"""In the results: the number of a key's window, from 1."""
LAST_POSITION = temporary("last_position")
"""`seq` and `arrival` (struct) of a row, or of the last row of its window. In each window the greatest value is that of the last row."""
_WINDOW, _ROW_NUMBER, _ROW_COUNT = temporary("window"), temporary("row_number"), temporary("rows")
_IS_END, _END_COUNT = temporary("is_end"), temporary("ends")


class CountWindowOperator:
    """The contract of an operator over windows that end by the rows of a key alone, in the order of arrival.

    With `size`, window `n` ends with row `n * slide` of its key, and contains the last `size` rows up to that one, or all of them if the
    key has fewer. With `ends_with`, it ends with the `n`-th row for which the condition is true, and begins after the last row of window
    `n - 1`.
    """

    by: str | Sequence[str]
    size: int | None
    slide: int | None
    ends_with: str | None
    evictor: Evictor | None

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return names(self.by)

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("rows",)

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

    @property
    def window_columns(self) -> tuple[str, ...]:
        """The columns of a result that identify its window: the key, and the number of the window."""
        return (*self.key, WINDOW_NUMBER)

    @property
    def _group(self) -> tuple[str, ...]:
        """The columns that identify the window of a row before it is aggregated; a row may have its own column `window_number`."""
        return (*self.key, _WINDOW)

    def check_windows(self) -> None:
        """Raise `OperatorError` unless the parameters have legal types and say when a window ends."""
        check_columns("by", self.by)
        check_evictor(self.evictor)
        if self.ends_with is None:
            if self.size is None:
                raise OperatorError.bad_value("size", self.size, "a whole number of at least 1, or None with `ends_with`")
            check_count("size", self.size)
            if self.slide is not None:
                check_count("slide", self.slide)
            return
        for parameter, value in (("size", self.size), ("slide", self.slide)):
            if value is not None:
                raise OperatorError.bad_value(parameter, value, "None with `ends_with`: each row is in one window, ended by the condition")
        _check_reads_one_row("ends_with", self.ends_with)

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise `OperatorError` unless rows with some columns have an order of arrival, and the event time if the evictor reads it."""
        if not {SEQ, ARRIVAL} <= {*columns}:
            reason = f"{type(self).__name__} counts rows in the order of arrival, and these have no {SEQ!r} and {ARRIVAL!r}"
            raise OperatorError(f"{reason}; read a source, or an upserted table whose rows have both")
        if isinstance(self.evictor, TimeEvictor) and EVENT_TIME not in columns:
            raise OperatorError.bad_value("evictor", self.evictor, f"an evictor of another kind for rows without an {EVENT_TIME!r}")

    def check_rows(self, rows: DataFrame) -> None:
        """Raise `OperatorError` unless the rows can be counted."""
        if rows.isStreaming:
            raise StreamingError.refused(type(self).__name__, "Spark has no windows by count", "let the engine run it")
        check_present(drop_engine_columns(rows), self.key, "by")
        self.check_columns(rows.columns)

    def aggregate_windows(self, rows: DataFrame, *aggregates: Column) -> DataFrame:
        """One row of each complete window: `window_columns`, the aggregates of the rows that count, and `LAST_POSITION` of the window."""
        groups = rows.groupBy(*self._group).agg(*aggregates, F.max(LAST_POSITION).alias(LAST_POSITION))
        return groups.withColumnRenamed(_WINDOW, WINDOW_NUMBER)

    def assign_windows(self, rows: DataFrame) -> DataFrame:
        """The rows that count in each complete window, once for each, with the window and `LAST_POSITION`; see `aggregate_windows`."""
        if self.size is not None:
            rows_in_windows = self._assign_by_count(rows, self.size, self.slide or self.size)
        else:
            rows_in_windows = self._assign_by_condition(rows, str(self.ends_with))
        position = F.struct(SEQ, ARRIVAL)
        if self.evictor is None:
            return rows_in_windows.withColumn(LAST_POSITION, position)
        # The last row may be evicted, and the position of another row may be in the next window too.
        last_position = F.max(position).over(Window.partitionBy(*self._group))
        return keep_by_arrival(self.evictor, rows_in_windows.withColumn(LAST_POSITION, last_position), self._group)

    def _assign_by_count(self, rows: DataFrame, size: int, slide: int) -> DataFrame:
        rows_of_key = Window.partitionBy(*self.key)
        numbered_rows = rows.withColumn(_ROW_NUMBER, F.row_number().over(rows_of_key.orderBy(SEQ, ARRIVAL)).cast("bigint"))
        rows_with_count = numbered_rows.withColumn(_ROW_COUNT, F.count("*").over(rows_of_key))
        window_numbers = _window_numbers(F.col(_ROW_NUMBER), F.col(_ROW_COUNT), size, slide)
        return rows_with_count.withColumn(_WINDOW, F.explode(window_numbers))

    def _assign_by_condition(self, rows: DataFrame, condition: str) -> DataFrame:
        check_deterministic("ends_with", condition, rows.columns)
        kind = rows.select("*", F.expr(condition)).schema[-1].dataType
        if not isinstance(kind, BooleanType):
            raise OperatorError.bad_value("ends_with", condition, f"a condition, and not an expression of the type {kind.simpleString()}")
        rows_of_key = Window.partitionBy(*self.key)
        rows_with_ends = rows.withColumn(_IS_END, F.coalesce(F.expr(condition), F.lit(False)).cast("bigint"))
        ended_before = F.sum(_IS_END).over(rows_of_key.orderBy(SEQ, ARRIVAL)) - F.col(_IS_END)
        ends = F.sum(_IS_END).over(rows_of_key)
        numbered_rows = rows_with_ends.select("*", (ended_before + 1).alias(_WINDOW), ends.alias(_END_COUNT))
        return numbered_rows.where(F.col(_WINDOW) <= F.col(_END_COUNT))


def _window_numbers(row: Column, rows: Column, size: int, slide: int) -> Column:
    """The numbers of the complete windows that contain a row.

    Args:
        row: the row's number among the rows of its key, from 1.
        rows: the number of rows of the key.
        size: the number of rows in a window.
        slide: the number of rows between the ends of two windows.
    """
    first_window = F.ceil(row / slide)
    last_window = F.least(F.floor((row + size - 1) / slide), F.floor(rows / slide))
    return F.when(first_window <= last_window, F.sequence(first_window, last_window)).otherwise(F.array().cast("array<bigint>"))


def _check_reads_one_row(parameter: str, sql: str) -> None:
    """Raise `OperatorError` if the value of a condition on a row depends on more than that row."""
    check_sql(parameter, sql)
    check_deterministic(parameter, sql)
    code = [token.name for token in tokens_of(sql) if token.is_code]
    if {("(", "select"), ("over", "(")} & {*pairwise(code)}:
        legal = "a condition on a row alone, without window functions and subqueries: a step reads only the rows of some keys"
        raise OperatorError.bad_value(parameter, sql, legal)
