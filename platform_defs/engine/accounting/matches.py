"""Measures how complete a join is: counts the matched, unmatched and late rows of each side and day.

If the results name rows of sources, the results show which rows are matched (see `traced_rows`). For other joins (of windows, or of derived
tables) the operator reports whether a row is matched.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from operators.accounting import ReportsMatches
from operators.columns import day_column
from operators.engine_columns import EVENT_TIME, FINALIZED_AT, MATCHED, WHICH
from operators.errors import OperatorError
from operators.timing import instant
from platform_defs.engine.accounting.account import account
from platform_defs.engine.accounting.counted_rows import input_rows
from platform_defs.engine.accounting.day_accounts import Scope, inputs_can_be_read, scope_of, share_matched
from platform_defs.engine.accounting.traced_rows import names_rows
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.prepared_rows import FILTERED, LATE
from platform_defs.engine.inputs.reader import input_with_lateness
from platform_defs.engine.inputs.retained import kept_days_of
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.lake.small_queries import collect

_TERMS = ("matched", "unmatched", "late")


@dataclass(frozen=True)
class DayMatches:
    """The rows of one side of a join with event times on one day.

    Args:
        side: the input.
        day: the day, UTC.
        matched: finalized rows in a result with a row of the other side.
        unmatched: the other finalized rows.
        late: rows that arrived after the watermark had passed them.
    """

    side: str
    day: date
    matched: int = 0
    unmatched: int = 0
    late: int = 0

    @property
    def completeness(self) -> float:
        """The share of matched rows among the matched, unmatched and late ones; 1 if there are none."""
        return share_matched(self.matched, self.unmatched, self.late)


def matches(advance: Advance, days: tuple[date, date] | None = None) -> list[DayMatches]:
    """Count the matched, unmatched and late rows of a join, by side and day.

    Args:
        advance: the asset.
        days: the first and last day of the rows' event times; None for all.

    Returns:
        The counts of each side and day with such rows; none while an input has no table yet. If the results name rows of sources, these are
        the numbers of `account`, in which versions are matched or late, and removed days have their totals. Otherwise versions are not
        counted, because a version need not be used, and days whose rows retention has removed are left out.

    Raises:
        OperatorError: the operator does not report which rows match.
    """
    if names_rows(advance.asset, advance.workspace.assets):
        match_counts = [DayMatches(a.side, a.day, a.matched, a.unmatched, a.late) for a in account(advance, days)]
        return [day for day in match_counts if day.matched or day.unmatched or day.late]
    if not inputs_can_be_read(advance):
        return []
    kept_days = kept_days_of(advance.workspace, advance.asset)
    rows = collect(_count_matches(advance, scope_of(advance, days, None if kept_days is None else kept_days.first)))
    return sorted(
        (DayMatches(advance.asset.inputs[row["side"]], row["day"], *(row[term] for term in _TERMS)) for row in rows if any(row[2:])),
        key=lambda match: (match.day, match.side),
    )


def _count_matches(advance: Advance, scope: Scope) -> DataFrame:
    """The terms in `_TERMS` by side and day."""
    operator = advance.asset.operator
    if not isinstance(operator, ReportsMatches):
        raise OperatorError(f"{type(operator).__name__} does not report which rows match, so its completeness is not known")
    reads = advance.asset.operator.reads
    inputs = [
        _versions(advance, scope, index) if reads.is_versioned(index) else rows for index, rows in enumerate(input_rows(advance, scope))
    ]
    on_time = operator.matches(*[frame.where(~F.col(LATE) & ~F.col(FILTERED)).drop(LATE, FILTERED) for frame in inputs])
    finalized_at = F.col(FINALIZED_AT)
    is_final = F.lit(False) if scope.closed_to is None else finalized_at.isNull() | (finalized_at <= instant(scope.closed_to, finalized_at))
    finalized = on_time.where(is_final).select(F.col(WHICH).alias("side"), EVENT_TIME, F.col(MATCHED).alias("is_matched"))
    rows = finalized.unionByName(_late_rows(inputs).withColumn("is_matched", F.lit(None).cast("boolean")))
    terms = (F.col("is_matched"), ~F.col("is_matched"), F.col("is_matched").isNull())
    counts = [F.count_if(F.coalesce(flag, F.lit(False))).alias(term) for flag, term in zip(terms, _TERMS, strict=True)]
    sides = [index for index in range(len(inputs)) if not reads.is_versioned(index)]  # a version need not be used
    return rows.where(F.col("side").isin(sides) & scope.span.holds(EVENT_TIME)).groupBy("side", day_column(F.col(EVENT_TIME))).agg(*counts)


def _versions(advance: Advance, scope: Scope, index: int) -> DataFrame:
    """The versions of an input that rows of the scope may look up, with `LATE` and `FILTERED`."""
    lookback, first = advance.asset.operator.reads.lookback_of(index), scope.span.first
    span = Span(None if lookback is None or first is None else first - lookback, scope.span.last)
    return input_with_lateness(advance.workspace, advance.asset, index, advance.workspace.ledger.head, span)


def _late_rows(inputs: Sequence[DataFrame]) -> DataFrame:
    sides = [
        frame.where(F.col(LATE) & ~F.col(FILTERED)).select(F.lit(index).alias("side"), EVENT_TIME) for index, frame in enumerate(inputs)
    ]
    return reduce(DataFrame.unionByName, sides)
