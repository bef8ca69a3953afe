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

from operators.changelog import bag_difference
from operators.columns import FINAL_AT
from operators.contract import ARRIVAL, EVENT_TIME, SEQ, Accountable, Closed
from operators.errors import OperatorError
from operators.timing import DAY_MS, ClosedRange, instant
from platform_defs.engine.advance import Advance
from platform_defs.engine.days import day_start
from platform_defs.engine.progress import progress
from platform_defs.engine.reading import Span

TERMS = ("accepted", "matched", "unmatched", "pending", "late", "missing", "extra")


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
            raise OperatorError(f"{type(operator).__name__} does not name the rows its results were made of, so they cannot be accounted for")
        return operator

    def close(self) -> list[DayAccount]:
        sides = range(len(self.advance.asset.inputs))
        terms = [t for i in sides for t in self._side(i)] + self._recount()
        day = _day(F.col(EVENT_TIME))
        union = reduce(DataFrame.unionByName, [t.select("side", day, "term", "n") for t in terms])
        counted = union.groupBy("side", "day").pivot("term", list(TERMS)).agg(F.sum("n")).na.fill(0).collect()
        return [DayAccount(**row.asDict()) for row in counted if any(row[t] for t in TERMS)]

    @property
    def _span(self) -> Span:
        if self.days is None:
            return Span()
        return Span(day_start(self.days[0]), day_start(self.days[1]) + DAY_MS - 1)

    def _side(self, which: int) -> list[DataFrame]:
        advance, head = self.advance, self.advance.reading.ledger.head
        asset, reading = advance.asset, advance.reading
        name = asset.inputs[which]
        log = reading.log(name, head).where(self._span.holds(F.col(EVENT_TIME)))
        results = self._results(which)
        on_time = reading.input(asset, which, head, self._span)
        rest = on_time.join(results.select(SEQ, ARRIVAL), [SEQ, ARRIVAL], "left_anti")
        terms = [
            _term(name, "accepted", log),
            _term(name, "late", reading.input(asset, which, head, self._span, late=True)),
            _term(name, "matched", results.where("is_pair").dropDuplicates([SEQ, ARRIVAL])),
            _term(name, "pending", rest.where(~self._expired(which))),
        ]
        gone = results.where(~F.col("is_pair")).dropDuplicates([SEQ, ARRIVAL]) if self.operator.pads(which) else rest.where(self._expired(which))
        return [*terms, _term(name, "unmatched", gone)]

    def _expired(self, which: int) -> Column:
        closed_to = progress(self.advance.reading.lake, self.advance.asset).closed_to
        return F.lit(False) if closed_to is None else self.operator.expires(which, F.col(EVENT_TIME)) <= instant(closed_to)

    def _results(self, which: int) -> DataFrame:
        """The rows of a side as the result table holds them, once for each result."""
        seqs = self.operator.traced(SEQ)
        is_pair = reduce(lambda a, b: a & b, [F.col(s).isNotNull() for s in seqs])
        named = [F.col(self.operator.traced(c)[which]).alias(c) for c in (SEQ, ARRIVAL, EVENT_TIME)]
        rows = self._table().select(*named, is_pair.alias("is_pair")).where(F.col(SEQ).isNotNull())
        return rows.where(self._span.holds(F.col(EVENT_TIME)))

    def _table(self) -> DataFrame:
        reading, asset = self.advance.reading, self.advance.asset
        empty = self.advance.closed(ClosedRange(None, 0), 0)
        return reading.lake.read(reading.spark, asset.name, empty.schema)

    def _recount(self) -> list[DataFrame]:
        """Results that the table lacks, and those it should not hold, on each side they belong to."""
        advance = self.advance
        now = progress(advance.reading.lake, advance.asset)
        if now.closed_to is None:
            return []
        closing = self._closing(now.closed_to)
        held = self._table().where(closing.holds(F.col(FINAL_AT)))
        wrong = bag_difference(held, advance.closed(closing, now.seq))
        terms: list[DataFrame] = []
        for which, name in enumerate(advance.asset.inputs):
            at = F.col(self.operator.traced(EVENT_TIME)[which]).alias(EVENT_TIME)
            of_side = wrong.select(at, "copies").where(F.col(EVENT_TIME).isNotNull() & self._span.holds(F.col(EVENT_TIME)))
            terms += [_term(name, "missing", of_side, F.col("copies")), _term(name, "extra", of_side, -F.col("copies"))]
        return terms

    def _closing(self, closed_to: int) -> ClosedRange:
        """All results that may hold a row of the days: none is final before its row's time, or later than the reach beyond it."""
        reads, span = self.operator.reads, self._span
        if span.first is None or span.last is None or not isinstance(reads, Closed):
            return ClosedRange(None, closed_to)
        upto = min(span.last + max(reads.reach) + reads.delay, closed_to)
        return ClosedRange(min(span.first - 1, upto), upto)


def _day(time: Column) -> Column:
    return time.cast("date").alias("day")


def _term(side: str, term: str, rows: DataFrame, weight: Column | None = None) -> DataFrame:
    n = F.lit(1) if weight is None else F.greatest(weight, F.lit(0))
    return rows.select(F.lit(side).alias("side"), EVENT_TIME, F.lit(term).alias("term"), n.cast("bigint").alias("n"))


def uncounted_entries(advance: Advance) -> dict[tuple[str, int], tuple[int, int]]:
    """Where ledger and log disagree: (source, seq) to what the ledger says was accepted and what the log holds."""
    reading = advance.reading
    wrong: dict[tuple[str, int], tuple[int, int]] = {}
    for name in _sources(advance):
        told = {s.seq: s.accepted for entry in reading.ledger.entries() for s in entry if s.source == name and s.accepted}
        held = {row[SEQ]: row["count"] for row in reading.log(name, reading.ledger.head).groupBy(SEQ).count().collect()}
        wrong |= {(name, seq): (told.get(seq, 0), held.get(seq, 0)) for seq in told.keys() | held.keys() if told.get(seq, 0) != held.get(seq, 0)}
    return wrong


def _sources(advance: Advance) -> Sequence[str]:
    return [name for name in advance.asset.inputs if name in advance.reading.sources]
