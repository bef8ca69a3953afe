"""The conservation law: every row let in is matched, unmatched, pending or late, by side and by day of its own time.

Each term is counted on its own: accepted and late from the log and the ledger, matched and padded rows from the
result table, the rest by anti-join. Beside that the results are recomputed from the log and compared row by row,
so that a row deleted, doubled or altered shows on the sides and days it belongs to, even where the sum still fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.ports import TERMS
from operators.changelog import bag_difference
from operators.columns import FINAL_AT
from operators.contract import ARRIVAL, EVENT_TIME, SEQ, Accountable, Closed
from operators.errors import OperatorError
from operators.timing import DAY_MS, ClosedRange, instant
from platform_defs.engine.advance import Advance
from platform_defs.engine.days import day_start
from platform_defs.engine.progress import progress
from platform_defs.engine.reading import LATE, Span


@dataclass(frozen=True)
class DayAccount:
    """One side's rows of one day of their own event time.

    Args:
        side: the source.
        day: the day, UTC.
        accepted: rows in the log.
        matched: rows in at least one emitted pair.
        unmatched: rows that nothing matched and nothing can match any more.
        pending: rows that may still be matched.
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


def account(advance: Advance, days: tuple[date, date] | None = None) -> list[DayAccount]:
    """Account for the rows of an asset's sources.

    Args:
        advance: the asset; its operator must be accountable, and its inputs sources.
        days: the first and last day of the rows' own event time; None for all.

    Returns:
        One account a side and day that has rows or results.

    Raises:
        OperatorError: the operator's results do not name the rows they were made of.
    """
    return sorted(_Books(advance, days).close(), key=lambda a: (a.day, a.side))


@dataclass(frozen=True)
class _Books:
    advance: Advance
    days: tuple[date, date] | None

    @property
    def operator(self) -> Accountable:
        operator = self.advance.asset.operator
        if not isinstance(operator, Accountable):
            raise OperatorError(
                f"{type(operator).__name__} does not name the rows its results were made of, so they cannot be accounted for"
            )
        return operator

    def close(self) -> list[DayAccount]:
        sides = range(len(self.advance.asset.inputs))
        told = reduce(DataFrame.unionByName, [part for i in sides for part in (self._let_in(i), self._results(i))])
        terms = _settled(told).unionByName(self._recount()) if self._closed_to is not None else _settled(told)
        counted = terms.groupBy("side", "day").agg(*[F.sum(t).cast("bigint").alias(t) for t in TERMS]).collect()
        return [DayAccount(**row.asDict()) for row in counted if any(row[t] for t in TERMS)]

    @property
    def _span(self) -> Span:
        if self.days is None:
            return Span()
        return Span(day_start(self.days[0]), day_start(self.days[1]) + DAY_MS - 1)

    @property
    def _closed_to(self) -> int | None:
        return progress(self.advance.reading.lake, self.advance.asset).closed_to

    def _let_in(self, which: int) -> DataFrame:
        """A side's rows as the log and the ledger know them."""
        reading, asset = self.advance.reading, self.advance.asset
        rows = reading.judged(asset, which, reading.ledger.head, self._span)
        expires = self.operator.expires(which, F.col(EVENT_TIME))
        expired = F.lit(False) if self._closed_to is None else expires <= instant(self._closed_to)
        return _told(rows, asset.inputs[which], self.operator.pads(which), logged=F.lit(True), late=F.col(LATE), expired=expired)

    def _results(self, which: int) -> DataFrame:
        """A side's rows as the result table knows them, once for each result."""
        traced = [self.operator.traced(c)[which] for c in (SEQ, ARRIVAL, EVENT_TIME)]
        named = [F.col(t).alias(c) for t, c in zip(traced, (SEQ, ARRIVAL, EVENT_TIME), strict=True)]
        rows = self.table().select(*named, _is_pair(self.operator).alias("_pair")).where(F.col(SEQ).isNotNull())
        near = rows.where(self._span.holds(F.col(EVENT_TIME)))
        return _told(near, self.advance.asset.inputs[which], self.operator.pads(which), paired=F.col("_pair"), padded=~F.col("_pair"))

    def table(self) -> DataFrame:
        """The result table; no rows where there is none yet."""
        reading, asset = self.advance.reading, self.advance.asset
        if reading.lake.delta(asset.name) is not None:
            return reading.spark.read.format("delta").load(reading.lake.path(asset.name))
        return self.advance.closed(ClosedRange(None, 0), 0).limit(0)

    def _recount(self) -> DataFrame:
        """Results that the table lacks, and those it should not hold, on each side they belong to."""
        advance, now = self.advance, progress(self.advance.reading.lake, self.advance.asset)
        closing = self._closing(now.closed_to or 0)
        wanted = advance.closed(closing, now.seq)
        held = self.table().where(closing.holds(F.col(FINAL_AT))).select(*wanted.columns)
        wrong = bag_difference(self._prints(held), self._prints(wanted))
        times = self.operator.traced(EVENT_TIME)
        sides = F.array(
            *[F.struct(F.lit(n).alias("side"), F.col(t).alias(EVENT_TIME)) for n, t in zip(advance.asset.inputs, times, strict=True)]
        )
        each = wrong.select(F.explode(sides).alias("s"), "copies").select("s.*", "copies").where(F.col(EVENT_TIME).isNotNull())
        lacks = {"missing": F.greatest(F.col("copies"), F.lit(0)), "extra": F.greatest(-F.col("copies"), F.lit(0))}
        columns = [lacks.get(t, F.lit(0)).cast("bigint").alias(t) for t in TERMS]
        return each.where(self._span.holds(F.col(EVENT_TIME))).select("side", _day(F.col(EVENT_TIME)), *columns)

    def _prints(self, results: DataFrame) -> DataFrame:
        """A hash of each result, with its sides' times."""
        return results.select(*self.operator.traced(EVENT_TIME), F.xxhash64(*results.columns).alias("print"))

    def _closing(self, closed_to: int) -> ClosedRange:
        """All results that may hold a row of the days: none is final before its row's time, or later than the reach beyond it."""
        reads, span = self.operator.reads, self._span
        if span.first is None or span.last is None or not isinstance(reads, Closed):
            return ClosedRange(None, closed_to)
        upto = min(span.last + max(reads.reach) + reads.delay, closed_to)
        return ClosedRange(min(span.first - 1, upto), upto)


