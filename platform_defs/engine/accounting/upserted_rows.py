"""The account of an upserted table, whose asset handles batches or reads an upstream changelog.

Such an asset does not wait for a watermark: a row counts as matched once its batch is handled, and is late only if the operator decides
so. The table is recomputed from all handled rows, and compared.
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
from platform_defs.engine.inputs.progress import progress
from platform_defs.engine.inputs.reader import FILTERED, LATE
from platform_defs.engine.lake.small_queries import collect

_TERMS = ("accepted", "matched", "pending", "late", "filtered")


def upserted_account(advance: Advance, scope: Scope) -> list[DayAccount]:
    """One account for each source and day: `matched` are the rows of handled batches, `pending` those of later batches.

    Missing and extra results are reported on the last day of each source. An asset that reads another table has no source rows to
    count: it has an account, for the ledger's last day, only if results are wrong.
    """
    inputs = advance.reading.inputs_of(advance.asset)
    parts = [*[_handled(advance, scope, of.name) for of in inputs if of.is_source], *_difference(advance)]
    union = partial(DataFrame.unionByName, allowMissingColumns=True)
    rows = collect(reduce(union, parts)) if parts else []  # one query for all
    missing, extra = next(((row["missing"], row["extra"]) for row in rows if row["side"] is None), (0, 0))
    accounts: list[DayAccount] = []
    for of in inputs:
        found = sorted((row for row in rows if row["side"] == of.name), key=lambda row: row["day"])
        days = [DayAccount(of.name, row["day"], **{term: row[term] for term in _TERMS}) for row in found]
        [*before, last] = days or [DayAccount(of.name, _last_day(advance))]
        accounts += [*before, replace(last, missing=missing, extra=extra)]
    return sorted((a for a in accounts if a.accepted or not a.holds), key=lambda a: (a.day, a.side))


def _handled(advance: Advance, scope: Scope, source: str) -> DataFrame:
    """The terms of a source's rows by day."""
    reading, seq = advance.reading, progress(advance.reading.lake, advance.asset).seq
    which = advance.asset.inputs.index(source)
    rows = reading.with_lateness(advance.asset, which, reading.ledger.head, scope.span)
    late, filtered, handled = F.col(LATE), F.col(FILTERED), F.col(SEQ) <= seq
    read = ~late & ~filtered
    terms = dict(zip(_TERMS, (F.lit(True), handled & read, ~handled & read, late, filtered), strict=True))
    by_day = rows.groupBy(F.lit(source).alias("side"), day_of(F.col(EVENT_TIME)))
    return by_day.agg(*[F.count_if(flag).alias(term) for term, flag in terms.items()])


def _last_day(advance: Advance) -> date:
    """The day of the ledger's newest batch."""
    times = advance.reading.ledger.history.times
    return moment(times[-1] if len(times) else 0).date()


def _difference(advance: Advance) -> list[DataFrame]:
    """One frame with one row, without a side: the number of missing and of extra rows of the table. Before the first step, no frame."""
    now = progress(advance.reading.lake, advance.asset)
    if not now.step:
        return []
    wanted = advance.all_results(now)
    held = as_of_step(advance.reading, advance.asset, now.step).select(*wanted.columns)
    copies = bag_difference(held.select(row_hash(held)), wanted.select(row_hash(wanted)))
    sums = [F.coalesce(F.sum(of), F.lit(0)).alias(term) for term, of in missing_and_extra().items()]
    return [copies.agg(*sums).select(F.lit(None).cast("string").alias("side"), "*")]
