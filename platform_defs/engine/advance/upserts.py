"""Upserts: a step merges new rows into the current rows, or recomputes the keys that new rows or a later time affect."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.changelog import difference
from operators.columns import keys_of, rows_of_keys
from operators.contract import PROMISE_VIOLATED, Incremental, Promised
from operators.engine_columns import PERIOD_END
from operators.errors import OperatorError
from operators.steps import ByKey, NewRows
from platform_defs.engine.advance.kept_rows import KeptRows, StepRows
from platform_defs.engine.advance.state import StatePart, all_input_rows
from platform_defs.engine.advance.step_error import PromiseError
from platform_defs.engine.advance.strategy import Strategy
from platform_defs.engine.advance.upserted_table import UpsertedTable
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.small_queries import count, materialize


@dataclass(frozen=True)
class MergedRows(Strategy):
    """Advances an asset whose operator merges new rows into its own current rows.

    If rows of an input table were deleted or replaced, and cannot be merged, the step recomputes their keys, as `RecomputedKeys` does.

    Args:
        reads: what a step reads.
    """

    reads: NewRows

    def results(self, before: Progress, after: Progress) -> DataFrame:
        """The operator's result for the new rows alone, or for the keys of the changed rows."""
        new_rows = self.inputs.mergeable_rows(before, after)
        return self._recomputed_keys.results(before, after) if new_rows is None else self.asset.rows(*new_rows)

    def changes(self, table: UpsertedTable, before: Progress, after: Progress) -> DataFrame:
        """The difference between the current rows that new rows may change, and these rows after the new rows are merged into them."""
        operator = self.asset.operator
        if not isinstance(operator, Incremental):
            raise OperatorError(f"{type(operator).__name__} reads new batches and upserts, so it needs a `fold(current, *frames)`")
        new_rows = self.inputs.mergeable_rows(before, after)
        if new_rows is None:
            return self._recomputed_keys.changes(table, before, after)
        current = self._current(table, new_rows)
        if before.step:  # read twice, and small: it has at most as many keys, or partitions of a Top-N, as the step has new rows
            current = materialize(current)
        return difference(self.asset.shaped(current), self.asset.shaped(operator.fold(current, *new_rows)), key=self.key)

    def step(self, before: Progress, after: Progress) -> int:
        """Compute and commit the step.

        Raises:
            PromiseError: the input breaks a promise of the user. If the broken promise was derived from the input, there is no error: the
                step is computed from all rows of the affected keys.
        """
        try:
            return super().step(before, after)
        except PySparkException as error:
            operator = self.asset.operator
            if not isinstance(operator, Promised) or PROMISE_VIOLATED not in str(error):
                raise
            if operator.monotonic:
                raise PromiseError.violated(self.asset.name, self._count_moving_back(operator, before, after)) from error
        return self._recomputed_keys.step(before, after)

    def state(self, now: Progress) -> Iterator[StatePart]:
        """The table's own rows."""
        yield StatePart("table", self.asset.name)

    def _current(self, table: UpsertedTable, new_rows: Sequence[DataFrame]) -> DataFrame:
        """The current rows that new rows may change, with the operator's columns."""
        return table.current_of(self.asset.operator(*new_rows), keys_of(new_rows, self._affected_by))

    def _count_moving_back(self, operator: Promised, before: Progress, after: Progress) -> int:
        new_rows = self.inputs.mergeable_rows(before, after) or []
        return count(operator.keys_moving_back(self._current(UpsertedTable(self.workspace, self.asset), new_rows), *new_rows))

    @property
    def _affected_by(self) -> tuple[str, ...]:
        """The columns that decide which rows a new row may change."""
        return self.reads.recomputing(self.asset.operator.emits.key).key

    @property
    def _recomputed_keys(self) -> "RecomputedKeys":
        return recomputed_keys(self.workspace, self.asset, self.reads)


def recomputed_keys(workspace: Workspace, asset: DerivedAsset, reads: NewRows) -> "RecomputedKeys":
    """The strategy that computes the same rows as `MergedRows`, but from all rows of the affected keys instead of the table's own rows."""
    return RecomputedKeys(workspace, asset, reads.recomputing(asset.operator.emits.key))


