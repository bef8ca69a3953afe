"""The rows of an input as an operator reads them: with the columns that the asset selects, and without the rows that it filters."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, cast

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.columns import FINAL_AT, RESULT_TIME, quoted, quoted_name, temporary
from operators.engine_columns import EVENT_TIME
from operators.errors import OperatorError

LATE, FILTERED = temporary("late"), temporary("filtered")


@dataclass(frozen=True)
class ClassifiedRows:
    """All rows of an input, with the conditions of the rows that the operator does not read.

    Args:
        rows: the rows, with `LATE` and `FILTERED` if the conditions are these columns.
        late: the condition of late rows; None if no row is late.
        filtered: the condition of the rows that the preparation leaves out; None if there are none.
    """

    rows: DataFrame
    late: Column | None = None
    filtered: Column | None = None

    @property
    def excluded(self) -> Column:
        """The condition of the rows that the operator does not read."""
        return reduce(or_, self._conditions or [F.lit(False)])

    @property
    def _conditions(self) -> list[Column]:
        return [condition for condition in (self.late, self.filtered) if condition is not None]

    def read_rows(self) -> DataFrame:
        """The rows that the operator reads, without `LATE` and `FILTERED`."""
        rows = self.rows.where(~self.excluded) if self._conditions else self.rows
        return rows.drop(LATE, FILTERED) if {LATE, FILTERED} & {*rows.columns} else rows

    def with_late_and_filtered(self) -> DataFrame:
        """The rows with `LATE` and `FILTERED`."""
        conditions = {LATE: self.late, FILTERED: self.filtered}
        columns = quoted(c for c in self.rows.columns if c not in conditions)
        return self.rows.select(*columns, *[(F.lit(False) if value is None else value).alias(c) for c, value in conditions.items()])


def as_input(results: DataFrame) -> DataFrame:
    """Final results as their readers see them: with `result_time` renamed to `event_time`, and without `final_at`."""
    names = [c for c in results.columns if c.lower() not in (EVENT_TIME, FINAL_AT)]
    return results.select(*[F.col(quoted_name(c)).alias(EVENT_TIME) if c == RESULT_TIME else F.col(quoted_name(c)) for c in names])


def classify(asset: DerivedAsset, index: int, rows: DataFrame, late: Column | None, columns: Sequence[str]) -> ClassifiedRows:
    """Rows of an input as an asset prepares them.

    Args:
        asset: the asset that reads.
        index: the input's index.
        rows: its rows, with `LATE` if the condition is this column.
        late: the condition of late rows; None if no row is late.
        columns: the input's own columns; the others are the engine's, and stay.

    Raises:
        OperatorError: Spark refuses the preparation, or it is not deterministic, or does not give one row for each row.
    """
    if asset.preparation(index) is None:
        return ClassifiedRows(rows, late)
    is_late = F.lit(False) if late is None else late
    return ClassifiedRows(_prepare_rows(asset, index, rows.withColumn(LATE, is_late), columns), F.col(LATE), F.col(FILTERED))


def prepare_table_rows(asset: DerivedAsset, index: int, rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Rows of an input table as an asset reads them.

    Args:
        asset: the asset that reads.
        index: the input's index.
        rows: its rows.
        columns: the input's own columns; the others are the engine's, and stay.

    Raises:
        OperatorError: as for `classify`.
    """
    if asset.preparation(index) is None:
        return rows
    prepared_rows = _prepare_rows(asset, index, rows.withColumn(LATE, F.lit(False)), columns)
    return prepared_rows.where(~F.col(FILTERED)).drop(LATE, FILTERED)


def _prepare_rows(asset: DerivedAsset, index: int, rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Rows of an input with the columns that the operator reads, and with `FILTERED`.

    Args:
        asset: the asset that reads.
        index: the input's index.
        rows: its rows, with `LATE`.
        columns: the input's own columns; the others are the engine's, and stay.
    """
    preparation = asset.preparation(index)
    assert preparation is not None, "only for inputs that the asset prepares"
    is_kept = F.lit(True) if preparation.where is None else F.when(F.expr(preparation.where), True).otherwise(False)
    is_late = (F.col(LATE) & is_kept).alias(LATE)
    engine_columns = [is_late if c == LATE else F.col(c) for c in rows.columns if c not in columns]
    expressions = [F.expr(sql).alias(column) for column, sql in preparation.columns(columns).items()]
    try:
        selection = rows.select(*engine_columns, *expressions, (~is_kept).alias(FILTERED))
    except AnalysisException as error:
        accepted = f"SQL that Spark accepts for the columns of {asset.inputs[index]!r}, with a boolean condition"
        legal = f"{accepted}; Spark refuses it: {error.getCondition()}"
        raise OperatorError.bad_value("prepare", f"{preparation} of {asset.name!r}", legal) from error
    plan, before = (cast(Any, frame)._jdf.queryExecution().analyzed() for frame in (selection, rows))
    if not plan.deterministic() or not plan.child().equals(before):  # a generator is a plan of its own below the projection
        legal = "expressions over one row, that give one row and have the same value each time"
        raise OperatorError.bad_value("prepare", f"{preparation} of {asset.name!r}", legal)
    return selection
