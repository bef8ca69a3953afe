"""Advance: bring an asset's table up to its watermark, step by step, each step exactly once.

A step is planned from the ledger and the progress (`plan`). The asset's strategy computes its rows, and commits them together with the
progress in one Delta commit. A kill at any time loses and duplicates nothing: the next run continues from the stored progress.
The engine uses only an operator's contract, so that users can write their own operators.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.changelog import OWN_COPIES, bag_difference
from operators.columns import FINAL_AT, day_column
from operators.engine_columns import EVENT_TIME
from operators.steps import ByKey, NewRows
from operators.timing import ClosedRange
from platform_defs.engine.advance.closed_ranges import ClosedRanges
from platform_defs.engine.advance.early_results import show
from platform_defs.engine.advance.plan import StepPlan, plan_step
from platform_defs.engine.advance.position import position_of
from platform_defs.engine.advance.query_steps import QuerySteps
from platform_defs.engine.advance.running_queries import RunningQueries
from platform_defs.engine.advance.session_lateness import decide_lateness
from platform_defs.engine.advance.strategy import Strategy
from platform_defs.engine.advance.upserted_table import UpsertedTable
from platform_defs.engine.advance.upserts import KeysOfKeptRows, MergedRows, RecomputedKeys, recomputed_keys
from platform_defs.engine.ingest.uncommitted import require_logs
from platform_defs.engine.inputs.changelog_reader import result_of_changelog
from platform_defs.engine.inputs.identity import identity_of
from platform_defs.engine.inputs.progress import Progress, is_emptied, progress
from platform_defs.engine.inputs.reader import read_input
from platform_defs.engine.inputs.retained import kept_days_of, removed_rows_of
from platform_defs.engine.inputs.same_inputs import input_identities, require_same_inputs, steps_read
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.errors import LakeBusy
from platform_defs.engine.lake.small_queries import collect
from platform_defs.engine.lake.waits import Purpose


@dataclass(frozen=True)
class Step:
    """One step of an asset.

    Args:
        before: the progress from which it started.
        after: the progress that it committed.
        rows: the number of rows that it wrote: results, or changes.
    """

    before: Progress
    after: Progress
    rows: int


@dataclass(frozen=True)
class Advance:
    """Advances one asset.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the asset.
        max_step: the approximate number of rows that a step may read.
        queries: the running queries of tables with `streams_as="query"`; None to compute these tables without a query, as all others.
    """

    workspace: Workspace
    asset: DerivedAsset
    max_step: int
    queries: RunningQueries | None = None

    def __call__(self, until: int | None = None, purpose: Purpose = "write") -> Iterator[Step]:
        """Step until the asset has reached the ledger's head, its watermark, or `until` (epoch ms).

        The head is read once, when the first step starts. Each step is committed before it is yielded.

        Raises:
            LakeBusy: another process writes the asset; or the purpose is `stream`, and after a step another process waits to write it.
            LakeError: a later version of Tidemark made the lake, or another writer has committed a step.
            LedgerError: the ledger lacks a batch that the asset has handled, or a log lacks rows of such a batch.
            ProgressError: the asset's table was made with other settings, or an input was replaced since then.
        """
        with self.workspace.lake.writer(self.asset.name, purpose):
            _, workspace = self._recover()
            head = workspace.ledger.head
            decide_lateness(workspace, self.asset, head)
            while (step := self.take_snapshot().commit_next_step(head, until)) is not None:
                yield step
                if purpose == "stream" and (waiting := self.workspace.lake.waiting_process(self.asset.name)) is not None:
                    raise LakeBusy.released_for(self.asset.name, waiting)
            show(workspace, self.asset, head)

    @property
    def strategy(self) -> Strategy:
        """The strategy that computes the rows of the asset's steps."""
        return strategy_of(self.workspace, self.asset, self.queries)

    def take_snapshot(self) -> "Advance":
        """An advance on a snapshot of the asset's tables and inputs, which later commits do not change."""
        return replace(self, workspace=self.workspace.take_snapshot(self.asset.name))

    def recover(self) -> Progress:
        """Finish a killed step, and check that the asset can be advanced; returns the progress.

        Raises:
            LakeError: a later version of Tidemark made the lake.
            LedgerError: the ledger lacks a batch that the asset has handled, or a log lacks rows of such a batch.
            ProgressError: the asset's table was made with other settings, or an input was replaced since then.
        """
        return self._recover()[0]

    def _recover(self) -> tuple[Progress, Workspace]:
        """See `recover`; also returns the workspace on a snapshot of the ledger, which has each batch that the progress names."""
        now, workspace = progress(self.workspace.lake, self.asset), self.workspace.on_one_ledger()
        workspace.ledger.require(now.seq, f"table {self.asset.name}")
        sources = {name: self.workspace.sources[name] for name in self.workspace.input_named(self.asset.name).sources}
        require_logs(workspace.lake, workspace.ledger, sources, quarantines=False)
        require_same_inputs(self.workspace, self.asset, now)
        if self.asset.operator.emits.upserts:
            UpsertedTable(self.workspace, self.asset).recover()
        return now, workspace

    def commit_next_step(self, head: int, until: int | None) -> Step | None:
        """Plan, compute and commit the next step on a snapshot; None if there is nothing to do.

        Raises:
            LakeError: another writer has committed a step since the snapshot.
        """
        now = progress(self.workspace.lake, self.asset)
        plan = self.plan(now, head, until)
        if plan is None:
            return None
        require_same_inputs(self.workspace, self.asset, now)  # a rebuild or maintenance may have changed the inputs since `recover`
        now = now if now.seq else self._start(now)
        after = self._progress_after(now, plan)
        if plan.corrects is not None:
            return self.correct(now, after, self.computable(plan.corrects), self.strategy.key)
        return Step(now, after, self.strategy.step(now, after))

    def computable(self, closing: ClosedRange) -> ClosedRange:
        """The part of a range whose results can still be computed; empty if retention has removed the rows of the whole range."""
        kept_days = kept_days_of(self.workspace, self.asset)
        if kept_days is None:
            return closing
        start = kept_days.first - 1 if closing.after is None else max(kept_days.first - 1, closing.after)
        return ClosedRange(start, max(start, closing.upto))

    def plan(self, now: Progress, head: int, until: int | None) -> StepPlan | None:
        """The plan of the next step; None if there is nothing to do."""

        def row_times(index: int, span: Span) -> tuple[int, int] | None:
            return self.event_times(index, head, span, now.seq)

        position = position_of(self.workspace, self.asset, now, head)
        return plan_step(position, max_step=self.max_step, until=until, row_times=row_times)

    def event_times(self, index: int, head: int, span: Span, after: int) -> tuple[int, int] | None:
        """The oldest and the newest event time (epoch ms) of an input's rows that are not late, after a batch and up to `head`.

        None if there are no such rows in the span.
        """
        time = F.unix_millis(EVENT_TIME)
        [(first, last)] = collect(read_input(self.workspace, self.asset, index, head, span, after).agg(F.min(time), F.max(time)))
        return None if first is None else (first, last)

    def _start(self, now: Progress) -> Progress:
        """The progress from which a new or emptied table starts.

        If retention has removed rows of its inputs, it starts at the first day that can still be computed.
        """
        kept_days = kept_days_of(self.workspace, self.asset)
        if kept_days is None:
            return now
        closes_ranges = self.asset.operator.reads.closes_ranges
        return replace(now, complete_from=kept_days.first, closed_to=kept_days.first - 1 if closes_ranges else now.closed_to)

    def _progress_after(self, now: Progress, plan: StepPlan) -> Progress:
        """The progress that a planned step commits."""
        return Progress(
            step=now.step + 1,
            seq=plan.seq,
            closed_to=plan.closed_to,
            operator=identity_of(self.asset),
            read=plan.read,
            corrected=now.corrected,
            generation=now.generation,
            complete_from=now.complete_from,
            inputs={**now.inputs} | input_identities(self.workspace, self.asset),
            steps_read=steps_read(self.workspace, plan.read),
        )

    def all_results(self, now: Progress) -> DataFrame:
        """The rows of an upserted table at a progress, recomputed from all input rows.

        If retention has removed rows of an input, the rows are read from the table's changelog instead.
        """
        sources = [self.workspace.sources[upstream.name] for upstream in self.workspace.inputs_of(self.asset) if upstream.is_source]
        if any(removed_rows_of(self.workspace.lake, source) for source in sources):
            return result_of_changelog(self.workspace, self.asset, now.step)
        return self.strategy.all_results(now)

    def final_results(self, closing: ClosedRange, head: int) -> DataFrame:
        """The results that are final in a range, computed from the inputs' rows up to batch `head`."""
        return self.strategy.final_results(closing, head)

    def differing_days(self, closing: ClosedRange, head: int) -> dict[date, tuple[int, int]]:
        """The days (of `final_at`) in a range on which the table differs from `final_results`, with their missing and extra rows."""
        recomputed, lake = self.final_results(closing, head), self.workspace.lake
        final_at_range = {FINAL_AT: (closing.after, closing.upto)}
        stored = lake.read(self.workspace.spark, self.asset.name, recomputed.schema, final_at_range).where(closing.holds(FINAL_AT))
        copies = F.col(OWN_COPIES)
        by_day = bag_difference(stored, recomputed, OWN_COPIES).groupBy(day_column(F.col(FINAL_AT)))
        rows_by_day = collect(by_day.agg(F.sum(F.greatest(copies, F.lit(0))), F.sum(F.greatest(-copies, F.lit(0)))))
        return {day: (missing, extra) for day, missing, extra in rows_by_day}

    def correct(self, now: Progress, after: Progress, closing: ClosedRange, key: tuple[str, ...] = ()) -> Step:
        """Recompute a range of closed results and repair the results that differ, as one step; see `ClosedRanges.correct`."""
        return Step(now, *self.strategy.correct(now, after, closing, key))

    def repair(self) -> dict[str, int]:
        """Recompute an upserted table and repair what differs, as one step; returns the number of changes of each kind."""
        with self.workspace.lake.writer(self.asset.name):
            now = self.recover()
            return self.take_snapshot()._repair_table(now) if now.step and not is_emptied(now) else {}

    def _repair_table(self, now: Progress) -> dict[str, int]:
        self.strategy.forget()
        return UpsertedTable(self.workspace, self.asset).repair(self.all_results(now), now)


def strategy_of(workspace: Workspace, asset: DerivedAsset, queries: RunningQueries | None = None) -> Strategy:
    """The strategy that computes the rows of an asset's steps; `queries` are the running queries, as for `Advance`."""
    reads = asset.operator.reads
    if isinstance(reads, NewRows):
        if not asset.has_every_result:  # new rows cannot be merged into results that the table does not have
            return recomputed_keys(workspace, asset, reads)
        return MergedRows(workspace, asset, reads)
    if isinstance(reads, ByKey):
        keeps = reads.keeps and not workspace.tables_of(asset)  # an input table has the rows that later steps need
        return (KeysOfKeptRows if keeps else RecomputedKeys)(workspace, asset, reads)
    if queries is not None and queries.are_enabled and asset.streams_as == "query":
        return QuerySteps(workspace, asset, queries)
    return ClosedRanges(workspace, asset)
