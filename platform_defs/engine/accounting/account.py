"""The conservation law: every row ingested is matched, unmatched, pending or late, by side and by day of its own time.

Each term is counted on its own: accepted and late from the log and the ledger, matched and padded rows from the
result table, the rest by anti-join. Beside that the results are recomputed from the log and compared row by row,
so that a row deleted, doubled or altered shows on the sides and days it belongs to, even where the sum still fits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from assets.ports import TERMS
from operators.changelog import bag_difference
from operators.contract import ARRIVAL, EVENT_TIME, SEQ, TracesInputs
from operators.errors import OperatorError
from operators.timing import DAY_MS, instant
from platform_defs.engine.accounting.counted_rows import CountBooks
from platform_defs.engine.accounting.day_accounts import Books, DayAccount, day_of, lacks, print_of, scope_of
from platform_defs.engine.accounting.upserted_rows import EntryBooks
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.days import day_start
from platform_defs.engine.inputs.reader import LATE
from platform_defs.engine.ledger.columns import pc


def account(advance: Advance, days: tuple[date, date] | None = None) -> list[DayAccount]:
    """Account for the rows of an asset's inputs.

    Results that name their rows are held to them, row by row. Of others (of windows, or of derived inputs) rows are counted by
    when nothing more can become of them: matched stands for rows in windows that are closed, pending for those in open ones,
    unmatched for those in none; and missing and extra results go by the day of their `final_at`, on each side. For an asset that
    reads no closed ranges see `EntryBooks`.

    Args:
        advance: the asset.
        days: the first and last day of the rows' own event time; None for all.

    Returns:
        One account a side and day that has rows or results; none while an input has no table yet.

    Raises:
        OperatorError: the operator does not tell what becomes of its rows.
    """
    if not all(of.is_readable(advance.reading.lake) for of in advance.reading.inputs_of(advance.asset)):
        return []
    if not advance.asset.operator.reads.closes_ranges:
        return EntryBooks(advance, scope_of(advance, days)).close()
    return (RowBooks if names_rows(advance) else CountBooks)(advance, scope_of(advance, days)).close()


def names_rows(advance: Advance) -> bool:
    """Whether an asset's results name the rows of sources that they were made of."""
    return isinstance(advance.asset.operator, TracesInputs) and all(of.is_source for of in advance.reading.inputs_of(advance.asset))


def accountable(advance: Advance) -> TracesInputs:
    """The asset's operator, if its results name the rows they were made of."""
    operator = advance.asset.operator
    if not isinstance(operator, TracesInputs):
        raise OperatorError(f"{type(operator).__name__} does not name the rows its results were made of, so they cannot be accounted for")
    return operator


def traced(advance: Advance, which: int, results: DataFrame) -> DataFrame:
    """The rows of input `which` that results were made of, once for each: `seq`, `arrival`, `event_time`, `is_pair`."""
    operator = accountable(advance)
    named = [F.col(operator.traced(c)[which]).alias(c) for c in (SEQ, ARRIVAL, EVENT_TIME)]
    return results.select(*named, _is_pair(operator).alias(IS_PAIR)).where(F.col(SEQ).isNotNull())


