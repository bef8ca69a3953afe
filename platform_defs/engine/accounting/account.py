"""The conservation law: every row ingested is matched, unmatched, pending or late, by side and by day of its own time.

There are three ways to count the terms: of rows that results name, of rows counted by their finality, and of rows handled by batch.
Besides, the results are recomputed from the log and compared row by row, so that a row that was deleted, doubled or altered shows on the
sides and days that it belongs to, even where the sum still fits.
"""

from collections.abc import Sequence
from datetime import date

import pyarrow as pa

from operators.contract import SEQ
from operators.timing import DAY_MS
from platform_defs.engine.accounting.counted_rows import counted_difference, counted_terms
from platform_defs.engine.accounting.day_accounts import DayAccount, accounts_of, scope_of
from platform_defs.engine.accounting.results import differing_results, results_held
from platform_defs.engine.accounting.traced_rows import is_pair, names_rows, traced_difference, traced_terms, tracing_operator
from platform_defs.engine.accounting.upserted_rows import upserted_account
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.days import day_start
from platform_defs.engine.ledger.columns import pc


def account(advance: Advance, days: tuple[date, date] | None = None) -> list[DayAccount]:
    """Account for the rows of an asset's inputs.

    Results that name their rows are compared with them, row by row. Of others (of windows, or of derived inputs) rows are counted by
    when they are final: matched stands for rows in windows that are closed, pending for those in open ones, unmatched for those in
    none; and missing and extra results are reported on the day of their `final_at`, on each side. For an asset that closes no ranges
    see `upserted_account`.

    Args:
        advance: the asset.
        days: the first and last day of the rows' own event time; None for all.

    Returns:
        One account a side and day that has rows or results; none while an input has no table yet.

    Raises:
        OperatorError: the operator does not report when its rows are final.
    """
    if not all(of.is_readable(advance.reading.lake) for of in advance.reading.inputs_of(advance.asset)):
        return []
    scope = scope_of(advance, days)
    if not advance.asset.operator.reads.closes_ranges:
        return upserted_account(advance, scope)
    terms, difference = (traced_terms, traced_difference) if names_rows(advance) else (counted_terms, counted_difference)
    rows, differing = terms(advance, scope), differing_results(advance, scope)
    wrong = [] if differing is None else difference(advance, scope, *differing).collect()
    return accounts_of(advance.asset.inputs, [*rows, *wrong])


def pairs(advance: Advance) -> int:
    """How many results are made of a row of every input."""
    return results_held(advance).where(is_pair(tracing_operator(advance))).count()


def uncounted_entries(advance: Advance, days: tuple[date, date] | None = None) -> dict[tuple[str, int], tuple[int, int]]:
    """Where ledger and log disagree.

    Args:
        advance: the asset.
        days: look only at batches that may hold rows of these days; None for all.

    Returns:
        (source, seq) to how many rows the ledger records as accepted, and how many the log holds.
    """
    wrong: dict[tuple[str, int], tuple[int, int]] = {}
    for name in _sources(advance):
        head = advance.reading.ledger.head
        brought = advance.reading.ledger.source(name).table(["seq", "accepted", "first_event_time", "last_event_time"], 0, head)
        brought = brought.filter(pc.greater(brought["accepted"], 0))
        recorded = dict(zip(brought["seq"].to_pylist(), brought["accepted"].to_pylist(), strict=True))
        asked = set(brought["seq"].to_pylist() if days is None else brought["seq"].filter(_hold_rows_of(brought, days)).to_pylist())
        first, last = (1, head) if days is None else (min(asked, default=1), max(asked, default=0))
        rows = advance.reading.log(name, last, after=first - 1)
        held = {row[SEQ]: row["count"] for row in rows.groupBy(SEQ).count().collect()}
        for seq in asked | (held.keys() - recorded.keys()):
            if recorded.get(seq, 0) != held.get(seq, 0):
                wrong[name, seq] = recorded.get(seq, 0), held.get(seq, 0)
    return wrong


def _hold_rows_of(brought: pa.Table, days: tuple[date, date]) -> pa.ChunkedArray:
    """Whether batches hold rows of days, by the times of their rows."""
    first, last = pc.coalesce(brought["first_event_time"], 0), pc.coalesce(brought["last_event_time"], 0)
    return pc.and_(pc.less(first, day_start(days[1]) + DAY_MS), pc.greater_equal(last, day_start(days[0])))


def _sources(advance: Advance) -> Sequence[str]:
    return [of.name for of in advance.reading.inputs_of(advance.asset) if of.is_source]
