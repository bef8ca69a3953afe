"""The conservation law: every row let in is matched, unmatched, pending or late, by side and by day of its own time.

Each term is counted on its own: accepted and late from the log and the ledger, matched and padded rows from the
result table, the rest by anti-join. Beside that the results are recomputed from the log and compared row by row,
so that a row deleted, doubled or altered shows on the sides and days it belongs to, even where the sum still fits.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from assets.ports import TERMS
from operators.changelog import bag_difference
from operators.columns import FINAL_AT
from operators.contract import ARRIVAL, EVENT_TIME, SEQ, Accountable, Closed
from operators.errors import OperatorError
from operators.timing import DAY_MS, ClosedRange, instant
from platform_defs.engine.advance import Advance
from platform_defs.engine.days import day_start
from platform_defs.engine.ledger import SourceEntry
from platform_defs.engine.progress import progress
from platform_defs.engine.reading import EVER, LATE, Span


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
    return _Books(advance, _scope(advance, days)).close()


@dataclass(frozen=True)
class _Scope:
    """Which rows an account is of.

    Args:
        span: the rows' own event times.
        results: when the results that hold such rows are final.
        recount: the results to compute again; None where none is closed.
    """

    span: Span
    results: Span
    recount: ClosedRange | None


def _scope(advance: Advance, days: tuple[date, date] | None) -> _Scope:
    """No result is final before its rows' times, or later than the reach beyond them."""
    closed_to = progress(advance.reading.lake, advance.asset).closed_to
    if days is None:
        return _Scope(EVER, EVER, None if closed_to is None else ClosedRange(None, closed_to))
    first, last = day_start(days[0]), day_start(days[1]) + DAY_MS - 1
    final = last + longest_wait(advance)
    upto = min(final, closed_to or 0)
    return _Scope(Span(first, last), Span(first, final), None if closed_to is None else ClosedRange(min(first - 1, upto), upto))


def longest_wait(advance: Advance, which: int | None = None) -> int:
    """The longest that the fate of an input's row (of any input's) may be open, in ms."""
    reads = advance.asset.operator.reads
    if not isinstance(reads, Closed):
        return 0
    return reads.delay + (max(reads.reach) if which is None else reads.reach[which])


def accountable(advance: Advance) -> Accountable:
    """The asset's operator, if its results name the rows they were made of."""
    operator = advance.asset.operator
    if not isinstance(operator, Accountable):
        raise OperatorError(f"{type(operator).__name__} does not name the rows its results were made of, so they cannot be accounted for")
    return operator


def traced(advance: Advance, which: int, results: DataFrame) -> DataFrame:
    """The rows of input `which` that results were made of, once for each: `seq`, `arrival`, `event_time`, `is_pair`."""
    operator = accountable(advance)
    named = [F.col(operator.traced(c)[which]).alias(c) for c in (SEQ, ARRIVAL, EVENT_TIME)]
    return results.select(*named, _is_pair(operator).alias(IS_PAIR)).where(F.col(SEQ).isNotNull())


@dataclass(frozen=True)
class _Books:
    advance: Advance
    scope: _Scope

    @property
    def operator(self) -> Accountable:
        return accountable(self.advance)

    def close(self) -> list[DayAccount]:
        sides = range(len(self.advance.asset.inputs))
        told = reduce(DataFrame.unionByName, [part for i in sides for part in (self._let_in(i), self._results(i))])
        counted = [*self._settled(told).collect(), *self._wrong()]
        found: dict[tuple[int, date], Counter[str]] = {}
        for row in counted:
            found.setdefault((row["side"], row["day"]), Counter()).update({t: row[t] for t in TERMS})
        names = self.advance.asset.inputs
        accounts = [DayAccount(names[side], day, **terms) for (side, day), terms in found.items() if any(terms.values())]
        return sorted(accounts, key=lambda a: (a.day, a.side))

    def _let_in(self, which: int) -> DataFrame:
        """A side's rows as the log and the ledger know them."""
        reading, closed_to = self.advance.reading, self._closed_to
        rows = reading.judged(self.advance.asset, which, reading.ledger.head, self.scope.span)
        expires = self.operator.expires(which, F.col(EVENT_TIME))
        expired = F.lit(False) if closed_to is None else expires <= instant(closed_to, expires)
        return _told(rows, which, logged=F.lit(True), late=F.col(LATE), expired=expired)

    @property
    def _closed_to(self) -> int | None:
        return None if self.scope.recount is None else progress(self.advance.reading.lake, self.advance.asset).closed_to

    def _results(self, which: int) -> DataFrame:
        """A side's rows as the result table knows them, once for each result."""
        rows = traced(self.advance, which, self.table(self.scope.results)).where(self.scope.span.holds(F.col(EVENT_TIME)))
        return _told(rows, which, paired=F.col(IS_PAIR), padded=~F.col(IS_PAIR))

    def _settled(self, told: DataFrame) -> DataFrame:
        """The terms by side and day. A row that the tables name differently falls apart in two, and neither adds up."""
        rows = told.groupBy("side", SEQ, ARRIVAL, EVENT_TIME).agg(F.bit_or("said").alias("said"))
        logged, late, expired, paired, padded = (F.col("said").bitwiseAND(bit) != 0 for bit in _BITS.values())
        rest = logged & ~late & ~paired & ~padded
        pads = F.col("side").isin([i for i in range(len(self.advance.asset.inputs)) if self.operator.pads(i)])
        counts = {
            "accepted": logged,
            "matched": paired,
            "unmatched": F.when(pads, padded).otherwise(rest & expired),
            "pending": rest & ~expired,
            "late": late,
        }
        return rows.groupBy("side", day_of(F.col(EVENT_TIME))).agg(*[F.count_if(counts.get(t, F.lit(False))).alias(t) for t in TERMS])

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
        wanted = self.advance.closed(closing, self._handled)
        held = self.table(Span(closing.after, closing.upto)).where(closing.holds(F.col(FINAL_AT))).select(*wanted.columns)
        days = _differing(held, wanted)
        if not days:
            return []
        return self._by_side(*(frame.where(day_of(F.col(FINAL_AT)).isin(days)) for frame in (held, wanted))).collect()

    @property
    def _handled(self) -> int:
        return progress(self.advance.reading.lake, self.advance.asset).seq

    def _by_side(self, held: DataFrame, wanted: DataFrame) -> DataFrame:
        wrong = bag_difference(self._prints(held), self._prints(wanted))
        times = self.operator.traced(EVENT_TIME)
        sides = F.array(*[F.struct(F.lit(i).alias("side"), F.col(t).alias(EVENT_TIME)) for i, t in enumerate(times)])
        each = wrong.select(F.explode(sides).alias("s"), "copies").select("s.*", "copies").where(F.col(EVENT_TIME).isNotNull())
        lacks = {"missing": F.greatest(F.col("copies"), F.lit(0)), "extra": F.greatest(-F.col("copies"), F.lit(0))}
        sums = [F.sum(lacks.get(t, F.lit(0))).cast("bigint").alias(t) for t in TERMS]
        return each.where(self.scope.span.holds(F.col(EVENT_TIME))).groupBy("side", day_of(F.col(EVENT_TIME))).agg(*sums)

    def _prints(self, results: DataFrame) -> DataFrame:
        """A hash of each result, with its sides' times."""
        return results.select(*self.operator.traced(EVENT_TIME), _print(results))


