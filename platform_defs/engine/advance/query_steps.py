"""Closed ranges from a streaming query: a step feeds the new rows to the query and appends the results that its range finalizes."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from operators.timing import ClosedRange
from platform_defs.engine.advance.appended_table import AppendedTable
from platform_defs.engine.advance.closed_ranges import ClosedRanges
from platform_defs.engine.advance.running_queries import FOLDER, RunningQueries, RunningQuery, remove_queries
from platform_defs.engine.inputs.progress import Progress, stored_progress
from platform_defs.engine.inputs.reader import read_input
from platform_defs.engine.inputs.span import ALL_TIMES, Span
from platform_defs.engine.inputs.timelines import operator_timeline

_FIRST_TIME, _LAST_TIME = 0, 32_503_680_000_000
"""The first and the last event time, in epoch ms, for which Spark's watermark is exact: the years 1970 and 3000."""


@dataclass(frozen=True)
class QuerySteps(ClosedRanges):
    """Advances a table by its streaming query.

    The first step of a query also reads the old rows of the lookback, which fill the query's state. Each later step reads only the rows of
    new batches. A step that does not end at the operator's watermark, because the table is far behind, is computed as a closed range, and
    ends the query. So are the table's first step, and a step whose times Spark's watermark cannot represent exactly.

    Args:
        queries: the running queries.
    """

    queries: RunningQueries

    def step(self, before: Progress, after: Progress) -> int:
        """Compute and commit the step from `before` to `after`; returns the number of rows."""
        name = self.asset.name
        if before.closed_to is None or after.closed_to is None or not self._can_be_fed(before.closed_to, after):
            self.queries.drop(name)
            return super().step(before, after)
        try:
            query = self.queries.query_at_step(name, before.id)
            frames = self._lookback_rows(before.closed_to, after.seq) if query is None else self._new_rows(before.seq, after.seq)
            query = self._new_query(frames) if query is None else query
            self.queries.remember(name, None, query)
            results = query.results(frames, ClosedRange(before.closed_to, after.closed_to))
            row_count = AppendedTable(self.workspace, self.asset).append(self.asset.shaped(results), after)
        except BaseException:  # the query's state is ahead of the table
            self.queries.drop(name)
            raise
        self.queries.remember(name, stored_progress(self.workspace.lake.live, self.asset).id, query)
        return row_count

    def _can_be_fed(self, closed_to: int, after: Progress) -> bool:
        """Whether a step ends at the operator's watermark, and Spark's watermark is exact for all of its times."""
        reads, watermark = self.asset.operator.reads, operator_timeline(self.workspace, self.asset).after[after.seq]
        oldest = min(closed_to - (reads.lookback_of(index) or 0) for index in range(len(self.asset.inputs)))
        return watermark is not None and after.closed_to == watermark < _LAST_TIME and oldest > _FIRST_TIME

    def _lookback_rows(self, closed_to: int, head: int) -> list[DataFrame]:
        """The rows up to the batch `head` that a result with `final_at > closed_to` may contain."""
        spans = [Span(self.asset.operator.reads.span_of(index, closed_to)[0], None) for index in range(len(self.asset.inputs))]
        return [read_input(self.workspace, self.asset, index, head, span) for index, span in enumerate(spans)]

    def _new_rows(self, after: int, head: int) -> list[DataFrame]:
        """The rows of new batches."""
        return [read_input(self.workspace, self.asset, index, head, ALL_TIMES, after) for index in range(len(self.asset.inputs))]

    def _new_query(self, frames: list[DataFrame]) -> RunningQuery:
        """A query without state.

        This process holds the table's lock, so no other process runs a query of the table. Files in its folder are those of a killed
        process, and are removed.
        """
        self.queries.drop(self.asset.name)
        remove_queries(self.workspace.spark, self.workspace.lake, f"{FOLDER}/{self.asset.name}")
        return RunningQuery(self.workspace.spark, self.workspace.lake, self.asset, frames)
