"""Retention of changelogs: replaces old steps by the rows that result from them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.changelog import CHANGE, CHANGED_AT, INSERT, STEP
from operators.columns import quoted
from operators.timing import timestamp
from platform_defs.engine.faults import point
from platform_defs.engine.formats.connection_errors import ConnectionsError
from platform_defs.engine.inputs.changelog_reader import APPLIED, result_of_changelog, steps_of
from platform_defs.engine.inputs.progress import stored_progress
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.commits import RETENTION
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.small_queries import collect
from platform_defs.engine.lake.sql_rows import before_sql, sql_rows
from platform_defs.engine.operations.retention import Removal
from platform_defs.engine.operations.sink import SinkError


@dataclass(frozen=True)
class ChangelogRetention:
    """Replaces the oldest steps of a table's changelog by the table's rows after these steps.

    The rows are inserts with the number of the last replaced step. The table's state after this step and each later one can still be read,
    and the table can still be made again from its changelog.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the upserted table.
        retention: how long steps are kept, in ms; None to replace no more steps.
        published: returns the last step of which the table's topic has all records; None if the table has no topic, or if the topic has
            no step.
    """

    workspace: Workspace
    asset: DerivedAsset
    retention: int | None
    published: Callable[[], int | None]

    def plan(self) -> Removal | None:
        """The steps to replace; None if the changelog keeps its steps for ever and no step was replaced before."""
        lake, table = self.workspace.lake, self.asset.changelog
        replaced_upto, kept_from = lake.transaction(table, RETENTION), self._kept_from()
        if self.retention is None:
            return None if replaced_upto is None else Removal(kept_from=kept_from)
        last_old_step = self._last_old_step(self.workspace.ledger.wall_clock() - self.retention)
        try:
            floor, reason = self._floor(last_old_step)
        except (ConnectionsError, LakeError, ProgressError, SinkError) as error:  # the rest of the maintenance does not need them
            return Removal(kept_from=kept_from, held_back=str(error))
        if floor <= (replaced_upto or 0) or not (changes := self._changes_upto(floor)):
            return Removal(kept_from=kept_from, held_back=reason)
        return Removal(changes, f"step {floor}", reason, number=floor)

    def remove(self, planned: Removal) -> Removal:
        """Replace the planned steps. The caller holds the lock of the table's writer.

        Raises:
            LakeError: another writer has committed.
        """
        if planned.number is None:
            return planned
        lake, table, upto = self.workspace.lake, self.asset.changelog, planned.number
        if not self._changes_upto(upto):  # after `plan`
            return Removal(kept_from=self._kept_from(), held_back=f"{self.asset.name} was rebuilt meanwhile")
        snapshot = self.workspace.take_snapshot(self.asset.name)
        base = self._rows_after_step(snapshot, upto).persist()
        try:
            rows_kept = base.count()
            point("retention.before_changelog")
            lake.replace_rows(base, table, f"{STEP} <= {upto}", upto)
            point("retention.after_changelog")
        finally:
            base.unpersist()
        return replace(planned, rows=planned.rows - rows_kept)

    def _kept_from(self) -> str | None:
        """The last step that an earlier removal has replaced; None if no step was ever replaced."""
        replaced_upto = self.workspace.lake.transaction(self.asset.changelog, RETENTION)
        return None if replaced_upto is None else f"step {replaced_upto}"

    def _changes_upto(self, step: int) -> int:
        """The number of changes in the steps up to one; 0 if these steps changed nothing."""
        sql = f"SELECT count(*) AS rows FROM changes WHERE {STEP} <= {step}"
        return sql_rows(self.workspace.lake, {"changes": self.asset.changelog}, sql).to_pylist()[0]["rows"]

    def _last_old_step(self, before: int) -> int:
        """The last of the oldest steps that are all older than a time (epoch ms); 0 if the first step is not."""
        later = f"min(CASE WHEN {before_sql(CHANGED_AT, before)} THEN NULL ELSE {STEP} END)"
        sql = f"SELECT {later} AS later, max({STEP}) AS newest FROM changes"
        [steps] = sql_rows(self.workspace.lake, {"changes": self.asset.changelog}, sql).to_pylist()
        return (steps["newest"] or 0) if steps["later"] is None else steps["later"] - 1

    def _floor(self, last_old_step: int) -> tuple[int, str | None]:
        """The last step that may be replaced, and what still needs the later old steps; None if nothing does."""
        lake, name = self.workspace.lake, self.asset.name
        applied = lake.newest_commit(name, APPLIED)
        limits: Mapping[str, int | None] = {
            "the table itself has not applied": 0 if applied is None else applied.value["step"],
            **{
                f"{reader.name} has not read": reader_progress.read.get(name, 0)
                for reader in self.workspace.assets.values()
                if name in reader.inputs and (reader_progress := stored_progress(lake, reader)).seq
            },
            "its topic does not have": self.published(),
        }
        reason, floor = min(((reason, step) for reason, step in limits.items() if step is not None), key=lambda limit: limit[1])
        return (floor, f"{reason} the steps after {floor} yet") if floor < last_old_step else (last_old_step, None)

    def _rows_after_step(self, snapshot: Workspace, upto: int) -> DataFrame:
        """The table's rows after a step, as inserts of that step, with the time of the newest replaced step."""
        newest = steps_of(snapshot, self.asset, 0, upto).agg(F.max(CHANGED_AT).alias(CHANGED_AT))
        [(changed_at_ms,)] = collect(newest.select(F.unix_millis(CHANGED_AT)))
        stamps = {CHANGE: F.lit(INSERT), STEP: F.lit(upto).cast("bigint"), CHANGED_AT: timestamp(F.lit(changed_at_ms).cast("bigint"))}
        rows = result_of_changelog(snapshot, self.asset, upto).withColumns(stamps)
        return rows.select(*quoted(snapshot.lake.schema(self.asset.changelog).fieldNames()))