def day_of(time: Column) -> Column:
    """The day of a time, in UTC, as `day`."""
    return time.cast("date").alias("day")


IS_PAIR = "is_pair"
_BITS = {"logged": 1, "late": 2, "expired": 4, "paired": 8, "padded": 16}


def _told(rows: DataFrame, which: int, **flags: Column) -> DataFrame:
    """What one table says of a side's rows, as bits; what it does not speak of is false."""
    bits = [F.when(flag, _BITS[name]).otherwise(0) for name, flag in flags.items()]
    said = reduce(lambda a, b: a.bitwiseOR(b), bits).alias("said")
    return rows.select(F.lit(which).alias("side"), SEQ, ARRIVAL, EVENT_TIME, said)


def _differing(held: DataFrame, wanted: DataFrame) -> list[date]:
    """The days of `final_at` on which two bags of rows differ: by number, or by the sum of their rows' hashes."""
    told = [{row["day"]: tuple(row) for row in _prints_by_day(f).collect()} for f in (held, wanted)]
    return sorted(day for day in told[0].keys() | told[1].keys() if told[0].get(day) != told[1].get(day))


def _print(frame: DataFrame) -> Column:
    """A row's hash. Spark's passes over nulls, so that a value would hash alike in any of two columns; where they are counts too."""
    return F.xxhash64(*frame.columns, *[F.col(f"`{c}`").isNull() for c in frame.columns]).alias("print")


def _prints_by_day(frame: DataFrame) -> DataFrame:
    """How many rows a day holds, and the sums of their hashes, in two halves that cannot overflow."""
    rows = frame.select(day_of(F.col(FINAL_AT)), _print(frame))
    halves = F.shiftrightunsigned("print", 32), F.col("print").bitwiseAND(0xFFFFFFFF)
    return rows.groupBy("day").agg(F.count("*"), *map(F.sum, halves))


def _is_pair(operator: Accountable) -> Column:
    return reduce(lambda a, b: a & b, [F.col(s).isNotNull() for s in operator.traced(SEQ)])


def pairs(advance: Advance) -> int:
    """How many results are made of a row of every input."""
    books = _Books(advance, _scope(advance, None))
    return books.table().where(_is_pair(books.operator)).count()


def uncounted_entries(advance: Advance, days: tuple[date, date] | None = None) -> dict[tuple[str, int], tuple[int, int]]:
    """Where ledger and log disagree.

    Args:
        advance: the asset.
        days: look only at entries that tell of rows of these days; None for all.

    Returns:
        (source, seq) to what the ledger says was accepted and what the log holds.
    """
    wrong: dict[tuple[str, int], tuple[int, int]] = {}
    for name in _sources(advance):
        entries = [s for entry in advance.reading.ledger.entries() for s in entry if s.source == name and s.accepted]
        told = {s.seq: s.accepted for s in entries}
        asked = {s.seq for s in entries if days is None or _holds_rows_of(s, days)}
        first, last = (1, advance.reading.ledger.head) if days is None else (min(asked, default=1), max(asked, default=0))
        rows = advance.reading.log(name, last, after=first - 1)
        held = {row[SEQ]: row["count"] for row in rows.groupBy(SEQ).count().collect()}
        for seq in asked | (held.keys() - told.keys()):
            if told.get(seq, 0) != held.get(seq, 0):
                wrong[name, seq] = told.get(seq, 0), held.get(seq, 0)
    return wrong


def _holds_rows_of(said: SourceEntry, days: tuple[date, date]) -> bool:
    return (said.first_event_time or 0) < day_start(days[1]) + DAY_MS and (said.last_event_time or 0) >= day_start(days[0])


def _sources(advance: Advance) -> Sequence[str]:
    return [name for name in advance.asset.inputs if name in advance.reading.sources]
