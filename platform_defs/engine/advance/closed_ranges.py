"""Closed ranges: a step computes the results that become final between two watermarks, or corrects results of earlier steps."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from operators.changelog import OWN_CHANGE, bag_changes, difference
from operators.columns import FINAL_AT
from operators.timing import ClosedRange
from platform_defs.engine.advance.appended_table import AppendedTable
from platform_defs.engine.advance.changed_results import ComputedChanges
from platform_defs.engine.advance.corrections import add_correction
from platform_defs.engine.advance.kept_versions import KeptVersions
from platform_defs.engine.advance.oldest_change import oldest_change
from platform_defs.engine.advance.rows_per_key import split_keys
from platform_defs.engine.advance.state import StatePart, input_rows
from platform_defs.engine.advance.strategy import Strategy
from platform_defs.engine.faults import point
from platform_defs.engine.inputs.progress import Progress, progress, require_same_columns
from platform_defs.engine.inputs.reader import read_input
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.inputs.stored_rows import read_table


@dataclass(frozen=True)
class ClosedRanges(Strategy):
    """Advances an asset whose results are final when the watermark reaches their `final_at`."""

    def results(self, before: Progress, after: Progress) -> DataFrame:
        """The results that are final in `before.closed_to < final_at <= after.closed_to`."""
        return self._results_in(ClosedRange(before.closed_to, after.closed_to or 0), after.seq, KeptVersions.of(self.workspace, self.asset))

    def step(self, before: Progress, after: Progress) -> int:
        """Compute and commit the step, then the versions that later steps need."""
        row_count, versions = super().step(before, after), KeptVersions.of(self.workspace, self.asset)
        if versions is not None:
            versions.commit(after)
        return row_count

    def state(self, now: Progress) -> Iterator[StatePart]:
        """The input rows that later steps may read, because their results are not final yet, or because a later step may correct these."""
        reads, changes_after = self.asset.operator.reads, oldest_change(self.workspace, self.asset)
        versions = KeptVersions.of(self.workspace, self.asset)
        for index in range(len(self.asset.inputs)):
            kept_parts = versions.state(now) if versions is not None and versions.index == index else None
            first, _ = reads.span_of(index, changes_after)
            yield from input_rows(self.workspace, self.asset, index, now, first) if kept_parts is None else kept_parts

    def final_results(self, closing: ClosedRange, head: int) -> DataFrame:
        """The results that are final in a range, computed from the inputs' rows up to batch `head` and without kept versions."""
        return self._results_in(closing, head, None)

    def _results_in(self, closing: ClosedRange, head: int, versions: KeptVersions | None) -> DataFrame:
        reads, frames = self.asset.operator.reads, list[DataFrame]()
        for index in range(len(self.asset.inputs)):
            rows = versions.needed_versions(closing, head) if versions is not None and versions.index == index else None
            if rows is None:
                rows = read_input(self.workspace, self.asset, index, head, Span(*reads.span_of(index, closing.after, closing.upto)))
            frames.append(rows)
        return split_keys(self.workspace, self.asset, closing, head).rows(*frames).where(closing.holds(FINAL_AT))

    def correct(self, before: Progress, after: Progress, closing: ClosedRange, key: tuple[str, ...] = ()) -> tuple[Progress, int]:
        """Recompute a range of closed results and repair the results that differ, in one commit with the progress.

        Args:
            before: the progress before the correction.
            after: the progress to commit with it.
            closing: the range.
            key: the columns that identify a row of the table, so that a changed row is updated; empty to delete and insert rows.

        Returns:
            The committed progress, which records the times of the changed results; and the number of changes.
        """
        table = AppendedTable(self.workspace, self.asset)
        recomputed = self._results_in(closing, after.seq, KeptVersions.of(self.workspace, self.asset))
        require_same_columns(self.workspace.lake, self.asset, recomputed)
        span = Span(None if closing.after is None else closing.after + 1, closing.upto)
        stored = read_table(self.workspace, self.asset.name, FINAL_AT, span)
        changes = difference(stored, recomputed, key=key, change=OWN_CHANGE) if key else bag_changes(stored, recomputed, OWN_CHANGE)
        with ComputedChanges.compute(changes) as computed_changes:
            if not computed_changes.count:
                return after, table.append(recomputed.limit(0), after)
            first, last = computed_changes.ends
            after = replace(after, corrected=add_correction(before.corrected, after.step, first, last))
            point("advance.before_commit")
            metadata = after.metadata(progress(self.workspace.lake, self.asset))
            computed_changes.apply(self.workspace.lake, self.asset.name, key, metadata, after.step)
            point("advance.after_commit")
            return after, computed_changes.count
