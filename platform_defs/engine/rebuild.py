"""Rebuild: recompute closed days from the log, beside a live stream, and write only what differs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date

from delta.exceptions import DeltaConcurrentModificationException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.changelog import DELETE, INSERT, OWN_COPIES, UPDATE_AFTER, UPDATE_BEFORE, bag_difference
from operators.columns import FINAL_AT
from operators.contract import Upsert
from operators.timing import DAY_MS, ClosedRange
from platform_defs.engine.advance import Advance
from platform_defs.engine.corrections import is_corrected
from platform_defs.engine.days import day_start, text
from platform_defs.engine.progress import progress
from platform_defs.faults import point

_ATTEMPTS = 5


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild found.

    Args:
        first: the first day.
        last: the last day.
        days: the days that differed and were written.
        missing: rows that the table lacked.
        extra: rows that it held and should not.
    """

    first: date
    last: date
    days: tuple[date, ...] = ()
    missing: int = 0
    extra: int = 0


def rebuild(advance: Advance, first: date, last: date) -> Rebuilt:
    """Recompute the closed part of days (of `final_at`, UTC) and put right what differs.

    `closed_to` is read first, and neither the computation nor the write goes past it, so rows that a live stream
    adds meanwhile stay. A day that is equal is not written.

    A table that is corrected as it goes is put right as by a correction: no writer may be at it meanwhile, its change feed tells of
    what differed alone, and what is made of it follows. So is a table that upserts, whole: its rows are of no day.

    Raises:
        OperatorError: its results are never final.
        LakeError: the asset upserts or is corrected as it goes, and has a writer.
    """
    if isinstance(advance.asset.operator.emits, Upsert):
        return _put_right(advance, first, last)
    if not is_corrected(advance.reading, advance.asset):
        return _rebuild(advance, first, last)
    with advance.reading.lake.writer(advance.asset.name):
        return _rebuild(advance, first, last)


def _put_right(advance: Advance, first: date, last: date) -> Rebuilt:
    point("rebuild.before_write")
    kinds = advance.put_right()
    point("rebuild.after_write")
    lacked, held = kinds.get(INSERT, 0) + kinds.get(UPDATE_AFTER, 0), kinds.get(DELETE, 0) + kinds.get(UPDATE_BEFORE, 0)
    return Rebuilt(first, last, (), lacked, held)


def _rebuild(advance: Advance, first: date, last: date) -> Rebuilt:
    asset, reading = advance.asset, advance.reading
    now = progress(reading.lake, asset)
    start, end = day_start(first) - 1, day_start(last) + DAY_MS - 1
    if now.closed_to is None or now.closed_to <= start:
        return Rebuilt(first, last)
    closing = ClosedRange(start, min(end, now.closed_to))
    wanted = advance.closed(closing, now.seq)
    found = _differing(advance, asset, closing, wanted)
    if not found:
        return Rebuilt(first, last)
    days = tuple(sorted(found))
    point("rebuild.before_write")
    if is_corrected(reading, asset):
        advance.correct(now, replace(now, step=now.step + 1), closing)
    else:
        _write(advance, asset, closing, wanted, days)
    point("rebuild.after_write")
    return Rebuilt(first, last, days, sum(m for m, _ in found.values()), sum(e for _, e in found.values()))


def _differing(advance: Advance, asset: DerivedAsset, closing: ClosedRange, wanted: DataFrame) -> dict[date, tuple[int, int]]:
    """The days that differ, with how many rows are missing and how many too many."""
    reading = advance.reading
    within = {FINAL_AT: (closing.after, closing.upto)}
    held = reading.lake.read(reading.spark, asset.name, wanted.schema, within).where(closing.holds(F.col(FINAL_AT)))
    copies = F.col(OWN_COPIES)
    told = bag_difference(held, wanted, OWN_COPIES).groupBy(F.col(FINAL_AT).cast("date").alias("day"))
    counted = told.agg(F.sum(F.greatest(copies, F.lit(0))), F.sum(F.greatest(-copies, F.lit(0)))).collect()
    return {day: (missing, extra) for day, missing, extra in counted}


def _write(advance: Advance, asset: DerivedAsset, closing: ClosedRange, wanted: DataFrame, days: tuple[date, ...]) -> None:
    """Replace the days' closed rows. What a stream appends meanwhile lies past the range, so a conflict is tried again."""
    where = " OR ".join(f"({FINAL_AT} > {text(after)} AND {FINAL_AT} <= {text(upto)})" for after, upto in _ranges(days, closing))
    rows = wanted.where(where)
    told = {"rebuild": {"days": [str(d) for d in days], "closed_to": closing.upto}}
    for attempt in range(_ATTEMPTS):
        try:
            return advance.reading.lake.append(rows, asset.name, told, replace_where=where)
        except DeltaConcurrentModificationException:
            if attempt == _ATTEMPTS - 1:
                raise
    return None


def _ranges(days: tuple[date, ...], closing: ClosedRange) -> Iterator[tuple[int, int]]:
    for day in days:
        start = day_start(day)
        yield start - 1, min(start + DAY_MS - 1, closing.upto)
