"""The terms of an asset whose results do not name rows of sources: results of windows, or of derived inputs.

Accepted, late and filtered rows are counted from the logs. Matched, pending and unmatched rows are counted by the time at which the
operator reports them as finalized.
"""

from collections.abc import Iterator, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from operators.accounting import ReportsFinality, finalized_by_time
from operators.changelog import bag_difference
from operators.columns import FINAL_AT, day_column, row_hash
from operators.engine_columns import EVENT_TIME, FINALIZED_AT, WHICH
from operators.errors import OperatorError
from operators.timing import instant
from platform_defs.engine.accounting.day_accounts import Scope, longest_wait, missing_and_extra
from platform_defs.engine.accounting.row_counts import RowFlag, facts_of, side_columns
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.prepared_rows import ClassifiedRows
from platform_defs.engine.inputs.reader import classified_input, input_with_lateness
from platform_defs.engine.inputs.span import Span

_TERMS = {
    RowFlag.ACCEPTED: "accepted",
    RowFlag.LATE: "late",
    RowFlag.FILTERED: "filtered",
    RowFlag.MATCHED: "matched",
    RowFlag.PENDING: "pending",
    RowFlag.UNMATCHED: "unmatched",
}


def counted_terms(side: int, facts: RowFlag) -> Iterator[str]:
    """The terms in which a row counts, by its facts."""
    return (term for fact, term in _TERMS.items() if fact in facts)


def rows_to_count(advance: Advance, scope: Scope) -> list[DataFrame]:
    """The rows of the inputs, for `count_rows`, with the facts that the logs record and those that the operator reports.

    Raises:
        OperatorError: the operator does not report when a row is finalized.
    """
    final_times = _final_times(advance)
    if all(final_at is not None for final_at in final_times):  # one pass, in which each row counts once
        sides = _classified_inputs(advance, scope.span)
        return [_logged_rows(index, side, scope, final_at) for index, (side, final_at) in enumerate(zip(sides, final_times, strict=True))]
    inputs = _classified_inputs(advance, _wide_span(advance, scope))
    return [*[_logged_rows(index, side, scope) for index, side in enumerate(inputs)], _reported_rows(advance, scope, inputs)]


def _final_times(advance: Advance) -> list[Column | None]:
    """For each input, when a row is finalized, as an expression over the row's event time; None if it depends on more than that."""
    return [finalized_by_time(advance.asset.operator, index, F.col(EVENT_TIME)) for index in range(len(advance.asset.inputs))]


def input_rows(advance: Advance, scope: Scope) -> list[DataFrame]:
    """Each input's rows, with `LATE` and `FILTERED`: those of the scope, and those that may share a window with them."""
    workspace, asset, span = advance.workspace, advance.asset, _wide_span(advance, scope)
    return [input_with_lateness(workspace, asset, index, workspace.ledger.head, span) for index in range(len(asset.inputs))]


def _classified_inputs(advance: Advance, span: Span) -> list[ClassifiedRows]:
    workspace, asset = advance.workspace, advance.asset
    return [classified_input(workspace, asset, index, workspace.ledger.head, span) for index in range(len(asset.inputs))]


def _wide_span(advance: Advance, scope: Scope) -> Span:
    """The event times of the scope's rows, and of the rows that may share a window with them."""
    span, wait = scope.span, longest_wait(advance.asset)
    return Span(None if span.first is None else span.first - wait, None if span.last is None else span.last + wait)


def _logged_rows(index: int, side: ClassifiedRows, scope: Scope, final_at: Column | None = None) -> DataFrame:
    """The rows of a side with their facts: accepted, late, filtered; with `final_at` also the `_reported_facts` of rows that are read."""
    facts = facts_of({RowFlag.LATE: side.late, RowFlag.FILTERED: side.filtered}, always=RowFlag.ACCEPTED)
    if final_at is not None:
        facts = facts.bitwiseOR(F.when(~side.excluded, _reported_facts(scope, final_at)).otherwise(0))
    return scope.span.rows_of(side.rows, EVENT_TIME).select(*side_columns(index, EVENT_TIME, facts))


def _reported_rows(advance: Advance, scope: Scope, inputs: Sequence[ClassifiedRows]) -> DataFrame:
    """The rows that the operator reads, with the facts that it reports of them; see `_reported_facts`."""
    operator = advance.asset.operator
    if not isinstance(operator, ReportsFinality):
        raise OperatorError(f"{type(operator).__name__} does not report when its rows are final, so they cannot be accounted for")
    rows = operator.finalized_at(*[side.read_rows() for side in inputs])
    facts = _reported_facts(scope, F.col(FINALIZED_AT))
    return scope.span.rows_of(rows, EVENT_TIME).select(*side_columns(WHICH, EVENT_TIME, facts))


def _reported_facts(scope: Scope, finalized_at: Column) -> Column:
    """The fact that a row is matched (all of its windows are closed), pending (it is in an open window), or unmatched (in no window)."""
    closed = F.lit(False) if scope.closed_to is None else finalized_at <= instant(scope.closed_to, finalized_at)
    return facts_of(
        {RowFlag.MATCHED: closed, RowFlag.PENDING: finalized_at.isNotNull() & ~closed, RowFlag.UNMATCHED: finalized_at.isNull()}
    )


def counted_difference(advance: Advance, scope: Scope, results: Sequence[DataFrame], columns: StructType) -> DataFrame:
    """Missing and extra results by the day of their `final_at`, reported on every side.

    Args:
        advance: the asset.
        scope: the rows that the account covers.
        results: the stored and the recomputed results.
        columns: their columns.
    """
    stored, recomputed = (frame.select(FINAL_AT, row_hash(columns)) for frame in results)
    side = F.explode(F.array(*[F.lit(index) for index in range(len(advance.asset.inputs))])).alias("side")
    by_day = bag_difference(stored, recomputed).select(side, FINAL_AT, "copies").groupBy("side", day_column(F.col(FINAL_AT)))
    return by_day.agg(*[F.sum(copies_column).cast("bigint").alias(term) for term, copies_column in missing_and_extra().items()])
