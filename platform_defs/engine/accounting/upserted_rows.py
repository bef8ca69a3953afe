"""The account of an upserted table, which handles batches of its sources or reads an upstream changelog.

An upserted table does not wait for a watermark. A row counts as matched once a step has handled its batch, and is late only if the operator
decides so. The table's rows are also computed again from all rows that it has handled, or from its changelog if retention has removed some
of these, and compared with the stored ones.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.days import moment
from operators.changelog import bag_difference
from operators.columns import parameter, row_hash
from operators.engine_columns import EVENT_TIME, SEQ
from platform_defs.engine.accounting.day_accounts import DayAccount, Scope, accounts_of, missing_and_extra
from platform_defs.engine.accounting.results import ComparedResults
from platform_defs.engine.accounting.row_counts import RowFlag, count_rows, differing_days, facts_of, side_columns, terms_by_day
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.changelog_reader import as_of_step
from platform_defs.engine.inputs.progress import is_emptied, progress
from platform_defs.engine.inputs.reader import classified_input
from platform_defs.engine.lake.small_queries import collect


def upserted_account(advance: Advance, scope: Scope) -> list[DayAccount]:
    """One account for each input and day; a source that is two inputs has two.

    `matched` are the rows of handled batches, and `pending` those of later batches.

    Missing and extra results are reported on the last day with rows of each source. A table that reads another table has no rows of sources
    to count. It has an account, for the day of the ledger's newest batch, only if results are missing or extra.
    """
    inputs, compared = advance.workspace.inputs_of(advance.asset), _compared(advance)
    rows = [_rows_of_source(advance, scope, index) for index, side in enumerate(inputs) if side.is_source]
    frames = [*rows, *([] if compared is None else compared.hash_frames())]
    counts = count_rows(frames) if frames else []
    missing, extra = _count_missing_and_extra(compared) if compared is not None and differing_days(counts) else (0, 0)
    by_day = accounts_of(advance.asset.inputs, terms_by_day(counts, _terms))
    accounts: list[DayAccount] = []
    for side in dict.fromkeys(advance.asset.inputs):  # a table may read one input twice
        [*before, last] = [a for a in by_day if a.side == side] or [DayAccount(side, _last_day(advance))]
        accounts += [*before, replace(last, missing=missing, extra=extra)]
    return sorted((a for a in accounts if a.accepted or not a.holds), key=lambda a: (a.day, a.side))


def _rows_of_source(advance: Advance, scope: Scope, index: int) -> DataFrame:
    """The rows of a source with their facts; a row is `FINALIZED` if a step has handled its batch."""
    side, seq = classified_input(advance.workspace, advance.asset, index, advance.workspace.ledger.head, scope.span), F.col(SEQ)
    is_handled = seq <= parameter(progress(advance.workspace.lake, advance.asset).seq, SEQ)
    facts = facts_of({RowFlag.LATE: side.late, RowFlag.FILTERED: side.filtered, RowFlag.FINALIZED: is_handled}, always=RowFlag.ACCEPTED)
    return side.rows.select(*side_columns(index, EVENT_TIME, facts))


def _terms(side: int, facts: RowFlag) -> Iterator[str]:
    """The terms in which a row counts: each row that the operator reads is matched or pending."""
    yield "accepted"
    if not facts & (RowFlag.LATE | RowFlag.FILTERED):
        yield "matched" if RowFlag.FINALIZED in facts else "pending"
    yield from [term for term, fact in {"late": RowFlag.LATE, "filtered": RowFlag.FILTERED}.items() if fact in facts]


def _last_day(advance: Advance) -> date:
    """The UTC day of the ledger's newest batch; 1970-01-01 if there is none."""
    times = advance.workspace.ledger.history.times
    return moment(times[-1] if len(times) else 0).date()


def _compared(advance: Advance) -> ComparedResults | None:
    """The table's rows and the recomputed ones; None if the table has no step yet, or was emptied and has no step since then."""
    now = progress(advance.workspace.lake, advance.asset)
    if not now.step or is_emptied(now):
        return None
    recomputed = advance.all_results(now)
    return ComparedResults(as_of_step(advance.workspace, advance.asset, now.step), recomputed, recomputed.schema)


def _count_missing_and_extra(compared: ComparedResults) -> tuple[int, int]:
    """The numbers of missing and of extra rows."""
    stored, recomputed = (frame.select(row_hash(compared.columns)) for frame in (compared.stored, compared.recomputed))
    [(missing, extra)] = collect(bag_difference(stored, recomputed).agg(*[F.sum(rows) for rows in missing_and_extra().values()]))
    return missing or 0, extra or 0
