"""Closed ranges: a step computes the results that become final between two watermarks, or corrects results of earlier steps."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from operators.changelog import OWN_CHANGE, bag_changes, difference
from operators.columns import FINAL_AT
from operators.timing import ClosedRange
from platform_defs.engine.advance.appended_table import AppendedTable
from platform_defs.engine.advance.changed_results import Changes
from platform_defs.engine.advance.corrections import with_correction
from platform_defs.engine.advance.kept_versions import KeptVersions
from platform_defs.engine.advance.oldest_change import changes_from
from platform_defs.engine.advance.rows_per_key import split_keys
from platform_defs.engine.advance.state import StatePart, input_rows
from platform_defs.engine.advance.strategy import Strategy
from platform_defs.engine.inputs.progress import Progress, progress, require_same_columns
from platform_defs.engine.inputs.reader import Span
from platform_defs.faults import point


@dataclass(frozen=True)
class ClosedRanges(Strategy):
    """Advances an asset whose results are final when the watermark reaches their `final_at`."""

    def results(self, before: Progress, after: Progress) -> DataFrame:
        """The results that are final in `before.closed_to < final_at <= after.closed_to`."""
        return self._closed(ClosedRange(before.closed_to, after.closed_to or 0), after.seq, KeptVersions.of(self.reading, self.asset))

    def step(self, before: Progress, after: Progress) -> int:
        """Compute and commit the step, then the versions that later steps need."""
        written, versions = super().step(before, after), KeptVersions.of(self.reading, self.asset)
        if versions is not None:
            versions.commit(after)
        return written

    def state(self, now: Progress) -> Iterator[StatePart]:
        """The rows of the inputs that may be in results that are not final yet, or that a step may correct."""
        reads, changes_after = self.asset.operator.reads, changes_from(self.reading, self.asset)
        versions = KeptVersions.of(self.reading, self.asset)
        for which in range(len(self.asset.inputs)):
            kept = versions.state(now) if versions is not None and versions.which == which else None
            first, _ = reads.span_of(which, changes_after)
            yield from input_rows(self.reading, self.asset, which, now, first) if kept is None else kept

    def closed(self, closing: ClosedRange, head: int) -> DataFrame:
        """The results that are final in a range, computed from the inputs' rows up to batch `head`, with no use of kept rows."""
        return self._closed(closing, head, None)

    def _closed(self, closing: ClosedRange, head: int, versions: KeptVersions | None) -> DataFrame:
        reads, frames = self.asset.operator.reads, list[DataFrame]()
        for which in range(len(self.asset.inputs)):
            rows = versions.needed(closing, head) if versions is not None and versions.which == which else None
            if rows is None:
                rows = self.reading.input(self.asset, which, head, Span(*reads.span_of(which, closing.after, closing.upto)))
            frames.append(rows)
        return split_keys(self.reading, self.asset, closing, head).rows(*frames).where(closing.holds(F.col(FINAL_AT)))

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
        wanted = self._closed(closing, after.seq, KeptVersions.of(self.reading, self.asset))
        require_same_columns(self.reading.lake, self.asset, wanted)
        span = Span(None if closing.after is None else closing.after + 1, closing.upto)
        held = self.reading.table(self.asset.name, FINAL_AT, span)
        changes = difference(held, wanted, key=key, change=OWN_CHANGE) if key else bag_changes(held, wanted, OWN_CHANGE)
        with Changes.computed(changes) as computed:
            if not computed.count:
                return after, table.append(wanted.limit(0), after)
            first, last = computed.ends
            after = replace(after, corrected=with_correction(before.corrected, after.step, first, last))
            point("advance.before_commit")
            metadata = after.metadata(progress(self.reading.lake, self.asset))
            computed.apply(self.reading.lake, self.asset.name, key, metadata, after.step)
            point("advance.after_commit")
            return after, computed.count
