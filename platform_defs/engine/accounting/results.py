"""The results of closed ranges: those in the table and those recomputed from the log, for the days on which they differ."""

from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from operators.columns import FINAL_AT
from operators.timing import ClosedRange
from platform_defs.engine.accounting.day_accounts import Scope, day_of, row_hash
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.advance.corrections import unread_corrections
from platform_defs.engine.advance.position import position_of
from platform_defs.engine.inputs.progress import progress
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.reader import EVER, Span
from platform_defs.engine.lake.table_columns import differing_columns

IS_HELD = "is_held"
_COMPARED = ("rows", "upper_halves", "lower_halves")


def stored_results(advance: Advance, span: Span = EVER) -> DataFrame:
    """The rows of an asset's table with `final_at` in a span; none if there is no table yet."""
    reading, asset = advance.reading, advance.asset
    if reading.lake.exists(asset.name):
        return reading.table(asset.name, FINAL_AT, span)
    return advance.final_results(ClosedRange(None, 0), 0).limit(0)


def compared_results(advance: Advance, scope: Scope) -> tuple[DataFrame, DataFrame] | None:
    """The results in the table and those recomputed from the log; None if none is closed.

    Results that the next correction will recompute are left out.

    Raises:
        ProgressError: the table has other columns than the recomputed results.
    """
    closing = scope.recount
    if closing is None:
        return None
    reading, asset = advance.reading, advance.asset
    now = progress(reading.lake, asset)
    recomputed = advance.final_results(closing, now.seq)
    table = stored_results(advance, Span(closing.after, closing.upto))
    if differing := differing_columns(table.schema, recomputed.schema):
        raise ProgressError.other_columns(asset.name, differing)
    stored = table.where(closing.holds(F.col(FINAL_AT))).select(*recomputed.columns)
    for later in unread_corrections(position_of(reading, asset, now)):  # the next step recomputes these: they are not wrong yet
        stored, recomputed = (frame.where(~later.holds(F.col(FINAL_AT))) for frame in (stored, recomputed))
    return stored, recomputed


def hashes_by_day(stored: DataFrame, recomputed: DataFrame) -> DataFrame:
    """The hashes of the results in the table (`is_held`), and of the recomputed results, by the day of `final_at`; see `differing_days`.

    Returns:
        `is_held`, `day`, the number of rows, and the sums of the upper and lower halves of their hashes: sums of halves cannot overflow.
    """
    sides = [_hash_by_day(frame).select(F.lit(is_held).alias(IS_HELD), "*") for is_held, frame in ((True, stored), (False, recomputed))]
    return sides[0].union(sides[1])


def differing_days(hashes: Sequence[Row]) -> list[date]:
    """The days on which the rows of `hashes_by_day` differ."""
    stored, recomputed = (
        {row["day"]: [row[column] for column in _COMPARED] for row in hashes if row[IS_HELD] is is_held} for is_held in (True, False)
    )
    return sorted(day for day in stored.keys() | recomputed.keys() if stored.get(day) != recomputed.get(day))


def of_days(results: Sequence[DataFrame], days: Sequence[date]) -> list[DataFrame]:
    """The results that are final on given days."""
    return [frame.where(day_of(F.col(FINAL_AT)).isin(list(days))) for frame in results]


def _hash_by_day(frame: DataFrame) -> DataFrame:
    rows = frame.select(day_of(F.col(FINAL_AT)), row_hash(frame))
    hash_sums = F.count("*"), F.sum(F.shiftrightunsigned("row_hash", 32)), F.sum(F.col("row_hash").bitwiseAND(0xFFFFFFFF))
    return rows.groupBy("day").agg(*[hash_sum.alias(name) for hash_sum, name in zip(hash_sums, _COMPARED, strict=True)])
