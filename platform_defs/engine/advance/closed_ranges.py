"""Closed ranges: a step computes the results that become final between two watermarks, or corrects results of earlier steps."""

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.days import text
from operators.changelog import DELETE, OWN_CHANGE, UPDATE_BEFORE, bag_changes, difference
from operators.columns import FINAL_AT, same_rows
from operators.timing import ClosedRange
from platform_defs.engine.advance.appended_table import AppendedTable
from platform_defs.engine.advance.corrections import with_correction
from platform_defs.engine.advance.strategy import Strategy
from platform_defs.engine.inputs.progress import Progress, progress, require_same_columns
from platform_defs.engine.inputs.reader import Span
from platform_defs.engine.lake.small_queries import collected
from platform_defs.faults import point


@dataclass(frozen=True)
class ClosedRanges(Strategy):
    """Advances an asset whose results are final when the watermark reaches their `final_at`."""

    def results(self, before: Progress, after: Progress) -> DataFrame:
        """The results that are final in `before.closed_to < final_at <= after.closed_to`."""
        return self.closed(ClosedRange(before.closed_to, after.closed_to or 0), after.seq)

    def closed(self, closing: ClosedRange, head: int) -> DataFrame:
        """The results that are final in a range, computed from the inputs' rows up to batch `head`."""
        reads, frames = self.asset.operator.reads, list[DataFrame]()
        for which in range(len(self.asset.inputs)):
            first = None if closing.after is None else closing.after - reads.lookback_of(which)
            frames.append(self.reading.input(self.asset, which, head, Span(first, closing.upto)))
        return self.asset.rows(*frames).where(closing.holds(F.col(FINAL_AT)))

    def correct(self, before: Progress, after: Progress, closing: ClosedRange, key: tuple[str, ...] = ()) -> tuple[Progress, int]:
        """Recompute a range of closed results and repair what differs, in one commit with the progress.

        Args:
            before: the progress before the correction.
            after: the progress to commit with it.
            closing: the range.
            key: the columns that identify a row of the table, so that a changed row is updated; empty to delete and insert rows.

        Returns:
            The progress that was committed, which records the times of the changed results, and the number of changes.
        """
        table = AppendedTable(self.reading, self.asset)
        wanted = self.closed(closing, after.seq)
        require_same_columns(self.reading.lake, self.asset, wanted)
        span = Span(None if closing.after is None else closing.after + 1, closing.upto)
        held = self.reading.table(self.asset.name, FINAL_AT, span)
        changes = (difference(held, wanted, key=key, change=OWN_CHANGE) if key else bag_changes(held, wanted, OWN_CHANGE)).persist()
        try:
            [(count, first, last)] = collected(changes.agg(F.count("*"), *[f(F.unix_millis(FINAL_AT)) for f in (F.min, F.max)]))
            if not count:
                return after, table.append(wanted.limit(0), after)
            after = replace(after, corrected=with_correction(before.corrected, after.step, first, last))
            point("advance.before_commit")
            self._repair(changes, after, key, F.col(f"t.{FINAL_AT}").between(*[F.expr(text(end)) for end in (first, last)]))
            point("advance.after_commit")
            return after, count
        finally:
            changes.unpersist()

    def _repair(self, changes: DataFrame, after: Progress, key: tuple[str, ...], within: Column) -> None:
        """Merge changes into the table, in one commit with the progress."""
        is_deleted = F.col(f"c.{OWN_CHANGE}") == DELETE
        own = changes.drop(OWN_CHANGE)
        same = same_rows("t", "c", key) if key else same_rows("t", "c", own.columns, own.schema) & is_deleted
        newest = changes.where(F.col(OWN_CHANGE) != UPDATE_BEFORE)
        metadata = after.metadata(progress(self.reading.lake, self.asset))
        self.reading.lake.merge(self.asset.name, newest, same & within, is_deleted=is_deleted, metadata=metadata, number=after.step)
