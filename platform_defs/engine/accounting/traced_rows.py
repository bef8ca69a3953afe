"""The terms of an asset whose results name the source rows from which they were computed, by `seq` and `arrival`.

For each row, the log and the ledger record whether it is accepted, late or filtered, and the results whether it is matched or kept as
unmatched. These facts are combined as bits, one set for each row: a row of the log that is in no result is unmatched or pending. A version
(see `ByTimeRange.versions`) counts as matched once the watermark has passed it, whether a result names it or not. Results of a semi or an
anti join name no row of the right side: its pairs are computed again, and name the rows that are matched.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.ports import TERMS
from operators.accounting import FindsPairs, TracesInputs
from operators.changelog import bag_difference
from operators.columns import parameter
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.errors import OperatorError
from operators.timing import instant
from platform_defs.engine.accounting.day_accounts import Scope, day_of, missing_and_extra, row_hash
from platform_defs.engine.accounting.results import stored_results
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.progress import progress
from platform_defs.engine.inputs.reader import FILTERED, LATE

IS_PAIR = "is_pair"
_BITS = {"logged": 1, "late": 2, "expired": 4, "paired": 8, "padded": 16, "filtered": 32}


def names_rows(advance: Advance) -> bool:
    """Whether an asset's results name the source rows from which they were computed."""
    return isinstance(advance.asset.operator, TracesInputs) and all(
        upstream.is_source for upstream in advance.reading.inputs_of(advance.asset)
    )


def names_every_row(advance: Advance) -> bool:
    """Whether an asset's results name the rows of every input, so that its steps can be accounted for without computing pairs again."""
    return names_rows(advance) and None not in tracing_operator(advance).traced(SEQ)


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
    row_columns = [F.col(_name(operator, column, index)).alias(column) for column in (SEQ, ARRIVAL, EVENT_TIME)]
    return results.select(*row_columns, is_pair(operator).alias(IS_PAIR)).where(F.col(SEQ).isNotNull())


def _name(operator: TracesInputs, column: str, index: int) -> str:
    name = operator.traced(column)[index]
    assert name is not None, "results name no row of this input"
    return name


def is_pair(operator: TracesInputs) -> Column:
    """Whether a result has a row of every input. If results name rows of only some inputs, whether the named rows are in a pair."""
    seq_columns = operator.traced(SEQ)
    if None in seq_columns:
        return F.lit(not any(name is not None and operator.keeps_unmatched(index) for index, name in enumerate(seq_columns)))
    return reduce(lambda a, b: a & b, [F.col(name).isNotNull() for name in seq_columns if name is not None])


def traced_terms(advance: Advance, scope: Scope) -> DataFrame:
    """The terms by side and day."""
    inputs = range(len(advance.asset.inputs))
    flagged_rows = [_flag_log_rows(advance, scope, index) for index in inputs]
    traced_inputs = [index for index in inputs if not advance.asset.operator.reads.is_versioned(index)]
    flagged_rows += chain.from_iterable(_rows_in_results(advance, scope, index) for index in traced_inputs)
    return _count_terms(advance, reduce(DataFrame.unionByName, flagged_rows))


def _flag_log_rows(advance: Advance, scope: Scope, index: int) -> DataFrame:
    """A side's rows as the log and the ledger record them."""
    rows = advance.reading.with_lateness(advance.asset, index, advance.reading.ledger.head, scope.span)
    final_at = tracing_operator(advance).finalized_at_if_unmatched(index, F.col(EVENT_TIME))
    expired = F.lit(False) if scope.closed_to is None else final_at <= instant(scope.closed_to, final_at)
    if scope.closed_to is not None and advance.asset.operator.reads.lateness:  # the next correction will read the rows of later batches
        handled = progress(advance.reading.lake, advance.asset).seq
        expired &= F.col(SEQ) <= parameter(handled, F.col(SEQ))
    flags = {"logged": F.lit(True), "late": F.col(LATE), "filtered": F.col(FILTERED), "expired": expired}
    if advance.asset.operator.reads.is_versioned(index):
        flags["paired"] = expired & ~F.col(LATE) & ~F.col(FILTERED)
    return _flag_rows(rows, index, **flags)


