"""The results of closed ranges: those in the table and those recomputed from the log, for the days on which they differ."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from operators.columns import FINAL_AT
from operators.timing import ClosedRange
from platform_defs.engine.accounting.day_accounts import Scope, day_of, row_hash
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.advance.corrections import unread_corrections
from platform_defs.engine.advance.position import position_of
from platform_defs.engine.inputs.progress import ProgressError, progress
from platform_defs.engine.inputs.reader import EVER, Span
from platform_defs.engine.lake.small_queries import collected
from platform_defs.engine.lake.table_columns import differing_columns


def results_held(advance: Advance, span: Span = EVER) -> DataFrame:
    """The rows of an asset's table with `final_at` in a span; none if there is no table yet."""
    reading, asset = advance.reading, advance.asset
    if reading.lake.delta(asset.name) is not None:
        return reading.table(asset.name, FINAL_AT, span)
    return advance.closed(ClosedRange(None, 0), 0).limit(0)


def differing_results(advance: Advance, scope: Scope) -> tuple[DataFrame, DataFrame] | None:
    """The results in the table and those recomputed from the log, both of the days on which they differ; None if no day does.

    Results that the next correction will recompute are left out.

    Raises:
        ProgressError: the table has other columns than the recomputed results.
    """
    closing = scope.recount
    if closing is None:
        return None
    reading, asset = advance.reading, advance.asset
    now = progress(reading.lake, asset)
    wanted = advance.closed(closing, now.seq)
    table = results_held(advance, Span(closing.after, closing.upto))
    if differing := differing_columns(table.schema, wanted.schema):
        raise ProgressError.other_columns(asset.name, differing)
    held = table.where(closing.holds(F.col(FINAL_AT))).select(*wanted.columns)
    for later in unread_corrections(position_of(reading, asset, now)):  # the next step recomputes these: they are not wrong yet
        held, wanted = (frame.where(~later.holds(F.col(FINAL_AT))) for frame in (held, wanted))
    days = _differing_days(held, wanted)
    if not days:
        return None
    held, wanted = (frame.where(day_of(F.col(FINAL_AT)).isin(days)) for frame in (held, wanted))
    return held, wanted


def _differing_days(held: DataFrame, wanted: DataFrame) -> list[date]:
    """The days of `final_at` on which two bags of rows differ in their number of rows or in the sums of their hashes."""
    sides = [_hashes_by_day(frame).select(F.lit(which).alias("which"), "*") for which, frame in enumerate((held, wanted))]
    hashes: list[dict[date, Sequence[Any]]] = [{}, {}]
    for which, day, *values in collected(sides[0].union(sides[1])):  # one Spark job for both
        hashes[which][day] = values
    return sorted(day for day in hashes[0].keys() | hashes[1].keys() if hashes[0].get(day) != hashes[1].get(day))


def _hashes_by_day(frame: DataFrame) -> DataFrame:
    """The number of rows of each day, and the sums of the upper and lower halves of their hashes: sums of halves cannot overflow."""
    rows = frame.select(day_of(F.col(FINAL_AT)), row_hash(frame))
    halves = F.shiftrightunsigned("print", 32), F.col("print").bitwiseAND(0xFFFFFFFF)
    return rows.groupBy("day").agg(F.count("*"), *map(F.sum, halves))
