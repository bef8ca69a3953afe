"""The conservation law: every accepted row is matched, unmatched, pending, late or filtered. It is checked by side and day of event time.

The terms are counted in one of three ways: by the rows that results name (`traced_rows`), by the time at which rows are finalized
(`counted_rows`), or by the batches that the table has handled (`upserted_rows`). The results are also recomputed from the log, and compared
with the table row by row. So an account shows a deleted, duplicated or altered row of the table, even if the sums are still right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import pyarrow as pa

from assets.days import day_of, day_start
from operators.timing import DAY_MS
from platform_defs.engine.accounting import counted_rows, traced_rows
from platform_defs.engine.accounting.counted_rows import counted_difference, counted_terms
from platform_defs.engine.accounting.day_accounts import DayAccount, Scope, accounts_of, inputs_can_be_read, scope_of
from platform_defs.engine.accounting.results import compared_results, stored_results
from platform_defs.engine.accounting.retained_days import retained_accounts
from platform_defs.engine.accounting.row_counts import count_rows, differing_days, terms_by_day
from platform_defs.engine.accounting.traced_rows import is_pair, names_rows, traced_difference, traced_terms, tracing_operator
from platform_defs.engine.accounting.upserted_rows import upserted_account
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.retained import kept_days_of, removed_rows_of
from platform_defs.engine.inputs.stored_rows import rows_by_batch
from platform_defs.engine.lake.small_queries import collect, count
from platform_defs.engine.ledger.columns import pc

Differences = dict[tuple[str, int], tuple[int, int]]
"""For each batch, by source and `seq`, whose numbers of rows in the ledger and in the log differ: these two numbers."""


@dataclass(frozen=True)
class CountedBatches:
    """The batches whose numbers of rows in ledger and log were compared.

    Args:
        compared: by source, the first and the last batch that were compared, as were all between them. A source without compared batches is
            left out.
        differences: the batches whose numbers differ. The number in the ledger is that of the accepted rows, minus the rows that retention
            has removed.
    """

    compared: Mapping[str, tuple[int, int]]
    differences: Differences


def account(advance: Advance, days: tuple[date, date] | None = None) -> list[DayAccount]:
    """Account for the rows of an asset's inputs.

    If the results name the rows of sources, each row is looked up in the results. Otherwise (windows or derived inputs) rows are counted by
    the time at which they are finalized: rows only in closed windows are `matched`, rows in an open window `pending`, and rows in no window
    `unmatched`. Missing and extra results are then reported on the day of their `final_at`, on every side. For an asset that closes no
    ranges see `upserted_account`. The rows that the asset's preparation of an input leaves out are always `filtered`.

    For days whose rows retention has removed, the account has the totals of their last account; see `retained_days`.

    Args:
        advance: the asset.
        days: the first and last day of the rows' event times; None for all.

    Returns:
        One account for each side and day with rows or results; none for an asset without a step while an input has no table yet.

    Raises:
        OperatorError: the operator does not report when its rows are final.
        ProgressError: the table has other columns than the recomputed results.
    """
    if not inputs_can_be_read(advance):
        return []
    kept_days = kept_days_of(advance.workspace, advance.asset)
    if kept_days is None:
        return _account_for_recomputed(advance, scope_of(advance, days))
    retained = retained_accounts(advance, kept_days, days)
    if days is not None and days[1] < day_of(kept_days.first):
        return retained
    return [*retained, *_account_for_recomputed(advance, scope_of(advance, days, kept_days.first))]


def _account_for_recomputed(advance: Advance, scope: Scope) -> list[DayAccount]:
    """The accounts of the days whose results can be computed again."""
    if not advance.asset.operator.reads.closes_ranges:
        return upserted_account(advance, scope)
    if names_rows(advance.asset, advance.workspace.assets):
        rows, terms, difference = traced_rows.rows_to_count(advance, scope), traced_terms(tracing_operator(advance)), traced_difference
    else:
        rows, terms, difference = counted_rows.rows_to_count(advance, scope), counted_terms, counted_difference
    compared = compared_results(advance, scope)
    counts = count_rows([*rows, *([] if compared is None else compared.hash_frames())])
    days = differing_days(counts)
    wrong_rows = collect(difference(advance, scope, compared.of_days(days), compared.columns)) if compared and days else []
    return accounts_of(advance.asset.inputs, [*terms_by_day(counts, terms), *wrong_rows])


def pairs(advance: Advance) -> int:
    """The number of results that are pairs: with a row of every input. All results of a semi join count, and none of an anti join.

    Raises:
        OperatorError: the results do not name the rows from which they were computed.
    """
    return count(stored_results(advance).where(is_pair(tracing_operator(advance))))


def count_batches(advance: Advance, days: tuple[date, date] | None = None) -> CountedBatches:
    """Compare the numbers of rows in the ledger and in the logs of an asset's sources.

    Args:
        advance: the asset.
        days: compare only the batches from the first to the last one that may contain rows of these days; None for all.
    """
    head, differences, compared = advance.workspace.ledger.head, Differences(), dict[str, tuple[int, int]]()
    for name in _sources(advance):
        batches = advance.workspace.ledger.source(name).table(["seq", "accepted", "first_event_time", "last_event_time"], 0, head)
        batches = batches.filter(pc.greater(batches["accepted"], 0))
        seqs = [] if days is None else batches["seq"].filter(_may_have_rows_of(batches, days)).to_pylist()
        first, last = (1, head) if days is None else (min(seqs, default=1), max(seqs, default=0))
        if first > last:
            continue
        compared[name], removed = (first, last), removed_rows_of(advance.workspace.lake, advance.workspace.sources[name])
        values = zip(*[batches[column].to_pylist() for column in ("seq", "accepted", "last_event_time")], strict=True)
        in_ledger = {
            seq: rows if removed is None else removed.remaining_rows(seq, rows, newest)
            for seq, rows, newest in values
            if first <= seq <= last
        }
        in_log = rows_by_batch(advance.workspace, name, last, first - 1)
        for seq in in_ledger.keys() | in_log.keys():
            if in_ledger.get(seq, 0) != in_log.get(seq, 0):
                differences[name, seq] = in_ledger.get(seq, 0), in_log.get(seq, 0)
    return CountedBatches(compared, differences)


def _may_have_rows_of(batches: pa.Table, days: tuple[date, date]) -> pa.ChunkedArray:
    """Whether batches may contain rows of a range of days, by the first and last event time of their rows; true if these are unknown."""
    starts_before_end = pc.less(batches["first_event_time"], day_start(days[1]) + DAY_MS)
    ends_after_start = pc.greater_equal(batches["last_event_time"], day_start(days[0]))
    return pc.fill_null(pc.and_(starts_before_end, ends_after_start), True)


def _sources(advance: Advance) -> Sequence[str]:
    """The names of the asset's inputs that are sources."""
    return [side.name for side in advance.workspace.inputs_of(advance.asset) if side.is_source]
