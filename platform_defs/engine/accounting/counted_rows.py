"""The terms of an asset whose results do not name rows of sources: results of windows, or of derived inputs.

Accepted, late and filtered rows are counted from the logs. Matched, pending and unmatched rows are counted by the time at which the
operator reports them as finalized.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from operators.accounting import ReportsFinality
from operators.changelog import bag_difference
from operators.columns import FINAL_AT
from operators.engine_columns import EVENT_TIME, FINALIZED_AT, WHICH
from operators.errors import OperatorError
from operators.timing import instant
from platform_defs.engine.accounting.day_accounts import Scope, day_of, longest_wait, missing_and_extra, row_hash
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.reader import FILTERED, LATE, Span


def counted_terms(advance: Advance, scope: Scope) -> DataFrame:
    """The terms by side and day: accepted, late and filtered rows from the logs, and all other terms as the operator reports them.

    Raises:
        OperatorError: the operator does not report when a row is finalized.
    """
    inputs = input_rows(advance, scope)
    return _not_reported(inputs, scope).unionByName(_finality(advance, scope, inputs), allowMissingColumns=True).na.fill(0)


def input_rows(advance: Advance, scope: Scope) -> list[DataFrame]:
    """Each input's rows with `LATE` and `FILTERED`, including rows outside the days that may share a window with rows of the days."""
    reading, asset, span = advance.reading, advance.asset, scope.span
    wait = longest_wait(advance.asset)
    wide = Span(None if span.first is None else span.first - wait, None if span.last is None else span.last + wait)
    return [reading.with_lateness(asset, index, reading.ledger.head, wide) for index in range(len(asset.inputs))]


def _not_reported(inputs: Sequence[DataFrame], scope: Scope) -> DataFrame:
    """The terms that are counted without the operator: accepted, late and filtered rows."""
    sides = [frame.select(F.lit(index).alias("side"), EVENT_TIME, LATE, FILTERED) for index, frame in enumerate(inputs)]
    rows = reduce(DataFrame.unionByName, sides).where(scope.span.holds(F.col(EVENT_TIME)))
    counts = [F.count("*").alias("accepted"), F.count_if(LATE).alias("late"), F.count_if(FILTERED).alias("filtered")]
    return rows.groupBy("side", day_of(F.col(EVENT_TIME))).agg(*counts)


def _finality(advance: Advance, scope: Scope, inputs: Sequence[DataFrame]) -> DataFrame:
    """Matched rows (only in closed windows), pending rows (in an open window), and unmatched rows (in no window)."""
    operator = advance.asset.operator
    if not isinstance(operator, ReportsFinality):
        raise OperatorError(f"{type(operator).__name__} does not report when its rows are final, so they cannot be accounted for")
    rows = operator.finalized_at(*[frame.where(~F.col(LATE) & ~F.col(FILTERED)).drop(LATE, FILTERED) for frame in inputs])
    finalized_at = F.col(FINALIZED_AT)
    closed = F.lit(False) if scope.closed_to is None else finalized_at <= instant(scope.closed_to, finalized_at)
    counts = {"matched": closed, "pending": ~closed, "unmatched": finalized_at.isNull()}
    by_day = rows.where(scope.span.holds(F.col(EVENT_TIME))).groupBy(F.col(WHICH).alias("side"), day_of(F.col(EVENT_TIME)))
    return by_day.agg(*[F.count_if(flag).alias(term) for term, flag in counts.items()])


def counted_difference(advance: Advance, scope: Scope, stored: DataFrame, recomputed: DataFrame) -> DataFrame:
    """Missing and extra results by the day of their `final_at`, reported on every side."""
    copies = bag_difference(stored.select(FINAL_AT, row_hash(stored)), recomputed.select(FINAL_AT, row_hash(recomputed)))
    side = F.explode(F.array(*[F.lit(index) for index in range(len(advance.asset.inputs))])).alias("side")
    by_day = copies.select(side, FINAL_AT, "copies").groupBy("side", day_of(F.col(FINAL_AT)))
    return by_day.agg(*[F.sum(copies_column).cast("bigint").alias(term) for term, copies_column in missing_and_extra().items()])
