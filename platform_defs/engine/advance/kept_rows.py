"""Kept rows of an upserted table: a step reads its new rows, and only those older rows that are still needed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.columns import keys_of, rows_of_keys
from operators.contract import NEVER_LATE, KeepsRows, late_before
from operators.engine_columns import BATCH_TIME, EVENT_TIME, PERIOD_END, SEQ
from operators.errors import OperatorError
from operators.steps import ByKey, Kept
from platform_defs.engine.advance.kept_table import KeptTable
from platform_defs.engine.advance.state import StatePart
from platform_defs.engine.advance.step_inputs import clock_of_sources
from platform_defs.engine.advance.upserted_table import rows_with_keys
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.inputs.reader import read_input
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.small_queries import materialize
from platform_defs.engine.ledger.columns import pc

_SEQ = "seq"
"""The key in the metadata of the kept rows for the batch up to which they are complete."""


@dataclass(frozen=True)
class StepRows:
    """The rows that a step needs.

    Args:
        kept_rows: all kept rows; None if they are made from the log.
        new_rows: the rows of the batches that the kept rows do not include yet.
        keys: the keys of the new rows, and those from which a row has moved.
        rows: all needed rows of these keys, and the rows of other keys with the same row keys.
    """

    kept_rows: DataFrame | None
    new_rows: DataFrame
    keys: DataFrame
    rows: DataFrame


@dataclass(frozen=True)
class KeptRows:
    """Reads and writes the kept rows of an asset that reads a source.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the asset.
        reads: what a step reads.
    """

    workspace: Workspace
    asset: DerivedAsset
    reads: ByKey

    def rows_of_step(self, before: Progress, after: Progress) -> StepRows:
        """The rows that a step needs: the kept rows of the keys of its new rows, and the new rows.

        If a new row may be within the TTL of rows that were forgotten, the step reads all rows of the new rows' keys from the log.
        """
        complete_to = self._complete_to(before, after)
        new_rows = read_input(self.workspace, self.asset, 0, after.seq, after=complete_to)
        if complete_to and not self._table.has_columns_of(new_rows):
            complete_to, new_rows = 0, read_input(self.workspace, self.asset, 0, after.seq)
        if not complete_to:
            return StepRows(None, new_rows, keys_of([new_rows], self.reads.key), new_rows)
        kept_rows = self._table.rows()
        if self._may_need_forgotten_rows(complete_to, after):
            keys = keys_of([new_rows], self.reads.key)
            all_rows = rows_of_keys(read_input(self.workspace, self.asset, 0, after.seq), keys, self.reads.key)
            return StepRows(kept_rows, new_rows, keys, materialize(all_rows))
        rows = materialize(
            self._with_keys(kept_rows, self._affected_keys(kept_rows, new_rows)).unionByName(new_rows, allowMissingColumns=True)
        )
        keys = keys_of([rows], self.reads.key)
        if self.reads.row_key:  # a row of these keys may have moved to a key that the step does not affect
            rows = materialize(
                self._with_keys(kept_rows, keys_of([rows], self.reads.row_key)).unionByName(new_rows, allowMissingColumns=True)
            )
        return StepRows(kept_rows, new_rows, keys, rows)

    def select_affected(self, step: StepRows, rows: DataFrame) -> DataFrame:
        """Only the rows with one of the step's keys. The step does not have all rows of other keys."""
        return rows_of_keys(rows, step.keys, self.reads.key) if self.reads.row_key else rows

    def ends(self, step: StepRows) -> DataFrame:
        """The time in ms of the newest row of each key, as `PERIOD_END`."""
        time = F.unix_millis(EVENT_TIME if self.reads.ttl_by == "event" else BATCH_TIME)
        new_times = step.new_rows.select(*self.reads.key, time.alias(PERIOD_END))
        ends = new_times if step.kept_rows is None else new_times.unionByName(step.kept_rows.select(*self.reads.key, PERIOD_END))
        return ends.groupBy(*self.reads.key).agg(F.max(PERIOD_END).alias(PERIOD_END))

    def commit(self, step: StepRows, after: Progress) -> None:
        """Commit the kept rows up to the last batch of a step."""
        oldest, upto = self._oldest_needed(after), {_SEQ: after.seq}
        needed = self.select_affected(step, self._operator.still_needed(step.rows, oldest).drop(BATCH_TIME))
        if step.kept_rows is None:
            self._table.replace(needed, upto, after.step, [*self.reads.key, *self.reads.row_key])
            return
        keys = step.keys
        if oldest is not None and self.reads.key:
            keys = keys.unionByName(self._forgotten_keys(step.kept_rows, oldest)).distinct()
        self._table.change(self._with_keys(step.kept_rows, keys), needed, upto, after.step)

    def state(self, now: Progress) -> Iterator[StatePart]:
        """The rows that the next step may read: the kept rows, and the rows of the log that the kept rows do not include."""
        complete_to = self._complete_to(now, replace(now, step=now.step + 1))
        if complete_to:
            yield StatePart("kept_rows", self.asset.kept)
        if complete_to < now.seq:
            yield StatePart("event_log", self.workspace.sources[self.asset.inputs[0]].log, {SEQ: (complete_to + 1, now.seq)})

    @property
    def _table(self) -> KeptTable:
        return KeptTable(self.workspace, self.asset)

    @property
    def _operator(self) -> KeepsRows:
        operator = self.asset.operator
        if not isinstance(operator, KeepsRows):
            raise OperatorError(f"{type(operator).__name__} lets the engine keep rows, so it needs a `still_needed(rows, oldest)`")
        return operator

    @property
    def _keeps(self) -> Kept:
        return self.reads.keeps or Kept()

    def _complete_to(self, before: Progress, after: Progress) -> int:
        """The batch up to which the kept rows are complete; 0 if they cannot be used, and must be made again from the log."""
        metadata = self._table.usable_metadata(after.step)
        complete_to = 0 if metadata is None else metadata[_SEQ]
        by_clock = self._keeps.ttl is not None and self.reads.ttl_by == "processing"
        had_other_clock = by_clock and self.workspace.ledger.was_clock_set_back(complete_to, after.seq)
        return 0 if complete_to > before.seq or had_other_clock else complete_to

    def _may_need_forgotten_rows(self, complete_to: int, after: Progress) -> bool:
        """Whether a new row may be within the TTL of a forgotten row, because the new row is more than the TTL behind the watermark.

        Rows that are late for the operator are not read, so they do not count.
        """
        if self._keeps.ttl is None or self.reads.ttl_by == "processing":
            return False
        watermark = clock_of_sources(self.workspace, self.asset, "event", complete_to)
        first_times = self.workspace.ledger.source(self.asset.inputs[0]).batches_with_rows(complete_to, after.seq)["first_event_time"]
        oldest = pc.min(first_times).as_py()
        if watermark is None or oldest is None:
            return False
        # a lower bound: the watermark before later batches is at least as high
        is_dropped_before = late_before(self.asset.operator, watermark)
        return max(oldest, NEVER_LATE if is_dropped_before is None else is_dropped_before) < watermark - self._keeps.ttl

    def _oldest_needed(self, after: Progress) -> int | None:
        """A time in ms: if the newest row of a key is before it, the rows of the key are forgotten. None if no rows are forgotten."""
        ttl, clock = self._keeps.ttl, clock_of_sources(self.workspace, self.asset, self.reads.ttl_by, after.seq)
        if ttl is None or clock is None:
            return None
        return clock - (ttl if self.reads.ttl_by == "processing" else 2 * ttl)  # later rows may be as far as the TTL behind the watermark

    def _affected_keys(self, kept_rows: DataFrame, new_rows: DataFrame) -> DataFrame:
        """The keys of new rows; if rows can move, also the keys of the kept rows that these replace."""
        if not self.reads.row_key:
            return keys_of([new_rows], self.reads.key)
        return keys_of([new_rows, self._with_keys(kept_rows, keys_of([new_rows], self.reads.row_key))], self.reads.key)

    def _with_keys(self, kept_rows: DataFrame, keys: DataFrame) -> DataFrame:
        return rows_with_keys(self.workspace.lake, self.asset.kept, kept_rows, keys)

    def _forgotten_keys(self, kept_rows: DataFrame, oldest: int) -> DataFrame:
        """The keys whose rows are no longer needed."""
        newest_times = kept_rows.groupBy(*self.reads.key).agg(F.max(PERIOD_END).alias(PERIOD_END))
        return newest_times.where(F.col(PERIOD_END) < oldest).select(*self.reads.key)