@dataclass(frozen=True)
class RecomputedKeys(Strategy):
    """Advances an asset by recomputing the affected keys from all of their rows.

    Args:
        reads: what a step reads.
    """

    reads: ByKey

    def results(self, before: Progress, after: Progress) -> DataFrame:
        """The rows of the keys that the step's rows affect."""
        keys = self._affected_keys(before, after)
        return self.all_results(after) if keys is None else self._of_keys(keys, after)

    def changes(self, table: UpsertedTable, before: Progress, after: Progress) -> DataFrame:
        """The difference between the current rows of the affected keys and their rows after the step.

        The affected keys are those of new rows, and those whose TTL has ended. If the step's deleted rows can no longer be read, all rows
        are compared.
        """
        keys = self._affected_keys(before, after)
        if keys is None:
            rows = self.all_results(after)
            return difference(table.current(rows), rows, key=self.key)
        rows = self._of_keys(keys, after)
        within_ttl = self._within_ttl(after)
        by_clock = self.reads.ttl_by == "processing"
        if within_ttl is not None and by_clock and self.workspace.ledger.was_clock_set_back(before.seq, after.seq):
            keys = within_ttl  # the clock had been ahead and was set back, so that keys whose rows were removed are within their TTL again
            rows = self._of_keys(keys, after)
        return self._difference(table, keys, rows, within_ttl)

    def _difference(self, table: UpsertedTable, keys: DataFrame, rows: DataFrame, within_ttl: DataFrame | None) -> DataFrame:
        """The difference between the current rows of keys, also of those whose TTL has ended, and their rows after a step.

        Args:
            table: the table.
            keys: the affected keys.
            rows: their rows after the step.
            within_ttl: all keys within their TTL; None if keys have none.
        """
        if within_ttl is not None:
            expired = table.current(rows).select(*self.reads.key).distinct().exceptAll(within_ttl)
            keys, rows = keys.unionByName(expired).distinct(), rows_of_keys(rows, within_ttl, within_ttl.columns)
        return difference(table.current_of(rows, keys), rows, key=self.key)

    def all_results(self, after: Progress) -> DataFrame:
        """The rows of all keys within their TTL, computed anew."""
        rows, within_ttl = self.asset.rows(*self.inputs.all_rows(after)), self._within_ttl(after)
        return rows if within_ttl is None else rows_of_keys(rows, within_ttl, within_ttl.columns)

    def state(self, now: Progress) -> Iterator[StatePart]:
        """The table's own rows, and all rows of the inputs."""
        yield StatePart("table", self.asset.name)
        yield from all_input_rows(self.workspace, self.asset, now)

    @property
    def _keys_can_change(self) -> bool:
        """Whether rows can move to another key, and the changes of the inputs do not have both keys of such a row."""
        return bool(self.reads.row_key) and not self.inputs.names_former_keys(self.reads.row_key)

    def _affected_keys(self, before: Progress, after: Progress) -> DataFrame | None:
        """The keys of the step's rows; if rows can move, also the keys of the rows that these replace. None if deleted rows are not known.

        A row that was deleted is only in the changes, and the row that it had replaced is only among all rows.
        """
        new_rows = self.inputs.new_rows(before, after)
        if new_rows is None:
            return None
        if not self._keys_can_change:
            return keys_of(new_rows, self.reads.key)
        row_key = self.reads.row_key
        same_rows = [rows_of_keys(frame, keys_of(new_rows, row_key), row_key) for frame in self.inputs.all_rows(after)]
        return materialize(keys_of([*new_rows, *same_rows], self.reads.key))  # few keys, which several joins read

    def _of_keys(self, keys: DataFrame, after: Progress) -> DataFrame:
        """The rows of the given keys after a step."""
        key, row_key = self.reads.key, self.reads.row_key
        frames = [rows_of_keys(frame, keys, key) for frame in self.inputs.all_rows(after)]
        if not self._keys_can_change:
            return self.asset.rows(*frames)
        row_keys = keys_of(frames, row_key)
        return rows_of_keys(self.asset.rows(*[rows_of_keys(frame, row_keys, row_key) for frame in self.inputs.all_rows(after)]), keys, key)

    def _within_ttl(self, after: Progress) -> DataFrame | None:
        """The keys with a row that is not older than the TTL after a step; None if keys have no TTL, or there is no watermark yet."""
        oldest = self._oldest_within_ttl(after)
        return None if oldest is None else keys_of(self.inputs.rows_since(oldest, self.reads.ttl_by, after), self.reads.key)

    def _oldest_within_ttl(self, after: Progress) -> int | None:
        """The oldest time (epoch ms) within the TTL after a step; None if keys have no TTL, or there is no watermark yet."""
        if self.reads.ttl is None:
            return None
        clock = self.inputs.clock(self.reads.ttl_by, after)
        return None if clock is None else clock - self.reads.ttl


@dataclass(frozen=True)
class KeysOfKeptRows(RecomputedKeys):
    """Advances an asset by recomputing the affected keys from the rows that the engine keeps (see `kept_rows`) and new rows."""

    def step(self, before: Progress, after: Progress) -> int:
        """Compute and commit the step, then the rows that later steps need."""
        kept_rows, table = KeptRows(self.workspace, self.asset, self.reads), UpsertedTable(self.workspace, self.asset)
        rows = kept_rows.rows_of_step(before, after)
        row_count = table.commit(self._changes(table, kept_rows, rows, after), after)
        kept_rows.commit(rows, after)
        return row_count

    def state(self, now: Progress) -> Iterator[StatePart]:
        """The table's own rows and the kept rows; or all rows of the input, if the next step makes the kept rows from them."""
        yield StatePart("table", self.asset.name)
        yield from KeptRows(self.workspace, self.asset, self.reads).state(now)

    def _changes(self, table: UpsertedTable, kept_rows: KeptRows, step: StepRows, after: Progress) -> DataFrame:
        within_ttl, oldest = None, self._oldest_within_ttl(after)
        if oldest is not None:
            within_ttl = kept_rows.ends(step).where(F.col(PERIOD_END) >= oldest).select(*self.reads.key)
        return self._difference(table, step.keys, kept_rows.select_affected(step, self.asset.rows(step.rows)), within_ttl)