def _day(time: Column) -> Column:
    return time.cast("date").alias("day")


_FLAGS = ("logged", "late", "expired", "paired", "padded")


def _told(rows: DataFrame, side: str, pads: bool, **flags: Column) -> DataFrame:
    """What one table says of rows; what it does not speak of is false."""
    said = [F.coalesce(flags.get(f, F.lit(False)), F.lit(False)).alias(f) for f in _FLAGS]
    return rows.select(F.lit(side).alias("side"), F.lit(pads).alias("pads"), SEQ, ARRIVAL, EVENT_TIME, *said)


def _settled(told: DataFrame) -> DataFrame:
    """The terms by side and day. A row that the tables name differently falls apart in two, and neither adds up."""
    rows = told.groupBy("side", "pads", SEQ, ARRIVAL, EVENT_TIME).agg(*[F.max(f).alias(f) for f in _FLAGS])
    logged, late, expired, paired, padded = (F.col(f) for f in _FLAGS)
    rest = logged & ~late & ~paired & ~padded
    counts = {
        "accepted": logged,
        "matched": paired,
        "unmatched": F.when(F.col("pads"), padded).otherwise(rest & expired),
        "pending": rest & ~expired,
        "late": late,
    }
    return rows.groupBy("side", _day(F.col(EVENT_TIME))).agg(*[F.count_if(counts.get(t, F.lit(False))).alias(t) for t in TERMS])


def _is_pair(operator: Accountable) -> Column:
    return reduce(lambda a, b: a & b, [F.col(s).isNotNull() for s in operator.traced(SEQ)])


def pairs(advance: Advance) -> int:
    """How many results are made of a row of every input."""
    books = _Books(advance, None)
    return books.table().where(_is_pair(books.operator)).count()


def uncounted_entries(advance: Advance) -> dict[tuple[str, int], tuple[int, int]]:
    """Where ledger and log disagree: (source, seq) to what the ledger says was accepted and what the log holds."""
    reading = advance.reading
    wrong: dict[tuple[str, int], tuple[int, int]] = {}
    for name in _sources(advance):
        told = {s.seq: s.accepted for entry in reading.ledger.entries() for s in entry if s.source == name and s.accepted}
        held = {row[SEQ]: row["count"] for row in reading.log(name, reading.ledger.head).groupBy(SEQ).count().collect()}
        wrong |= {
            (name, seq): (told.get(seq, 0), held.get(seq, 0)) for seq in told.keys() | held.keys() if told.get(seq, 0) != held.get(seq, 0)
        }
    return wrong


def _sources(advance: Advance) -> Sequence[str]:
    return [name for name in advance.asset.inputs if name in advance.reading.sources]