def _rows_in_results(advance: Advance, scope: Scope, index: int) -> Iterator[DataFrame]:
    """A side's rows as the results name them, once for each result; and as recomputed pairs name them, if the table lacks their names."""
    operator = tracing_operator(advance)
    seq_columns = operator.traced(SEQ)
    traced_results = [(operator, stored_results(advance, scope.results))] if seq_columns[index] is not None else []
    if None in seq_columns and (seq_columns[index] is None or operator.keeps_unmatched(index)):
        traced_results += _pairs(advance, operator, scope)
    for tracing, results in traced_results:
        rows = trace_rows(tracing, index, results).where(scope.span.holds(F.col(EVENT_TIME)))
        yield _flag_rows(rows, index, paired=F.col(IS_PAIR), padded=~F.col(IS_PAIR))


def _pairs(advance: Advance, operator: TracesInputs, scope: Scope) -> list[tuple[TracesInputs, DataFrame]]:
    """The closed pairs, computed again, with the operator that finds them; none if nothing is closed.

    Raises:
        OperatorError: the operator does not find the pairs that its results leave out.
    """
    if not isinstance(operator, FindsPairs):
        legal = "a `pairs` operator, whose results name the rows of every input"
        raise OperatorError(f"results of {type(operator).__name__} name no row of an input, so it needs {legal}")
    if scope.recount is None:
        return []
    asset = replace(advance.asset, operator=operator.pairs, shape=None)
    handled = progress(advance.reading.lake, advance.asset).seq
    return [(operator.pairs, replace(advance, asset=asset).final_results(scope.recount, handled))]


def _flag_rows(rows: DataFrame, index: int, **flags: Column) -> DataFrame:
    """A side's rows with `flags`, a bitmap of the facts that one table records; a flag that is not given is false."""
    bits = [F.when(flag, _BITS[name]).otherwise(0) for name, flag in flags.items()]
    bitmap = reduce(lambda a, b: a.bitwiseOR(b), bits).alias("flags")
    return rows.select(F.lit(index).alias("side"), SEQ, ARRIVAL, EVENT_TIME, bitmap)


def _count_terms(advance: Advance, flagged: DataFrame) -> DataFrame:
    """The terms by side and day. If log and results have different event times for a row, it counts as two rows, which breaks the law."""
    operator = tracing_operator(advance)
    rows = flagged.groupBy("side", SEQ, ARRIVAL, EVENT_TIME).agg(F.bit_or("flags").alias("flags"))
    logged, late, expired, paired, padded, filtered = (F.col("flags").bitwiseAND(bit) != 0 for bit in _BITS.values())
    remaining = logged & ~late & ~filtered & ~paired & ~padded
    keeps_unmatched = F.col("side").isin([index for index in range(len(advance.asset.inputs)) if operator.keeps_unmatched(index)])
    counts = {
        "accepted": logged,
        "matched": paired,
        "unmatched": F.when(keeps_unmatched, padded).otherwise(remaining & expired),
        "pending": remaining & ~expired,
        "late": late,
        "filtered": filtered,
    }
    return rows.groupBy("side", day_of(F.col(EVENT_TIME))).agg(*[F.count_if(counts.get(term, F.lit(False))).alias(term) for term in TERMS])


def traced_difference(advance: Advance, scope: Scope, stored: DataFrame, recomputed: DataFrame) -> DataFrame:
    """Missing and extra results by side and day of the rows that they name."""
    times = {index: time for index, time in enumerate(tracing_operator(advance).traced(EVENT_TIME)) if time is not None}
    time_columns = [*times.values()]
    copies = bag_difference(stored.select(*time_columns, row_hash(stored)), recomputed.select(*time_columns, row_hash(recomputed)))
    by_input = F.array(*[F.struct(F.lit(index).alias("side"), F.col(time).alias(EVENT_TIME)) for index, time in times.items()])
    copies_by_input = copies.select(F.explode(by_input).alias("s"), "copies").select("s.*", "copies").where(F.col(EVENT_TIME).isNotNull())
    difference_terms = missing_and_extra()
    sums = [F.sum(difference_terms.get(term, F.lit(0))).cast("bigint").alias(term) for term in TERMS]
    return copies_by_input.where(scope.span.holds(F.col(EVENT_TIME))).groupBy("side", day_of(F.col(EVENT_TIME))).agg(*sums)
