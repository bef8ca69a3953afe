"""The account of an upserted table, which handles batches of its sources or reads an upstream changelog.

Such a table does not wait for a watermark. A row counts as matched once a step has handled its batch, and is late only if the operator
decides so. The table is also recomputed from all rows that it has handled, or from its changelog if retention has removed some of them,
and compared with the stored one.
"""

from dataclasses import replace
from datetime import date
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.days import moment
from operators.changelog import bag_difference
from operators.engine_columns import EVENT_TIME, SEQ
from platform_defs.engine.accounting.day_accounts import DayAccount, Scope, day_of, missing_and_extra, row_hash
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.changelog_reader import as_of_step
from platform_defs.engine.inputs.progress import is_emptied, progress
from platform_defs.engine.inputs.reader import FILTERED, LATE
from platform_defs.engine.lake.small_queries import collect

_TERMS = ("accepted", "matched", "pending", "late", "filtered")


def upserted_account(advance: Advance, scope: Scope) -> list[DayAccount]:
    """One account for each source and day: `matched` are the rows of handled batches, `pending` those of later batches.

    Missing and extra results are reported on the last day of each source. A table that reads another table has no rows of sources to
    count. It has an account, for the day of the ledger's newest batch, only if results are missing or extra.
    """
    inputs = advance.reading.inputs_of(advance.asset)
    parts = [*[_terms_of_source(advance, scope, side.name) for side in inputs if side.is_source], *_difference(advance)]
    union = partial(DataFrame.unionByName, allowMissingColumns=True)
    rows = collect(reduce(union, parts)) if parts else []  # one query for all
    missing, extra = next(((row["missing"], row["extra"]) for row in rows if row["side"] is None), (0, 0))
    accounts: list[DayAccount] = []
    for side in inputs:
        by_day = sorted((row for row in rows if row["side"] == side.name), key=lambda row: row["day"])
        days = [DayAccount(side.name, row["day"], **{term: row[term] for term in _TERMS}) for row in by_day]
        [*before, last] = days or [DayAccount(side.name, _last_day(advance))]
        accounts += [*before, replace(last, missing=missing, extra=extra)]
    return sorted((a for a in accounts if a.accepted or not a.holds), key=lambda a: (a.day, a.side))


def _terms_of_source(advance: Advance, scope: Scope, source: str) -> DataFrame:
    """The terms of a source's rows by day: `side`, `day`, and a count for each of `_TERMS`."""
    reading, seq = advance.reading, progress(advance.reading.lake, advance.asset).seq
    index = advance.asset.inputs.index(source)
    rows = reading.with_lateness(advance.asset, index, reading.ledger.head, scope.span)
    late, filtered, handled = F.col(LATE), F.col(FILTERED), F.col(SEQ) <= seq
    is_input = ~late & ~filtered  # the operator reads the row
    terms = dict(zip(_TERMS, (F.lit(True), handled & is_input, ~handled & is_input, late, filtered), strict=True))
    by_day = rows.groupBy(F.lit(source).alias("side"), day_of(F.col(EVENT_TIME)))
    return by_day.agg(*[F.count_if(flag).alias(term) for term, flag in terms.items()])


def _last_day(advance: Advance) -> date:
    """The UTC day of the ledger's newest batch; 1970-01-01 if there is none."""
    times = advance.reading.ledger.history.times
    return moment(times[-1] if len(times) else 0).date()


def _difference(advance: Advance) -> list[DataFrame]:
    """A frame with one row: the numbers of missing and of extra rows of the table, and null as `side`.

    No frame if the table has no step yet, or was emptied and has no step since.
    """
    now = progress(advance.reading.lake, advance.asset)
    if not now.step or is_emptied(now):
        return []
    recomputed = advance.all_results(now)
    stored = as_of_step(advance.reading, advance.asset, now.step).select(*recomputed.columns)
    copies = bag_difference(stored.select(row_hash(stored)), recomputed.select(row_hash(recomputed)))
    sums = [F.coalesce(F.sum(rows), F.lit(0)).alias(term) for term, rows in missing_and_extra().items()]
    return [copies.agg(*sums).select(F.lit(None).cast("string").alias("side"), "*")]
