"""The account of an asset whose results do not name rows of sources: of windows, or of what is made of derived tables.

Rows are counted as they came and were judged, and once more by what the operator says of when nothing more can become of them.
The results are computed again from the log and compared, so that one that was lost, doubled or altered shows on its day.
"""

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from operators.changelog import bag_difference
from operators.columns import FINAL_AT
from operators.contract import EVENT_TIME, SETTLED, WHICH, ReportsFinality
from operators.errors import OperatorError
from operators.timing import instant
from platform_defs.engine.accounting.day_accounts import Books, day_of, lacks, longest_wait, print_of
from platform_defs.engine.inputs.reader import LATE, Span


@dataclass(frozen=True)
class CountBooks(Books):
    """The account of an asset whose results do not name rows of sources."""

    def terms(self) -> list[Row]:
        """Rows as they came and as they were judged, and what the operator says of those that were not late."""
        return [*self._accepted_and_late().collect(), *self._settled().collect()]

    def _frames(self) -> list[DataFrame]:
        """Each input's rows, with the verdict: as far about the days as a window may reach."""
        reading, asset, span = self.advance.reading, self.advance.asset, self.scope.span
        reach = longest_wait(self.advance)
        wide = Span(None if span.first is None else span.first - reach, None if span.last is None else span.last + reach)
        return [reading.with_lateness(asset, which, reading.ledger.head, wide) for which in range(len(asset.inputs))]

    def _accepted_and_late(self) -> DataFrame:
        inputs = [frame.select(F.lit(which).alias("side"), EVENT_TIME, LATE) for which, frame in enumerate(self._frames())]
        rows = reduce(DataFrame.unionByName, inputs).where(self.scope.span.holds(F.col(EVENT_TIME)))
        return rows.groupBy("side", day_of(F.col(EVENT_TIME))).agg(F.count("*").alias("accepted"), F.count_if(LATE).alias("late"))

    def _settled(self) -> DataFrame:
        operator = self.advance.asset.operator
        if not isinstance(operator, ReportsFinality):
            raise OperatorError(f"{type(operator).__name__} does not tell what becomes of its rows, so they cannot be accounted for")
        rows = operator.settles(*[frame.where(~F.col(LATE)).drop(LATE) for frame in self._frames()])
        settled = F.col(SETTLED)
        closed = F.lit(False) if self.closed_to is None else settled <= instant(self.closed_to, settled)
        counts = {"matched": closed, "pending": ~closed, "unmatched": settled.isNull()}
        by_day = rows.where(self.scope.span.holds(F.col(EVENT_TIME))).groupBy(F.col(WHICH).alias("side"), day_of(F.col(EVENT_TIME)))
        return by_day.agg(*[F.count_if(flag).alias(term) for term, flag in counts.items()])

    def by_side(self, held: DataFrame, wanted: DataFrame) -> DataFrame:
        """Missing and extra results by the day they are final, on every side."""
        copies = bag_difference(held.select(FINAL_AT, print_of(held)), wanted.select(FINAL_AT, print_of(wanted)))
        side = F.explode(F.array(*[F.lit(i) for i in range(len(self.advance.asset.inputs))])).alias("side")
        by_day = copies.select(side, FINAL_AT, "copies").groupBy("side", day_of(F.col(FINAL_AT)))
        return by_day.agg(*[F.sum(of).cast("bigint").alias(term) for term, of in lacks().items()])
