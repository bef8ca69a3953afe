"""The conservation law of one step: every row that the step finalized is matched, unmatched, late or filtered.

The cost of this account grows with the step. Exactly one step finalizes a row: the step whose closed range contains the row's last possible
match, or, if that range was closed before, the step that handles the row's batch. Accepted, late and filtered rows, and versions, are
counted in the log; matched and unmatched rows are counted in the results. Unmatched rows that the results do not keep are the remainder.
Unlike the account of whole days (`account`), this account does not compare results row by row, and recomputes nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from functools import reduce
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from operators.columns import FINAL_AT, day_column, parameter
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.errors import TidemarkError
from operators.timing import ClosedRange, instant
from platform_defs.engine.accounting.day_accounts import DayAccount, longest_wait
from platform_defs.engine.accounting.traced_rows import IS_PAIR, trace_rows, tracing_operator
from platform_defs.engine.advance.advance import Advance, Step
from platform_defs.engine.inputs.older_rows import with_older_rows
from platform_defs.engine.inputs.prepared_rows import FILTERED, LATE
from platform_defs.engine.inputs.reader import input_with_lateness
from platform_defs.engine.inputs.retained import kept_days_of
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.inputs.stored_rows import read_table
from platform_defs.engine.lake.small_queries import collect

_SHOWN = 5
_SEE, _REPAIR = "`tidemark status --recount` shows the whole account", "and the command that repairs the days"
_COUNTED = ("accepted", "late", "filtered", "matched", "unmatched")


class LawError(TidemarkError, RuntimeError):
    """The conservation law does not hold for a table.

    Args:
        text: the error's text.
        asset: the table.
        accounts: the sides and days on which the law does not hold.
        differences: by source and batch, the ledger's and the log's number of rows, if they differ.
    """

    def __init__(
        self,
        text: str,
        asset: str = "",
        accounts: Sequence[DayAccount] = (),
        differences: Mapping[tuple[str, int], tuple[int, int]] = MappingProxyType({}),
    ) -> None:
        super().__init__(text)
        self.asset, self.accounts, self.differences = asset, accounts, differences

    @classmethod
    def of_step(cls, asset: str, accounts: Sequence[DayAccount]) -> "LawError":
        """A step broke the law. No other table has read the step yet.

        Args:
            asset: the table.
            accounts: the sides and days on which rows are missing or counted twice.
        """
        return cls(
            f"{asset} breaks the conservation law: {_days(accounts)}. The step is committed, and the stream has stopped before "
            f"the next step; {_SEE}, {_REPAIR}",
            asset,
            accounts,
        )

    @classmethod
    def of_table(cls, asset: str, accounts: Sequence[DayAccount], differences: Mapping[tuple[str, int], tuple[int, int]]) -> "LawError":
        """A table's account does not add up. Other tables may have read the wrong results.

        Args:
            asset: the table.
            accounts: the sides and days on which rows are missing or counted twice, or results are missing or superfluous.
            differences: by source and batch, the ledger's and the log's number of rows, if they differ.
        """
        batches = [
            f"{source}, batch {seq}: {in_ledger} rows in the ledger, {in_log} in the log"
            for (source, seq), (in_ledger, in_log) in [*differences.items()][:_SHOWN]
        ]
        problems = "; ".join([_days(accounts), *batches] if accounts else batches)
        ways_out = f"{_SEE}, {_REPAIR}" if accounts else _SEE
        return cls(
            f"{asset} breaks the conservation law: {problems}. The stream has stopped, and other tables may have read {asset}; {ways_out}",
            asset,
            accounts,
            differences,
        )


def _days(accounts: Sequence[DayAccount]) -> str:
    return "; ".join(map(_account_words, accounts[:_SHOWN]))


def _account_words(a: DayAccount) -> str:
    terms = f"{a.matched} matched + {a.unmatched} unmatched + {a.pending} pending + {a.late} late + {a.filtered} filtered"
    results = f" (results: {a.missing} missing, {a.extra} too many)" if a.missing or a.extra else ""
    return f"{a.side} {a.day}: {a.accepted} accepted, {terms}{results}"


def account_step(advance: Advance, step: Step) -> list[DayAccount]:
    """Account for the rows that one step has finalized.

    If the results do not keep a side's unmatched rows, `unmatched` is the remainder. The law is then violated only if more rows are
    matched, late or filtered than were accepted.

    Args:
        advance: the asset; its results must name the rows of every input, and its inputs must be sources.
        step: a committed step of the asset.

    Returns:
        One account for each side and day of the rows' event times; no row is pending.

    Raises:
        OperatorError: the operator's results do not name the rows from which they were computed.
    """
    operator, inputs, kept_days = tracing_operator(advance), advance.asset.inputs, kept_days_of(advance.workspace, advance.asset)
    closing = ClosedRange(step.before.closed_to, step.after.closed_to or 0)
    counts_by_day: list[DataFrame] = []
    for index in range(len(inputs)):
        span = Span(None if closing.after is None else closing.after - longest_wait(advance.asset, index), closing.upto)
        is_finalized = _is_finalized(operator.finalized_at_if_unmatched(index, F.col(EVENT_TIME)), closing, step.before.seq)
        if kept_days is not None:  # maintenance may have removed older rows since the step
            is_finalized &= F.col(EVENT_TIME) >= instant(kept_days.first, EVENT_TIME)
        logged = _logged_rows(advance, step, span, index).where(is_finalized)
        if advance.asset.operator.reads.is_versioned(index):
            counts_by_day.append(_count_log_rows(logged, index, matched=F.count_if(~F.col(LATE) & ~F.col(FILTERED))))
            continue
        results = read_table(advance.workspace, advance.asset.name, FINAL_AT, _span_of_results(step, span))
        rows_in_results = trace_rows(operator, index, results).where(is_finalized)
        counts_by_day += [_count_log_rows(logged, index), _count_result_rows(rows_in_results, index)]
    counted = (
        reduce(DataFrame.unionByName, counts_by_day)
        .groupBy("side", "day")
        .agg(*[F.sum(term).cast("bigint").alias(term) for term in _COUNTED])
    )
    terms_by_day = {(row["side"], row["day"]): Counter({term: row[term] for term in _COUNTED}) for row in collect(counted)}
    accounts = [_account(inputs[side], day, terms, operator.keeps_unmatched(side)) for (side, day), terms in terms_by_day.items()]
    return sorted(accounts, key=lambda account: (account.day, account.side))


def _logged_rows(advance: Advance, step: Step, span: Span, index: int) -> DataFrame:
    """The rows of an input that a step may finalize: those within the lookback, and older ones of the batches that the step handles."""
    asset, head = advance.asset, step.after.seq
    history = advance.workspace.ledger.source(asset.inputs[index])
    return with_older_rows(
        lambda part, after: input_with_lateness(advance.workspace, asset, index, head, part, after), span, history, step.before.seq, head
    )


def _span_of_results(step: Step, span: Span) -> Span:
    """The `final_at` of the results of the rows in a span, and of the results that the step corrected, which may be earlier."""
    corrected = [first for number, first, _ in step.after.corrected if number > step.before.step]
    return span if span.first is None else Span(min([span.first, *corrected]), span.last)


def _is_finalized(final_at: Column, closing: ClosedRange, handled: int) -> Column:
    if closing.after is None:
        return closing.holds(final_at)
    return closing.holds(final_at) | ((F.col(SEQ) > parameter(handled, SEQ)) & (final_at <= instant(closing.after, final_at)))


def _count_log_rows(rows: DataFrame, index: int, **further_terms: Column) -> DataFrame:
    terms = {"accepted": F.count("*"), "late": F.count_if(LATE), "filtered": F.count_if(FILTERED), **further_terms}
    return _counts(rows.withColumn("day", day_column(F.col(EVENT_TIME))), index, **terms)


def _count_result_rows(rows: DataFrame, index: int) -> DataFrame:
    """Count matched and unmatched rows. A row in several pairs sets one bit, so it counts once; each copy of an unmatched row counts."""
    position = F.when(F.col(IS_PAIR), F.bitmap_bit_position(ARRIVAL))
    bits = rows.groupBy(day_column(F.col(EVENT_TIME)), SEQ, F.bitmap_bucket_number(ARRIVAL).alias("bucket")).agg(
        F.bitmap_construct_agg(position).alias("paired"), F.count_if(~F.col(IS_PAIR)).alias("unmatched")
    )
    return _counts(bits, index, matched=F.sum(F.bitmap_count("paired")), unmatched=F.sum("unmatched"))


def _counts(rows: DataFrame, index: int, **terms: Column) -> DataFrame:
    return rows.groupBy(F.lit(index).alias("side"), "day").agg(*[terms.get(term, F.lit(0).cast("bigint")).alias(term) for term in _COUNTED])


def _account(side: str, day: date, terms: Counter[str], keeps_unmatched: bool) -> DayAccount:
    unmatched = terms["accepted"] - terms["matched"] - terms["late"] - terms["filtered"]
    return DayAccount(side, day, **(terms if keeps_unmatched else {**terms, "unmatched": max(0, unmatched)}))
