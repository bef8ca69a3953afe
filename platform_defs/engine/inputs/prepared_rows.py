"""The rows of an input as an operator reads them: with the columns that the asset selects, and without the rows that it filters."""

from collections.abc import Sequence
from typing import Any, cast

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.columns import FINAL_AT, RESULT_TIME, temporary
from operators.engine_columns import EVENT_TIME
from operators.errors import OperatorError

LATE, FILTERED = temporary("late"), temporary("filtered")


def as_input(results: DataFrame) -> DataFrame:
    """Final results as their readers see them: `result_time` is the `event_time`, and `final_at` is left out."""
    return results.drop(EVENT_TIME, FINAL_AT).withColumnRenamed(RESULT_TIME, EVENT_TIME)


def prepare_table_rows(asset: DerivedAsset, index: int, rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Rows of an input table as an asset reads them.

    Args:
        asset: the asset that reads.
        index: the input's index.
        rows: its rows.
        columns: the input's own columns; the others are the engine's, and stay.
    """
    if asset.preparation(index) is None:
        return rows
    prepared_rows = prepare_rows(asset, index, rows.withColumn(LATE, F.lit(False)), columns)
    return prepared_rows.where(~F.col(FILTERED)).drop(LATE, FILTERED)


def prepare_rows(asset: DerivedAsset, index: int, rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Rows of an input with the columns that the operator reads, and with `FILTERED`.

    Args:
        asset: the asset that reads.
        index: the input's index.
        rows: its rows, with `LATE`.
        columns: the input's own columns; the others are the engine's, and stay.
    """
    preparation = asset.preparation(index)
    if preparation is None:
        return rows.withColumn(FILTERED, F.lit(False))
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
