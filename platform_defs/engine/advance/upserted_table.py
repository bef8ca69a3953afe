"""Write an upserted table: commit a step's changes to the changelog with its progress, then apply them to the current table.

The commit to the changelog is the commit point. The current table's own commit records the last step of the changelog that was applied.
So the next run after a kill knows which changes it must still apply.
"""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, StringType

from assets.contracts import DerivedAsset
from operators.changelog import CHANGE, CHANGED_AT, DELETE, UPDATE_BEFORE, difference, last_changes
from operators.columns import are_rows_equal, check_free, parameter, quoted_name, rows_of_keys
from operators.engine_columns import EVENT_TIME
from platform_defs.engine.faults import point
from platform_defs.engine.inputs.changelog_reader import APPLIED, STEP, require_upserts, steps_of
from platform_defs.engine.inputs.progress import PROGRESS, Progress, commit_step, progress, require_same_columns, stored_progress
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.small_queries import collect, is_small, remember_rows, rows_in_memory
from platform_defs.engine.lake.small_upserts import has_one_equality
from platform_defs.engine.lake.tables import Lake


@dataclass(frozen=True)
class UpsertedTable:
    """Writes an upserted table and its changelog.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the asset.
    """

    workspace: Workspace
    asset: DerivedAsset

    def commit(self, changes: DataFrame, after: Progress) -> int:
        """Commit changes to the changelog with a step's progress, and apply them to the current table; returns the number of changes."""
        check_free(changes, STEP)
        check_free(changes, CHANGED_AT)
        number = F.length(CHANGE).cast("bigint")  # `parameter` needs a bigint column that is never null
        stamps = {STEP: parameter(after.step, number), CHANGED_AT: F.timestamp_millis(parameter(self.workspace.ledger.now(), number))}
        point("advance.before_changelog")
        lake, rows = self.workspace.lake, changes.withColumns(stamps)
        require_same_columns(lake, self.asset, rows)
        step_id = after.metadata(stored_progress(lake, self.asset))[PROGRESS]["id"]
        row_count = commit_step(
            lake, self.asset, rows, after, [*dict.fromkeys([STEP, *require_upserts(self.asset).key, *_event_time_columns(rows)])]
        )
        point("advance.after_changelog")
        replace(self, workspace=replace(self.workspace, lake=lake.live))._apply(step_id, rows)
        return row_count

    def current(self, like: DataFrame) -> DataFrame:
        """The rows of the current table with the columns of `like`; no rows if there is no table yet."""
        return self.workspace.lake.read(self.workspace.spark, self.asset.name, like.schema)

    def current_of(self, like: DataFrame, keys: DataFrame) -> DataFrame:
        """The current rows with the given keys. In a large table, files that cannot contain one of the keys are skipped."""
        return rows_with_keys(self.workspace.lake, self.asset.name, self.current(like), keys)

    def repair(self, recomputed: DataFrame, now: Progress) -> dict[str, int]:
        """Commit the changes from the table to the recomputed rows, as one step; returns the number of changes of each kind."""
        changes = difference(self.current(recomputed), recomputed, key=require_upserts(self.asset).key).persist()
        try:
            kinds = {row[CHANGE]: row["count"] for row in collect(changes.groupBy(CHANGE).count())}
            if kinds:
                self.commit(changes, replace(now, step=now.step + 1))
            return kinds
        finally:
            changes.unpersist()

    def recover(self) -> None:
        """Apply the changes that a killed step committed to the changelog but did not apply.

        Raises:
            ProgressError: the changelog was deleted or has lost steps that were applied to the table.
        """
        if self.workspace.lake.exists(self.asset.changelog):
            self._apply()
        elif (applied := self.workspace.lake.newest_commit(self.asset.name, APPLIED)) is not None:
            raise ProgressError.lost_changelog(self.asset.name, self.asset.changelog, applied.value["step"])

    def _apply(self, step_id: str | None = None, changes: DataFrame | None = None) -> None:
        """Apply the steps of the changelog that the current table lacks. Idempotent: the table's own commit records the last applied step.

        Args:
            step_id: the `id` of the step that this process has just committed; None for none.
            changes: the rows that the step added to the changelog. If they are in memory, they are not read again.
        """
        lake, key = self.workspace.lake, require_upserts(self.asset).key
        now, applied = progress(lake, self.asset), lake.newest_commit(self.asset.name, APPLIED)
        metadata = {APPLIED: {"step": now.step, "seq": now.seq, "generation": now.generation}}
        if applied is not None and (applied.value["step"], applied.value.get("generation", 0)) == (now.step, now.generation):
            return
        generation = 0 if applied is None else applied.value.get("generation", 0)
        if applied is not None and generation == now.generation and applied.value["step"] > now.step:
            raise ProgressError.shorter_changelog(self.asset.name, self.asset.changelog, applied.value["step"], now.step)
        is_emptied = applied is not None and now.generation > 0 and not applied.value["seq"]  # the next step may change the columns
        if applied is None or is_emptied or generation != now.generation:
            rows = self._unapplied(0, now.step).where(F.col(CHANGE) != DELETE).drop(CHANGE, CHANGED_AT, STEP)
            point("advance.before_create")
            lake.overwrite(
                rows,
                self.asset.name,
                metadata,
                number=now.step,
                pruned_by=[*dict.fromkeys([*self._skipping_columns, *_event_time_columns(rows)])],
                deletion_vectors=not is_small(rows),
            )
            point("advance.after_create")
        else:
            unapplied, is_same_row = self._unapplied(applied.value["step"], now.step), are_rows_equal("t", "c", key)
            is_only_step = now.step - applied.value["step"] == 1 and now.id == step_id
            known_rows = rows_in_memory(changes) if changes is not None and is_only_step else None
            if known_rows is not None:
                remember_rows(unapplied, known_rows.filter(pc.field(CHANGE) != UPDATE_BEFORE).select(unapplied.columns))
            point("advance.before_apply")
            if lake.upsert(self.asset.name, unapplied, key, is_deleted=f"c.`{CHANGE}` = '{DELETE}'", metadata=metadata, number=now.step):
                point("advance.after_apply")
                return
            is_large = lake.is_large(self.asset.name)
            if is_large:
                comparable = [column for column in key if has_one_equality(unapplied.schema[column].dataType)]
                key_ranges = lake.extent(self.asset.changelog, comparable, {STEP: (applied.value["step"] + 1, now.step)})
                is_same_row = reduce(
                    lambda a, b: a & b,
                    [F.col(f"t.{quoted_name(column)}").between(*ends) for column, ends in key_ranges.items()],
                    is_same_row,
                )
            lake.merge(
                self.asset.name,
                unapplied,
                is_same_row,
                is_deleted=F.col(f"c.{CHANGE}") == DELETE,
                metadata=metadata,
                number=now.step,
                deletion_vectors=is_large,
                stored=True,
            )
            point("advance.after_apply")

    @property
    def _skipping_columns(self) -> list[str]:
        """The current table's columns for data skipping: the columns by which a step selects rows, and the key."""
        return [*dict.fromkeys([*self.asset.operator.reads.affected_by, *require_upserts(self.asset).key])]

    def _unapplied(self, after: int, upto: int) -> DataFrame:
        """The last change of each key in the steps `after < step <= upto`."""
        changelog = steps_of(self.workspace, self.asset, after, upto)
        if upto - after == 1:  # `Upsert` requires that a step adds or removes at most one row of a key
            return changelog.where(F.col(CHANGE) != UPDATE_BEFORE)
        return last_changes(changelog, key=require_upserts(self.asset).key, order=STEP)


