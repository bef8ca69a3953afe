"""The accounts of days whose rows retention has removed: their totals, and the rows that arrived since.

The totals of a day are those of the account that the table had when its rows were removed. Rows that arrive later for such a day are late,
filtered, or, in an upserted table, handled; they are counted from the log.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.days import day_of
from assets.ports import TERMS
from operators.columns import day_column
from operators.engine_columns import EVENT_TIME, SEQ
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.prepared_rows import FILTERED, LATE
from platform_defs.engine.inputs.progress import progress
from platform_defs.engine.inputs.reader import input_with_lateness
from platform_defs.engine.inputs.retained import KeptDays, RetainedDay
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.lake.small_queries import collect

Sums = dict[tuple[str, date], Counter[str]]
"""Terms by side and day."""


def retained_accounts(advance: Advance, kept: KeptDays, days: tuple[date, date] | None) -> list[DayAccount]:
    """The accounts of the days before `kept.first`.

    Args:
        advance: the asset.
        kept: the days that are accounted for row by row.
        days: the first and the last day to account for; None for all.
    """
    if days is not None and days[0] >= day_of(kept.first):
        return []
    totals, upserts = kept.totals, not advance.asset.operator.reads.closes_ranges
    sums = Sums() if totals is None else sums_of(totals.days)
    if totals is not None or upserts:  # a table of closed ranges without totals was made later, and has no results for these days
        add_terms(sums, later_rows(advance, kept.first, 0 if totals is None else totals.upto, start_of(advance, kept)))
    chosen_sums = {side_and_day: terms for side_and_day, terms in sums.items() if days is None or days[0] <= side_and_day[1] <= days[1]}
    return _accounts_of_sums(chosen_sums)


def _accounts_of_sums(sums: Sums) -> list[DayAccount]:
    """Accounts in the order of their days."""
    accounts = [
        DayAccount(side, day, **{term: terms[term] for term in TERMS}) for (side, day), terms in sums.items() if any(terms.values())
    ]
    return sorted(accounts, key=lambda account: (account.day, account.side))


def sums_of(days: Iterable[RetainedDay]) -> Sums:
    """Stored totals by side and day."""
    return {
        (retained.side, date.fromisoformat(retained.day)): Counter({term: int(rows) for term, rows in retained.terms.items()})
        for retained in days
    }


def sums_of_accounts(accounts: Iterable[DayAccount]) -> Sums:
    """The terms of accounts by side and day."""
    sums = Sums()
    add_terms(sums, [((a.side, a.day), {term: getattr(a, term) for term in TERMS}) for a in accounts])
    return sums


def add_terms(sums: Sums, further_terms: Iterable[tuple[tuple[str, date], Mapping[str, int]]], sign: int = 1) -> None:
    """Add terms to sums, or with the sign -1 subtract them."""
    for side_and_day, terms in further_terms:
        sum_of_terms = sums.setdefault(side_and_day, Counter())
        for term, rows in terms.items():
            sum_of_terms[term] += sign * rows


def start_of(advance: Advance, kept: KeptDays | None) -> int | None:
    """The first event time (epoch ms) of the rows that count, for a table of closed ranges made after a removal; None if all rows count."""
    return kept.complete_from if kept is not None and advance.asset.operator.reads.closes_ranges else None


def later_rows(advance: Advance, before: int, since: int, start: int | None) -> list[tuple[tuple[str, date], Mapping[str, int]]]:
    """The terms of the rows of batches after `since` with event times in `start <= event_time < before`, by side and day.

    For an upserted table, a row that is neither late nor filtered is matched or pending. For a table of closed ranges, each of these rows
    should be late or filtered; if one is not, it counts only as accepted, which breaks the law.
    """
    upserts = not advance.asset.operator.reads.closes_ranges
    handled = progress(advance.workspace.lake, advance.asset).seq
    counts_by_day = list[DataFrame]()
    for index, upstream in enumerate(advance.workspace.inputs_of(advance.asset)):
        if not upstream.is_source or not _has_rows(advance, upstream.name, since, before):
            continue
        span = Span(start, before - 1)
        rows = input_with_lateness(advance.workspace, advance.asset, index, advance.workspace.ledger.head, span, since)
        late, filtered = F.col(LATE), F.col(FILTERED)
        on_time, is_handled = ~late & ~filtered & F.lit(upserts), F.col(SEQ) <= handled
        terms = {
            "accepted": F.lit(True),
            "late": late,
            "filtered": filtered,
            "matched": on_time & is_handled,
            "pending": on_time & ~is_handled,
        }
        by_day = rows.groupBy(F.lit(upstream.name).alias("side"), day_column(F.col(EVENT_TIME)))
        counts_by_day.append(by_day.agg(*[F.count_if(flag).alias(term) for term, flag in terms.items()]))
    rows_of_terms = collect(reduce(DataFrame.unionByName, counts_by_day)) if counts_by_day else []
    return [((row["side"], row["day"]), {term: row[term] for term in TERMS if term in row}) for row in rows_of_terms]


def _has_rows(advance: Advance, source: str, since: int, before: int) -> bool:
    """Whether the ledger records rows of batches after `since` with an event time before `before`."""
    firsts = advance.workspace.ledger.source(source).batches_with_rows(since)["first_event_time"].to_pylist()
    return min(firsts, default=before) < before
