"""The terms of an asset whose results name the source rows from which they were computed, by `seq` and `arrival`.

For each row, the log and the ledger record whether it is accepted, late or filtered. The results record whether it is matched, or kept as
unmatched. These facts are the bits of one number for each row. A row that the operator reads and that is in no result is unmatched or
pending. A version (see `ByTimeRange.versions`) counts as matched once the watermark has passed it, whether a result names it or not.
Results of a semi or an anti join name no row of the right side. Their pairs are computed again, and name the rows that are matched.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from assets.contracts import DerivedAsset
from assets.ports import TERMS
from operators.accounting import FindsPairs, TracesInputs
from operators.changelog import bag_difference
from operators.columns import day_column, parameter, row_hash
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.errors import OperatorError
from operators.timing import instant
from platform_defs.engine.accounting.day_accounts import Scope, missing_and_extra
from platform_defs.engine.accounting.results import stored_results
from platform_defs.engine.accounting.row_counts import FACTS, RowFlag, Terms, facts_of, side_columns
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.progress import progress
from platform_defs.engine.inputs.reader import classified_input
from platform_defs.engine.inputs.span import ALL_TIMES

IS_PAIR = "is_pair"


def names_rows(asset: DerivedAsset, assets: Container[str]) -> bool:
    """Whether an asset's results name the source rows from which they were computed.

    Args:
        asset: the asset.
        assets: the names of all derived assets; an input that is not one of them is a source.
    """
    return isinstance(asset.operator, TracesInputs) and not any(name in assets for name in asset.inputs)


def names_every_row(asset: DerivedAsset, assets: Container[str]) -> bool:
    """Whether an asset's results name the rows of every input, so that its steps can be accounted for without computing pairs again."""
    operator = asset.operator
    return names_rows(asset, assets) and isinstance(operator, TracesInputs) and None not in operator.traced(SEQ)


def tracing_operator(advance: Advance) -> TracesInputs:
    """The asset's operator.

    Raises:
        OperatorError: its results do not name the rows from which they were computed.
    """
    operator = advance.asset.operator
    if not isinstance(operator, TracesInputs):
        raise OperatorError(
            f"results of {type(operator).__name__} do not name the rows from which they were computed, so rows cannot be accounted for"
        )
    return operator


def trace_rows(operator: TracesInputs, index: int, results: DataFrame) -> DataFrame:
    """The rows of input `index` that results name, once for each result: `seq`, `arrival`, `event_time`, `is_pair`."""
    return results.select(*_row_columns(operator, index), is_pair(operator).alias(IS_PAIR)).where(F.col(SEQ).isNotNull())


def _row_columns(operator: TracesInputs, index: int) -> list[Column]:
    return [F.col(_name(operator, column, index)).alias(column) for column in (SEQ, ARRIVAL, EVENT_TIME)]


def _name(operator: TracesInputs, column: str, index: int) -> str:
    name = operator.traced(column)[index]
    assert name is not None, "results name no row of this input"
    return name


def is_pair(operator: TracesInputs) -> Column:
    """Whether a result is a pair: whether it has a row of every input.

    If results name rows of only some inputs, whether the rows that they name are in pairs: true for a semi join, false for an anti join.
    """
    seq_columns = operator.traced(SEQ)
    if None in seq_columns:
        return F.lit(not any(name is not None and operator.keeps_unmatched(index) for index, name in enumerate(seq_columns)))
    return reduce(lambda a, b: a & b, [F.col(name).isNotNull() for name in seq_columns if name is not None])


def rows_to_count(advance: Advance, scope: Scope) -> list[DataFrame]:
    """The rows of the inputs, for `count_rows`. A row whose event time differs in log and results counts twice, which breaks the law."""
    inputs = range(len(advance.asset.inputs))
    rows = reduce(DataFrame.union, [*[_logged_rows(advance, scope, index) for index in inputs], *_rows_in_results(advance, scope)])
    facts_by_row = rows.groupBy("side", SEQ, ARRIVAL, EVENT_TIME).agg(F.bit_or(FACTS).alias(FACTS))
    return [facts_by_row.select(*side_columns("side", EVENT_TIME, F.col(FACTS)))]


def traced_terms(operator: TracesInputs) -> Terms:
    """Returns the terms in which a row counts, by its facts."""

    def terms(side: int, facts: RowFlag) -> Iterator[str]:
        excluded = RowFlag.LATE | RowFlag.FILTERED | RowFlag.MATCHED | RowFlag.UNMATCHED
        remains = RowFlag.ACCEPTED in facts and not facts & excluded
        is_unmatched = RowFlag.UNMATCHED in facts if operator.keeps_unmatched(side) else remains and RowFlag.FINALIZED in facts
        counts = {
            "accepted": RowFlag.ACCEPTED in facts,
            "matched": RowFlag.MATCHED in facts,
            "unmatched": is_unmatched,
            "pending": remains and RowFlag.FINALIZED not in facts,
            "late": RowFlag.LATE in facts,
            "filtered": RowFlag.FILTERED in facts,
        }
        return (term for term, is_counted in counts.items() if is_counted)

    return terms


