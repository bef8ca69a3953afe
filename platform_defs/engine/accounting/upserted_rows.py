"""The account of an asset that reads entries, or follows an upserted table: a row counts from the entry on that brought it.

There is no watermark to wait for; late is what the operator says is. The table is computed again from all that was handled, and compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from operators.changelog import bag_difference
from operators.contract import EVENT_TIME, SEQ
from platform_defs.engine.accounting.day_accounts import DayAccount, Scope, day_of, lacks, print_of
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.days import moment
from platform_defs.engine.inputs.changelog_reader import as_of_step
from platform_defs.engine.inputs.progress import progress
from platform_defs.engine.inputs.reader import LATE


@dataclass(frozen=True)
class EntryBooks:
    """One account.

    Args:
        advance: the asset.
        scope: which rows of its sources it is of.
    """

    advance: Advance
    scope: Scope

    def close(self) -> list[DayAccount]:
        """One account a source and day: `matched` stands for rows that were handled, `pending` for those of later entries.

        Results that the table lacks, or holds and should not, are reported on the last day of each source. An asset that follows
        another table has no rows of its own to count: it has an account, of the ledger's last day, only where results are wrong.
        """
        reading, asset = self.advance.reading, self.advance.asset
        missing, extra = self._wrong()
        accounts: list[DayAccount] = []
        for of in reading.inputs_of(asset):
            days = [DayAccount(of.name, **row.asDict()) for row in self._handled(of.name)] if of.is_source else []
            [*before, last] = days or [DayAccount(of.name, self._today())]
            accounts += [*before, replace(last, missing=missing, extra=extra)]
        return sorted((a for a in accounts if a.accepted or not a.holds), key=lambda a: (a.day, a.side))

    def _handled(self, source: str) -> Sequence[Row]:
        reading, seq = self.advance.reading, progress(self.advance.reading.lake, self.advance.asset).seq
        which = self.advance.asset.inputs.index(source)
        rows = reading.with_lateness(self.advance.asset, which, reading.ledger.head, self.scope.span).groupBy(day_of(F.col(EVENT_TIME)))
        late, handled = F.col(LATE), F.col(SEQ) <= seq
        terms = {"accepted": F.lit(True), "matched": handled & ~late, "pending": ~handled & ~late, "late": late}
        return rows.agg(*[F.count_if(flag).alias(term) for term, flag in terms.items()]).orderBy("day").collect()

    def _today(self) -> date:
        times = self.advance.reading.ledger.history.times
        return moment(times[-1] if len(times) else 0).date()

    def _wrong(self) -> tuple[int, int]:
        now = progress(self.advance.reading.lake, self.advance.asset)
        if not now.step:
            return 0, 0
        wanted = self.advance.strategy.whole(now)
        held = as_of_step(self.advance.reading, self.advance.asset, now.step)
        copies = bag_difference(_prints(held.select(*wanted.columns)), _prints(wanted))
        [counted] = copies.agg(*[F.coalesce(F.sum(of), F.lit(0)).alias(term) for term, of in lacks().items()]).collect()
        return counted["missing"], counted["extra"]


def _prints(rows: DataFrame) -> DataFrame:
    return rows.select(print_of(rows))