def rows_with_keys(lake: Lake, table: str, rows: DataFrame, keys: DataFrame) -> DataFrame:
    """The rows of a table with the given keys. In a large table, files that cannot contain one of the keys are skipped."""
    if lake.is_large(table):
        for column, ends in _extent(keys).items():
            rows = rows.where(F.col(quoted_name(column)).between(*ends))
    return rows_of_keys(rows, keys, keys.columns)


def _event_time_columns(rows: DataFrame) -> list[str]:
    """`event_time`, if the rows have it: readers of closed ranges select rows by it."""
    return [EVENT_TIME] if EVENT_TIME in rows.columns else []


def _extent(keys: DataFrame) -> dict[str, tuple[Any, Any]]:
    """The least and the greatest value of each integer or string column of the keys; a column with a null is left out."""
    columns = [field.name for field in keys.schema if isinstance(field.dataType, IntegralType | StringType)]
    if not columns:
        return {}
    ends = [
        F.struct(F.min(name), F.max(name), F.bool_or(F.isnull(name))).alias(column)
        for column, name in zip(columns, map(quoted_name, columns), strict=True)
    ]
    [extents] = collect(keys.agg(*ends))
    return {column: (low, high) for column, (low, high, has_null) in zip(columns, extents, strict=True) if has_null is False}