def _logged_rows(advance: Advance, scope: Scope, index: int) -> DataFrame:
    """A side's rows with the facts that the log and the ledger record."""
    side = classified_input(advance.workspace, advance.asset, index, advance.workspace.ledger.head, scope.span)
    operator, closed_to = tracing_operator(advance), scope.closed_to
    final_at, reads = operator.finalized_at_if_unmatched(index, F.col(EVENT_TIME)), operator.reads
    finalized = None if closed_to is None else final_at <= instant(closed_to, final_at)
    if finalized is not None and reads.lateness:  # the next correction will read the rows of later batches
        handled = progress(advance.workspace.lake, advance.asset).seq
        finalized &= F.col(SEQ) <= parameter(handled, SEQ)
    facts = {RowFlag.LATE: side.late, RowFlag.FILTERED: side.filtered, RowFlag.FINALIZED: finalized}
    if reads.is_versioned(index) and finalized is not None:
        facts[RowFlag.MATCHED] = finalized & ~side.excluded
    row_facts = facts_of(facts, always=RowFlag.ACCEPTED)
    return side.rows.select(F.lit(index).alias("side"), SEQ, ARRIVAL, EVENT_TIME, row_facts)


def _rows_in_results(advance: Advance, scope: Scope) -> Iterator[DataFrame]:
    """The rows that the stored results name, once for each result. For semi and anti joins also the rows that recomputed pairs name."""
    operator, reads = tracing_operator(advance), advance.asset.operator.reads
    seq_columns = operator.traced(SEQ)
    sides = [index for index in range(len(seq_columns)) if not reads.is_versioned(index)]
    named = [index for index in sides if seq_columns[index] is not None]
    yield from [_named_rows(operator, named, stored_results(advance, scope.results), scope)] if named else []
    if None in seq_columns:
        sides_of_pairs = [index for index in sides if seq_columns[index] is None or operator.keeps_unmatched(index)]
        if sides_of_pairs and (found := _pairs(advance, operator, scope)) is not None:
            pairs_operator, pairs = found
            yield _named_rows(pairs_operator, sides_of_pairs, pairs, scope)


def _named_rows(operator: TracesInputs, sides: Sequence[int], results: DataFrame, scope: Scope) -> DataFrame:
    """The rows of given sides that results name, once for each result, with the fact `MATCHED` or `UNMATCHED`."""
    is_in_pair = is_pair(operator)
    facts = facts_of({RowFlag.MATCHED: is_in_pair, RowFlag.UNMATCHED: ~is_in_pair})
    rows = [F.struct(F.lit(index).alias("side"), *_row_columns(operator, index), facts) for index in sides]
    is_named = F.col(SEQ).isNotNull()
    is_counted = is_named if scope.span == ALL_TIMES else is_named & scope.span.holds(EVENT_TIME)
    return results.select(F.inline(F.array(*rows))).where(is_counted)


def _pairs(advance: Advance, operator: TracesInputs, scope: Scope) -> tuple[TracesInputs, DataFrame] | None:
    """The operator that finds the pairs, and the closed pairs, computed again; None if no result is closed.

    Raises:
        OperatorError: the operator does not find the pairs that its results leave out.
    """
    if not isinstance(operator, FindsPairs):
        raise OperatorError(
            f"results of {type(operator).__name__} name no row of an input; legal: an operator with `pairs`, whose results name every row"
        )
    if scope.recount is None:
        return None
    asset = replace(advance.asset, operator=operator.pairs, shape=None)
    handled = progress(advance.workspace.lake, advance.asset).seq
    return operator.pairs, replace(advance, asset=asset).final_results(scope.recount, handled)


def traced_difference(advance: Advance, scope: Scope, results: Sequence[DataFrame], columns: StructType) -> DataFrame:
    """Missing and extra results by side and day of the rows that they name.

    Args:
        advance: the asset.
        scope: the rows that the account covers.
        results: the stored and the recomputed results.
        columns: their columns.
    """
    times = {index: time for index, time in enumerate(tracing_operator(advance).traced(EVENT_TIME)) if time is not None}
    stored, recomputed = (frame.select(*times.values(), row_hash(columns)) for frame in results)
    by_input = F.array(*[F.struct(F.lit(index).alias("side"), F.col(time).alias(EVENT_TIME)) for index, time in times.items()])
    copies = bag_difference(stored, recomputed).select(F.explode(by_input).alias("s"), "copies")
    copies_by_input = copies.select("s.*", "copies").where(F.col(EVENT_TIME).isNotNull())
    difference_terms = missing_and_extra()
    sums = [F.sum(difference_terms.get(term, F.lit(0))).cast("bigint").alias(term) for term in TERMS]
    return copies_by_input.where(scope.span.holds(EVENT_TIME)).groupBy("side", day_column(F.col(EVENT_TIME))).agg(*sums)
