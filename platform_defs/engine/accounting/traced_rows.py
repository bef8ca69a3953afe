"""The terms of an asset whose results name the source rows from which they were computed, by `seq` and `arrival`.

For each row, the log and the ledger record whether it is accepted, late or filtered, and the results whether it is matched or kept as
unmatched. These facts are combined as bits, one set for each row: a row of the log that is in no result is unmatched or pending. A version
(see `ByTimeRange.versions`) counts as matched once the watermark has passed it, whether a result names it or not.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.ports import TERMS
from operators.changelog import bag_difference
from operators.contract import ARRIVAL, EVENT_TIME, SEQ, TracesInputs
from operators.errors import OperatorError
from operators.timing import instant
from platform_defs.engine.accounting.day_accounts import Scope, day_of, missing_and_extra, row_hash
from platform_defs.engine.accounting.results import results_held
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.reader import FILTERED, LATE

IS_PAIR = "is_pair"
_BITS = {"logged": 1, "late": 2, "expired": 4, "paired": 8, "padded": 16, "filtered": 32}


def names_rows(advance: Advance) -> bool:
    """Whether an asset's results name the source rows from which they were computed."""
    return isinstance(advance.asset.operator, TracesInputs) and all(of.is_source for of in advance.reading.inputs_of(advance.asset))


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


def traced(advance: Advance, which: int, results: DataFrame) -> DataFrame:
    """The rows of input `which` that results name, once for each result: `seq`, `arrival`, `event_time`, `is_pair`."""
    operator = tracing_operator(advance)
    named = [F.col(operator.traced(c)[which]).alias(c) for c in (SEQ, ARRIVAL, EVENT_TIME)]
    return results.select(*named, is_pair(operator).alias(IS_PAIR)).where(F.col(SEQ).isNotNull())


def is_pair(operator: TracesInputs) -> Column:
    """Whether a result has a row of every input."""
    return reduce(lambda a, b: a & b, [F.col(s).isNotNull() for s in operator.traced(SEQ)])


def traced_terms(advance: Advance, scope: Scope) -> DataFrame:
    """The terms by side and day."""
    inputs = range(len(advance.asset.inputs))
    parts = [_logged(advance, scope, which) for which in inputs]
    parts += [_resulting(advance, scope, which) for which in inputs if not advance.asset.operator.reads.is_versioned(which)]
    return _counted(advance, reduce(DataFrame.unionByName, parts))


def _logged(advance: Advance, scope: Scope, which: int) -> DataFrame:
    """A side's rows as the log and the ledger record them."""
    rows = advance.reading.with_lateness(advance.asset, which, advance.reading.ledger.head, scope.span)
    final_at = tracing_operator(advance).finalized_at_if_unmatched(which, F.col(EVENT_TIME))
    expired = F.lit(False) if scope.closed_to is None else final_at <= instant(scope.closed_to, final_at)
    flags = {"logged": F.lit(True), "late": F.col(LATE), "filtered": F.col(FILTERED), "expired": expired}
    if advance.asset.operator.reads.is_versioned(which):
        flags["paired"] = expired & ~F.col(LATE) & ~F.col(FILTERED)
    return _flagged(rows, which, **flags)


def _resulting(advance: Advance, scope: Scope, which: int) -> DataFrame:
    """A side's rows as the result table names them, once for each result."""
    rows = traced(advance, which, results_held(advance, scope.results)).where(scope.span.holds(F.col(EVENT_TIME)))
    return _flagged(rows, which, paired=F.col(IS_PAIR), padded=~F.col(IS_PAIR))


def _flagged(rows: DataFrame, which: int, **flags: Column) -> DataFrame:
    """A side's rows with `flags`, a bitmap of the facts that one table records; a flag that is not given is false."""
    bits = [F.when(flag, _BITS[name]).otherwise(0) for name, flag in flags.items()]
    bitmap = reduce(lambda a, b: a.bitwiseOR(b), bits).alias("flags")
    return rows.select(F.lit(which).alias("side"), SEQ, ARRIVAL, EVENT_TIME, bitmap)


def _counted(advance: Advance, flagged: DataFrame) -> DataFrame:
    """The terms by side and day. If log and results have different event times for a row, it counts as two rows, which breaks the law."""
    operator = tracing_operator(advance)
    rows = flagged.groupBy("side", SEQ, ARRIVAL, EVENT_TIME).agg(F.bit_or("flags").alias("flags"))
    logged, late, expired, paired, padded, filtered = (F.col("flags").bitwiseAND(bit) != 0 for bit in _BITS.values())
    rest = logged & ~late & ~filtered & ~paired & ~padded
    keeps_unmatched = F.col("side").isin([i for i in range(len(advance.asset.inputs)) if operator.keeps_unmatched(i)])
    counts = {
        "accepted": logged,
        "matched": paired,
        "unmatched": F.when(keeps_unmatched, padded).otherwise(rest & expired),
        "pending": rest & ~expired,
        "late": late,
        "filtered": filtered,
    }
    return rows.groupBy("side", day_of(F.col(EVENT_TIME))).agg(*[F.count_if(counts.get(t, F.lit(False))).alias(t) for t in TERMS])


def traced_difference(advance: Advance, scope: Scope, held: DataFrame, wanted: DataFrame) -> DataFrame:
    """Missing and extra results by side and day of the rows that they name."""
    times = tracing_operator(advance).traced(EVENT_TIME)
    wrong = bag_difference(held.select(*times, row_hash(held)), wanted.select(*times, row_hash(wanted)))
    by_input = F.array(*[F.struct(F.lit(i).alias("side"), F.col(t).alias(EVENT_TIME)) for i, t in enumerate(times)])
    each = wrong.select(F.explode(by_input).alias("s"), "copies").select("s.*", "copies").where(F.col(EVENT_TIME).isNotNull())
    wrongs = missing_and_extra()
    sums = [F.sum(wrongs.get(t, F.lit(0))).cast("bigint").alias(t) for t in TERMS]
    return each.where(scope.span.holds(F.col(EVENT_TIME))).groupBy("side", day_of(F.col(EVENT_TIME))).agg(*sums)
