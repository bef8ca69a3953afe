"""Reads the changes that the steps of a table made, and its rows as of a step: from a changelog, or from final results."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame

from assets.contracts import DerivedAsset
from operators.changelog import CHANGE, CHANGED_AT, STEP
from operators.columns import FINAL_AT
from platform_defs.engine.inputs.changelog_reader import as_of_step, steps_of
from platform_defs.engine.inputs.prepared_rows import as_input
from platform_defs.engine.inputs.progress import Progress, commit_at, progress_at, results_table, stored_progress
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.inputs.stored_rows import read_table
from platform_defs.engine.inputs.workspace import Workspace


@dataclass(frozen=True)
class TableChanges(ABC):
    """Reads what the steps of a table changed.

    Args:
        workspace: the session, the lake and its ledger.
        table: the table.
    """

    workspace: Workspace
    table: DerivedAsset

    @abstractmethod
    def rows(self, step: int) -> DataFrame | None:
        """The table's rows as of a step; None if that state can no longer be read."""

    @abstractmethod
    def changed_rows(self, after: int, upto: int) -> DataFrame | None:
        """The rows that the steps `after < step <= upto` added or deleted, and each replaced row before and after its change.

        `upto` must be the table's newest step. The result may contain rows that did not change. It is None if the table's state after step
        `after`, which has the deleted rows, can no longer be read.
        """

    @abstractmethod
    def has_only_additions(self, after: int, upto: int) -> bool:
        """Whether the steps `after < step <= upto` only added rows, so that `changed_rows` returns only added rows."""

    @abstractmethod
    def watermark(self, step: int) -> int | None:
        """The watermark (epoch ms) after a step: later steps add no row with an earlier event time, except by a correction.

        None if rows of any age may follow, or if it is not known.
        """


@dataclass(frozen=True)
class UpsertedChanges(TableChanges):
    """The changes of an upserted table, from its changelog."""

    def rows(self, step: int) -> DataFrame | None:
        """The table's rows as of a step."""
        return as_of_step(self.workspace, self.table, step)

    def changed_rows(self, after: int, upto: int) -> DataFrame | None:
        """Each row of the changelog."""
        return steps_of(self.workspace, self.table, after, upto).drop(CHANGE, STEP, CHANGED_AT)

    def has_only_additions(self, after: int, upto: int) -> bool:
        """False: rows of an upserted table replace each other."""
        return False

    def watermark(self, step: int) -> int | None:
        """None: a row of an upserted table may be added or replaced whatever its event time."""
        return None


@dataclass(frozen=True)
class FinalResults(TableChanges):
    """The changes of a table of final results: the ranges that its steps closed, and those that they corrected."""

    def rows(self, step: int) -> DataFrame | None:
        """The results that were final after a step. If any was corrected since then, all are read from the version that the step wrote."""
        newest = stored_progress(self.workspace.lake, self.table)
        progress_then = newest if newest.step == step else progress_at(self.workspace.lake, self.table, step)
        if progress_then is None:
            return None
        if not _corrected_since(newest, step):
            return self._results_within(Span(None, progress_then.closed_to))
        return self._results_as_of(step, Span())

    def changed_rows(self, after: int, upto: int) -> DataFrame | None:
        """The results that became final after step `after`, and the results of each range that was corrected since then.

        For a corrected range these are the results before and after the correction.
        """
        newest, progress_before = stored_progress(self.workspace.lake, self.table), progress_at(self.workspace.lake, self.table, after)
        if progress_before is None or progress_before.generation != newest.generation:
            return None
        frames = [] if newest.closed_to is None else [self._results_within(Span(_first_after(progress_before.closed_to), newest.closed_to))]
        for first, last in _corrected_since(newest, after):
            span = Span(first, last if progress_before.closed_to is None else min(last, progress_before.closed_to))
            rows_before = self._results_as_of(after, span)
            if rows_before is None:
                return None
            frames += [rows_before, self._results_within(span)]
        return reduce(DataFrame.unionByName, frames)

    def has_only_additions(self, after: int, upto: int) -> bool:
        """Whether no result was corrected since step `after`."""
        return not _corrected_since(stored_progress(self.workspace.lake, self.table), after)

    def watermark(self, step: int) -> int | None:
        """How far the step has closed the table, minus the operator's output watermark delay; None if the log no longer has the step."""
        progress_then = progress_at(self.workspace.lake, self.table, step)
        closed_to = None if progress_then is None else progress_then.closed_to
        return None if closed_to is None else closed_to - self.table.operator.reads.watermark_delay

    def _results_within(self, span: Span) -> DataFrame:
        return as_input(read_table(self.workspace, self.table.name, FINAL_AT, span))

    def _results_as_of(self, step: int, span: Span) -> DataFrame | None:
        """The results in a span of `final_at`, in the version that a step wrote; None if the version can no longer be read."""
        lake, commit = self.workspace.lake, commit_at(self.workspace.lake, self.table, step)
        if commit is None or lake.delta_at_version(results_table(self.table), commit.version) is None:
            return None
        rows = self.workspace.spark.read.format("delta").option("versionAsOf", commit.version).load(lake.path(self.table.name))
        return as_input(rows.where(span.holds(FINAL_AT)))


def table_changes(workspace: Workspace, table: DerivedAsset) -> TableChanges:
    """Reads what the steps of a table changed."""
    return UpsertedChanges(workspace, table) if table.operator.emits.upserts else FinalResults(workspace, table)


def _corrected_since(now: Progress, after: int) -> list[tuple[int, int]]:
    """For each step after `after` that corrected results, the first and the last `final_at` of these results."""
    return [(first, last) for step, first, last in now.corrected if step > after]


def _first_after(closed_to: int | None) -> int | None:
    return None if closed_to is None else closed_to + 1