@dataclass(frozen=True)
class RowBooks(Books):
    """The account of an asset whose results name the rows of sources that they were made of."""

    @property
    def operator(self) -> TracesInputs:
        """The asset's operator."""
        return accountable(self.advance)

    def terms(self) -> list[Row]:
        """The terms by side and day, from what the log, the ledger and the result table say of each row."""
        inputs = range(len(self.advance.asset.inputs))
        return self._settled(
            reduce(DataFrame.unionByName, [part for i in inputs for part in (self._logged(i), self._results(i))])
        ).collect()

    def _logged(self, which: int) -> DataFrame:
        """A side's rows as the log and the ledger know them."""
        reading, closed_to = self.advance.reading, self.closed_to
        rows = reading.with_lateness(self.advance.asset, which, reading.ledger.head, self.scope.span)
        expires = self.operator.expires(which, F.col(EVENT_TIME))
        expired = F.lit(False) if closed_to is None else expires <= instant(closed_to, expires)
        return _flagged(rows, which, logged=F.lit(True), late=F.col(LATE), expired=expired)

    def _results(self, which: int) -> DataFrame:
        """A side's rows as the result table knows them, once for each result."""
        rows = traced(self.advance, which, self.table(self.scope.results)).where(self.scope.span.holds(F.col(EVENT_TIME)))
        return _flagged(rows, which, paired=F.col(IS_PAIR), padded=~F.col(IS_PAIR))

    def _settled(self, flagged: DataFrame) -> DataFrame:
        """The terms by side and day. A row that the tables name differently falls apart in two, and neither adds up."""
        rows = flagged.groupBy("side", SEQ, ARRIVAL, EVENT_TIME).agg(F.bit_or("flags").alias("flags"))
        logged, late, expired, paired, padded = (F.col("flags").bitwiseAND(bit) != 0 for bit in _BITS.values())
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

    def by_side(self, held: DataFrame, wanted: DataFrame) -> DataFrame:
        """Missing and extra results by side and day of their rows."""
        wrong = bag_difference(self._prints(held), self._prints(wanted))
        times = self.operator.traced(EVENT_TIME)
        by_input = F.array(*[F.struct(F.lit(i).alias("side"), F.col(t).alias(EVENT_TIME)) for i, t in enumerate(times)])
        each = wrong.select(F.explode(by_input).alias("s"), "copies").select("s.*", "copies").where(F.col(EVENT_TIME).isNotNull())
        wrongs = lacks()
        sums = [F.sum(wrongs.get(t, F.lit(0))).cast("bigint").alias(t) for t in TERMS]
        return each.where(self.scope.span.holds(F.col(EVENT_TIME))).groupBy("side", day_of(F.col(EVENT_TIME))).agg(*sums)

    def _prints(self, results: DataFrame) -> DataFrame:
        """A hash of each result, with its sides' times."""
        return results.select(*self.operator.traced(EVENT_TIME), print_of(results))


IS_PAIR = "is_pair"
_BITS = {"logged": 1, "late": 2, "expired": 4, "paired": 8, "padded": 16}


def _flagged(rows: DataFrame, which: int, **flags: Column) -> DataFrame:
    """What one table says of a side's rows, as bits; what it does not speak of is false."""
    bits = [F.when(flag, _BITS[name]).otherwise(0) for name, flag in flags.items()]
    bitmap = reduce(lambda a, b: a.bitwiseOR(b), bits).alias("flags")
    return rows.select(F.lit(which).alias("side"), SEQ, ARRIVAL, EVENT_TIME, bitmap)


def _is_pair(operator: TracesInputs) -> Column:
    return reduce(lambda a, b: a & b, [F.col(s).isNotNull() for s in operator.traced(SEQ)])


def pairs(advance: Advance) -> int:
    """How many results are made of a row of every input."""
    account = RowBooks(advance, scope_of(advance, None))
    return account.table().where(_is_pair(account.operator)).count()


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
        head = advance.reading.ledger.head
        brought = advance.reading.ledger.source(name).table(["seq", "accepted", "first_event_time", "last_event_time"], 0, head)
        brought = brought.filter(pc.greater(brought["accepted"], 0))
        recorded = dict(zip(brought["seq"].to_pylist(), brought["accepted"].to_pylist(), strict=True))
        asked = set(brought["seq"].to_pylist() if days is None else brought["seq"].filter(_hold_rows_of(brought, days)).to_pylist())
        first, last = (1, head) if days is None else (min(asked, default=1), max(asked, default=0))
        rows = advance.reading.log(name, last, after=first - 1)
        held = {row[SEQ]: row["count"] for row in rows.groupBy(SEQ).count().collect()}
        for seq in asked | (held.keys() - recorded.keys()):
            if recorded.get(seq, 0) != held.get(seq, 0):
                wrong[name, seq] = recorded.get(seq, 0), held.get(seq, 0)
    return wrong


def _hold_rows_of(brought: pa.Table, days: tuple[date, date]) -> pa.ChunkedArray:
    """Whether batches hold rows of days, by the times of their rows."""
    first, last = pc.coalesce(brought["first_event_time"], 0), pc.coalesce(brought["last_event_time"], 0)
    return pc.and_(pc.less(first, day_start(days[1]) + DAY_MS), pc.greater_equal(last, day_start(days[0])))


def _sources(advance: Advance) -> Sequence[str]:
    return [of.name for of in advance.reading.inputs_of(advance.asset) if of.is_source]
