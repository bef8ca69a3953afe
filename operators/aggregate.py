"""The aggregate without windows: one row for each key, computed from all rows of the key so far, and updated as rows are added."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from operators._support.aggregate_expressions import Aggregates
from operators.columns import check_distinct, check_present, names, temporary
from operators.contract import ARRIVAL, NEVER_LATE, SEQ, ByKey, NewRows, Upsert
from operators.errors import OperatorError, StreamingError

_PREVIOUS, _VALUES, _NTH, _POSITION = (temporary(name) for name in ("previous", "values", "nth", "position"))


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """For each key: Spark aggregates over all of its rows so far; the result is updated as rows are added.

    The result is an upserted table with a changelog: the first row of a key inserts a result, and a later row that changes an aggregate
    updates it. Event time is not used, so no row is late. A null is an ordinary key.

    `seq` and `arrival` of a result are those of the row that last changed one of its values. A Top-N of the results can therefore order
    ties by when each result took its value. A row that changes no value (a smaller value, for a maximum) leaves them as they are. If
    an aggregate cannot be merged, they are those of the newest row of the key.

    An aggregate is refused if its value depends on the order in which Spark reads rows (`first`, `last`, `any_value`, an unsorted
    `collect_list`), on random numbers or on the clock. `min_by(v, struct(seq, arrival))` is the value that arrived first.

    The semantics are those of Flink SQL's `GROUP BY` on a stream. A step reads its new rows and the results of their keys, if every
    aggregate is a single call of `count`, `sum`, `min`, `max`, `bool_and`, `bool_or`, `bit_and`, `bit_or` or `bit_xor`. With any other
    aggregate it reads every row of the keys of its new rows.

    Args:
        by: the key columns, at least one.
        aggregates: the result's columns, as SQL: `{"orders": "count(*)", "revenue": "sum(price * quantity)"}`.

    Raises:
        OperatorError: a parameter, a column or a streaming frame is not usable; the text says what is legal.

    >>> Aggregate(by="seller_id", aggregates={"revenue": "sum(price)"}).emits.key
    ('seller_id',)
    """

    by: str | Sequence[str]
    aggregates: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.key:
            legal = "at least one column; for a total of all rows, a column with the same value in each"
            raise OperatorError.bad_value("by", self.by, legal)
        _ = self._values
        check_distinct([*self.key, *self.aggregates, SEQ, ARRIVAL])

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return names(self.by)

    @cached_property
    def _values(self) -> Aggregates:
        return Aggregates.read(self.aggregates)

    @property
    def inputs(self) -> tuple[str]:
        """The names of the inputs."""
        return ("rows",)

    def result_columns(self, *inputs: Sequence[str]) -> tuple[str, ...]:
        """The names of the result's columns (see `NamesColumns`)."""
        return (*self.key, *self.aggregates, *([SEQ, ARRIVAL] if {SEQ, ARRIVAL} <= {*inputs[0]} else []))

    @property
    def emits(self) -> Upsert:
        """One row of each key."""
        return Upsert(self.key)

    @property
    def reads(self) -> NewRows | ByKey:
        """The rows of new batches, which are merged into the results; or all rows of the keys of new rows."""
        return NewRows() if self._values.are_mergeable else ByKey(self.key)

    def late(self, event_time: Column, watermark: Column) -> Column:
        """No row is late."""
        return F.lit(False)

    def late_before(self, watermark: int) -> int:
        """No row is late (see `BoundsLateness`)."""
        return NEVER_LATE

    def __call__(self, *frames: DataFrame) -> DataFrame:
        """Aggregate a frame.

        Args:
            frames: the rows, static.

        Returns:
            The key columns, the aggregates with their own types, and `seq` and `arrival` (bigint) if the rows have them.
        """
        [rows] = frames
        self._check(rows)
        if _has_positions(rows) and not self._takes_newest_position:
            return self._of_last_change(self._of_single_rows(rows))
        return self._grouped(rows, self._values.columns())

    def fold(self, current: DataFrame, *frames: DataFrame) -> DataFrame:
        """The results of the keys of new rows, from the results so far and the new rows."""
        [rows] = frames
        self._check(rows)
        if _has_positions(rows) and not self._takes_newest_position:
            return self._of_last_change(current.unionByName(self._of_single_rows(rows)))
        partial = current.unionByName(self(rows))
        return self._grouped(partial, self._values.typed(self._values.merged(), partial.schema))

    @property
    def _takes_newest_position(self) -> bool:
        """Whether `seq` and `arrival` of a result are those of the newest row of its key."""
        return not self._values.are_mergeable or self._values.change_with_every_row

    def _grouped(self, rows: DataFrame, values: Sequence[Column]) -> DataFrame:
        """One row of each key, with the newest `seq` and `arrival` if the rows have them."""
        position = [F.max(F.struct(SEQ, ARRIVAL)).alias(_POSITION)] if _has_positions(rows) else []
        grouped = rows.groupBy(*self.key).agg(*values, *position)
        return self._exact(grouped.select(*self.key, *self.aggregates, *([f"{_POSITION}.*"] if position else [])))

    def _of_single_rows(self, rows: DataFrame) -> DataFrame:
        """The result of each row as the only one of its key."""
        alone = Window.partitionBy(*self.key).orderBy(SEQ, ARRIVAL).rowsBetween(Window.currentRow, Window.currentRow)
        values = [F.expr(sql).over(alone).alias(name) for name, sql in self.aggregates.items()]
        return rows.select(*self.key, *values, SEQ, ARRIVAL)

    def _of_last_change(self, partial: DataFrame) -> DataFrame:
        """Merge partial results in arrival order: the last values, and the position of the row that last changed one of them."""
        in_order = Window.partitionBy(*self.key).orderBy(SEQ, ARRIVAL)
        until_now = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        values = self._values.typed([value.over(until_now) for value in self._values.merged()], partial.schema)
        running = partial.select(*self.key, *values, SEQ, ARRIVAL).withColumn(_VALUES, F.struct(*self.aggregates))
        numbered = running.withColumns({_PREVIOUS: F.lag(_VALUES).over(in_order), _NTH: F.row_number().over(in_order)})
        is_change = (F.col(_NTH) == 1) | ~F.col(_VALUES).eqNullSafe(F.col(_PREVIOUS))
        last = [F.max_by(name, F.struct(SEQ, ARRIVAL)).alias(name) for name in self.aggregates]
        position = F.max(F.when(is_change, F.struct(SEQ, ARRIVAL))).alias(_POSITION)
        return self._exact(numbered.groupBy(*self.key).agg(*last, position).select(*self.key, *self.aggregates, f"{_POSITION}.*"))

    def _exact(self, results: DataFrame) -> DataFrame:
        """The results unchanged; raises `OperatorError` if a sum of floats depends on the order of its rows."""
        for name, expression in self._values.expressions.items():
            if expression.merge_function == "sum" and isinstance(results.schema[name].dataType, DoubleType | FloatType):
                legal = "sums of exact numbers: a sum of floats depends on the order of the rows; cast to a decimal"
                raise OperatorError.bad_value("aggregates", expression.sql, legal)
        return results

    def _check(self, rows: DataFrame) -> None:
        if rows.isStreaming:
            why = "Spark would keep the state of every key forever"
            raise StreamingError.refused("Aggregate", why, "let the engine run it, or give `WindowedAggregate` a window")
        check_present(rows, self.key, "by")


def _has_positions(rows: DataFrame) -> bool:
    return {SEQ, ARRIVAL} <= {*rows.columns}
