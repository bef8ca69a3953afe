"""Counts the rows of an account in one query, by side, by day, and by the facts that are recorded of a row.

The facts of a row are the bits of one number. So the query needs a single aggregation for all terms of an account and for the hashes of its
results. Each way of counting derives the terms from the facts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from enum import IntFlag
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.days import day_of
from operators.columns import quoted_name
from operators.timing import DAY_MS
from platform_defs.engine.lake.small_queries import collect

STORED, RECOMPUTED = -1, -2
"""The values in place of a side for the results in the table, and for the recomputed results."""
FACTS = "facts"


class RowFlag(IntFlag):
    """A fact that a log, the ledger, the results or the operator records of a row."""

    ACCEPTED = 1
    LATE = 2
    FILTERED = 4
    FINALIZED = 8
    MATCHED = 16
    UNMATCHED = 32
    PENDING = 64


class RowCount(NamedTuple):
    """The number of rows of a side and day with the same facts.

    Args:
        side: the index of the input, or `STORED` or `RECOMPUTED`.
        day: the day of the event time, or of a result's `final_at`.
        facts: the facts; none for results.
        rows: the number of rows.
        upper: the sum of the upper halves of the results' hashes; 0 for rows of inputs. Sums of halves of up
            to 2**31 rows cannot overflow.
        lower: the sum of the lower halves.
    """

    side: int
    day: date
    facts: RowFlag
    rows: int
    upper: int
    lower: int


Terms = Callable[[int, RowFlag], Iterable[str]]
"""Returns the terms in which a row of a side counts, by its facts."""


def facts_of(facts: Mapping[RowFlag, Column | None], always: RowFlag | None = None) -> Column:
    """The facts of a row, as `FACTS`.

    Args:
        facts: the condition of each fact; None if no row satisfies it.
        always: a fact of all rows.
    """
    bits = [F.when(condition, fact.value).otherwise(0) for fact, condition in facts.items() if condition is not None]
    bits += [] if always is None else [F.lit(always.value)]
    return reduce(lambda a, b: a.bitwiseOR(b), bits).alias(FACTS)


def side_columns(side: int | str, time: str, facts: Column) -> list[Column]:
    """The columns of a row of an input that `count_rows` reads.

    Args:
        side: the side, or the column that has it.
        time: the column with the row's time.
        facts: the row's facts.
    """
    return [_sql(f"{side} AS side"), _day(time), facts.alias(FACTS), _sql("0L AS row_hash")]


def result_columns(side: int, time: str | None, row_hash: Column) -> list[Column]:
    """The columns of a result that `count_rows` reads.

    Args:
        side: `STORED` or `RECOMPUTED`.
        time: the column with the result's time; None to count all results as of 1970-01-01.
        row_hash: the hash of the result.
    """
    return [_sql(f"{side} AS side"), _sql("0 AS day") if time is None else _day(time), _sql(f"0 AS {FACTS}"), row_hash.alias("row_hash")]


def _sql(text: str) -> Column:
    """An expression in SQL, which takes one call into the JVM instead of one for each function."""
    return F.expr(text)


def _day(time: str) -> Column:
    """The day of a time, as its number since 1970, because Python's `date` cannot represent each day of Spark."""
    return _sql(f"unix_date(CAST({quoted_name(time)} AS DATE)) AS day")


def count_rows(frames: Sequence[DataFrame]) -> list[RowCount]:
    """Count the rows of frames with the columns of `side_columns` or `result_columns`, in one query."""
    sums = [_sql(text) for text in ("count(*)", "sum(shiftrightunsigned(row_hash, 32))", "sum(row_hash & 4294967295L)")]
    counts = collect(reduce(DataFrame.union, frames).groupBy("side", "day", FACTS).agg(*sums))
    return [RowCount(side, _date_of(days), RowFlag(facts), *numbers) for side, days, facts, *numbers in counts]


def _date_of(days: int | None) -> date:
    """The day with a number since 1970, limited to the days of Python's `date`; `date.min` for a row without a time."""
    return date.min if days is None else day_of(days * DAY_MS)


def terms_by_day(counts: Iterable[RowCount], terms: Terms) -> list[Mapping[str, Any]]:
    """The terms of rows of inputs: `side`, `day`, and the number of rows for each term that is not zero."""
    of_inputs = [count for count in counts if count.side not in (STORED, RECOMPUTED)]
    return [{"side": count.side, "day": count.day, **dict.fromkeys(terms(count.side, count.facts), count.rows)} for count in of_inputs]


def differing_days(counts: Iterable[RowCount]) -> list[date]:
    """The days on which the numbers of stored and recomputed results, or the sums of their hashes, differ."""
    differences: dict[date, tuple[int, ...]] = {}
    for c in counts:
        sign = {STORED: 1, RECOMPUTED: -1}.get(c.side, 0)
        before = differences.get(c.day, (0, 0, 0))
        differences[c.day] = tuple(number + sign * added for number, added in zip(before, (c.rows, c.upper, c.lower), strict=True))
    return sorted(day for day, difference in differences.items() if any(difference))
