"""The frame of an account: which days it is of, and the results held beside those computed again."""

from collections import Counter
from dataclasses import dataclass
from datetime import date

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from assets.ports import TERMS
from operators.columns import FINAL_AT, comparable
from operators.timing import DAY_MS, ClosedRange
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.advance.corrections import unread_corrections
from platform_defs.engine.advance.position import position_of
from platform_defs.engine.days import day_start
from platform_defs.engine.inputs.progress import ProgressError, progress
from platform_defs.engine.inputs.reader import EVER, Span
from platform_defs.engine.lake.table_columns import differing_columns


@dataclass(frozen=True)
class DayAccount:
    """One side's rows of one day of their own event time.

    Args:
        side: the source.
        day: the day, UTC.
        accepted: rows in the log.
        matched: rows in at least one emitted pair; of windows, rows all of whose windows are closed.
        unmatched: rows that nothing matched and nothing can match any more; of windows, rows in none.
        pending: rows that may still be matched, or lie in an open window.
        late: rows that came after the watermark had passed them.
        missing: results of this side and day that the table lacks.
        extra: results that it holds and should not.
    """

    side: str
    day: date
    accepted: int = 0
    matched: int = 0
    unmatched: int = 0
    pending: int = 0
    late: int = 0
    missing: int = 0
    extra: int = 0

    @property
    def holds(self) -> bool:
        """Whether every row is accounted for, once."""
        return self.accepted == self.matched + self.unmatched + self.pending + self.late and not self.missing and not self.extra

    @property
    def completeness(self) -> float:
        """The share of matched rows among those whose fate is settled; 1 where there is none."""
        settled = self.matched + self.unmatched
        return self.matched / settled if settled else 1.0


@dataclass(frozen=True)
class Scope:
    """Which rows an account is of.

    Args:
        span: the rows' own event times.
        results: when the results that hold such rows are final.
        recount: the results to compute again; None where none is closed.
    """

    span: Span
    results: Span
    recount: ClosedRange | None


def scope_of(advance: Advance, days: tuple[date, date] | None) -> Scope:
    """No result is final before its rows' times, or later than the reach beyond them."""
    closed_to = progress(advance.reading.lake, advance.asset).closed_to
    if days is None:
        return Scope(EVER, EVER, None if closed_to is None else ClosedRange(None, closed_to))
    first, last = day_start(days[0]), day_start(days[1]) + DAY_MS - 1
    final = last + longest_wait(advance)
    upto = min(final, closed_to or 0)
    return Scope(Span(first, last), Span(first, final), None if closed_to is None else ClosedRange(min(first - 1, upto), upto))


def longest_wait(advance: Advance, which: int | None = None) -> int:
    """The longest that the fate of an input's row (of any input's) may be open, in ms."""
    reads = advance.asset.operator.reads
    return reads.delay + (reads.longest_reach if which is None else reads.reach_of(which))


@dataclass(frozen=True)
class Books:
    """What both ways to account share: the results held, and those computed again."""

    advance: Advance
    scope: Scope

    def close(self) -> list[DayAccount]:
        """The accounts."""
        found: dict[tuple[int, date], Counter[str]] = {}
        for row in [*self.terms(), *self._wrong()]:
            found.setdefault((row["side"], row["day"]), Counter()).update({t: row[t] for t in TERMS if t in row})
        names = self.advance.asset.inputs
        accounts = [DayAccount(names[side], day, **terms) for (side, day), terms in found.items() if any(terms.values())]
        return sorted(accounts, key=lambda a: (a.day, a.side))

    def terms(self) -> list[Row]:
        """The terms by side and day."""
        raise NotImplementedError

    def by_side(self, held: DataFrame, wanted: DataFrame) -> DataFrame:
        """Missing and extra results by side and day."""
        raise NotImplementedError

    @property
    def closed_to(self) -> int | None:
        """The watermark up to which results are closed."""
        return None if self.scope.recount is None else progress(self.advance.reading.lake, self.advance.asset).closed_to

    def table(self, span: Span = EVER) -> DataFrame:
        """The result table's rows that are final in a span; none where there is no table yet."""
        reading, asset = self.advance.reading, self.advance.asset
        if reading.lake.delta(asset.name) is not None:
            return reading.table(asset.name, FINAL_AT, span)
        return self.advance.closed(ClosedRange(None, 0), 0).limit(0)

    def _wrong(self) -> list[Row]:
        """Results that the table lacks, and those it should not hold, on each side they belong to."""
        closing = self.scope.recount
        if closing is None:
            return []
        reading, asset = self.advance.reading, self.advance.asset
        now = progress(reading.lake, asset)
        wanted = self.advance.closed(closing, now.seq)
        table = self.table(Span(closing.after, closing.upto))
        if differing := differing_columns(table.schema, wanted.schema):
            raise ProgressError.other_columns(asset.name, differing)
        held = table.where(closing.holds(F.col(FINAL_AT))).select(*wanted.columns)
        for later in unread_corrections(position_of(reading, asset, now)):  # the next step recomputes these: nothing is wrong with them yet
            held, wanted = (frame.where(~later.holds(F.col(FINAL_AT))) for frame in (held, wanted))
        days = _differing(held, wanted)
        if not days:
            return []
        return self.by_side(*(frame.where(day_of(F.col(FINAL_AT)).isin(days)) for frame in (held, wanted))).collect()


def day_of(time: Column) -> Column:
    """The day of a time, in UTC, as `day`; the first and the last that Python has for times beyond these."""
    return F.least(F.greatest(time.cast("date"), F.expr("date'0001-01-01'")), F.expr("date'9999-12-31'")).alias("day")


def lacks() -> dict[str, Column]:
    """The terms of a difference of bags: how many results are missing, and how many too many."""
    copies = F.col("copies")
    return {"missing": F.greatest(copies, F.lit(0)), "extra": F.greatest(-copies, F.lit(0))}


def _differing(held: DataFrame, wanted: DataFrame) -> list[date]:
    """The days of `final_at` on which two bags of rows differ: by number, or by the sum of their rows' hashes."""
    prints = [{row["day"]: tuple(row) for row in _prints_by_day(f).collect()} for f in (held, wanted)]
    return sorted(day for day in prints[0].keys() | prints[1].keys() if prints[0].get(day) != prints[1].get(day))


def print_of(frame: DataFrame) -> Column:
    """A row's hash. Spark's passes over nulls, so that a value would hash alike in any of two columns; where they are counts too."""
    values = [comparable(F.col(f"`{f.name}`"), f.dataType) for f in frame.schema.fields]  # Spark hashes no map
    return F.xxhash64(*values, *[F.col(f"`{c}`").isNull() for c in frame.columns]).alias("print")


def _prints_by_day(frame: DataFrame) -> DataFrame:
    """How many rows a day holds, and the sums of their hashes, in two halves that cannot overflow."""
    rows = frame.select(day_of(F.col(FINAL_AT)), print_of(frame))
    halves = F.shiftrightunsigned("print", 32), F.col("print").bitwiseAND(0xFFFFFFFF)
    return rows.groupBy("day").agg(F.count("*"), *map(F.sum, halves))
