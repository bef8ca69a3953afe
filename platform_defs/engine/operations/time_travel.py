"""Time travel of an upserted table: its rows at an earlier time, from its changelog, or as of an event time, from the event log."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from assets.days import moment
from operators.changelog import CHANGE, CHANGED_AT, INSERT, STEP, fold
from operators.columns import keys_of, rows_of_keys
from operators.errors import OperatorError
from platform_defs.engine.inputs.changelog_reader import APPLIED, as_of_step, change_column, require_upserts, steps_of
from platform_defs.engine.inputs.progress import Progress, step_id, stored_progress
from platform_defs.engine.inputs.reader import read_input
from platform_defs.engine.inputs.retained import removed_rows_of
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.commits import RETENTION
from platform_defs.engine.lake.data_skipping import rows_of_matching_files
from platform_defs.engine.lake.reads import commits_with


@dataclass(frozen=True)
class UpsertedSnapshot:
    """An upserted table as of its newest step, and the changes that lead to it.

    Args:
        table: the table's rows.
        changelog: changes with `change` and `step`. Merged they give the table's rows.
        since: the step whose rows the changes start with, as inserts; 0 if they start with an empty table.
        state: identifies the table's state for a later snapshot, as JSON; None if the table is not at its newest step.
    """

    table: DataFrame
    changelog: DataFrame
    since: int
    state: Mapping[str, Any] | None


def newest_snapshot(workspace: Workspace, asset: DerivedAsset, earlier_state: Mapping[str, Any] | None = None) -> UpsertedSnapshot | None:
    """A snapshot of a table and its changelog, exact even while another process writes to them; None if the table has no step yet.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the table.
        earlier_state: the `state` of an earlier snapshot. The changes start with its rows, if these can still be read; else with an empty
            table.
    """
    workspace = workspace.take_snapshot(asset.name)
    now = stored_progress(workspace.lake, asset)
    if not now.step:
        return None
    is_readable = earlier_state is not None and int(earlier_state["step"]) >= (workspace.lake.transaction(asset.changelog, RETENTION) or 0)
    rows = _rows_of(workspace, asset, now, earlier_state) if earlier_state is not None and is_readable else None
    since = 0 if rows is None or earlier_state is None else int(earlier_state["step"])
    changelog = steps_of(workspace, asset, since, now.step).drop(CHANGED_AT)
    if rows is not None:
        start = rows.withColumns({CHANGE: F.lit(INSERT), STEP: F.lit(since).cast("bigint")})
        changelog = start.select(*changelog.columns).unionByName(changelog)
    return UpsertedSnapshot(as_of_step(workspace, asset, now.step), changelog, since, _state(workspace, asset, now))


def _state(workspace: Workspace, asset: DerivedAsset, now: Progress) -> dict[str, Any] | None:
    """Identifies the table's state after its newest step: the table, its version, and the step. None if the step is not applied yet."""
    delta, applied = workspace.lake.delta_for_reading(asset.name), workspace.lake.newest_commit(asset.name, APPLIED)
    if delta is None or applied is None or applied.value["step"] != now.step:
        return None
    table = workspace.lake.identity(asset.name)
    return {"table": table, "version": delta.version(), "step": now.step, "step_id": now.id, "generation": now.generation}


def _rows_of(workspace: Workspace, asset: DerivedAsset, now: Progress, state: Mapping[str, Any]) -> DataFrame | None:
    """The rows of an earlier state; None if the table was rebuilt since, lost the step, or lacks a file of that version."""
    lake = workspace.lake
    is_same = lake.identity(asset.name) == state["table"] and now.generation == state["generation"]
    if not is_same or step_id(lake, asset, state["step"]) != state["step_id"]:
        return None
    delta = lake.delta_at_version(asset.name, state["version"])
    applied = None if delta is None else next(commits_with(delta, asset.name, APPLIED), None)
    if delta is None or applied is None or applied.value["step"] != state["step"]:  # in a restored lake the version can be another one
        return None
    rows = rows_of_matching_files(workspace.spark, delta, lake.path(asset.name), {})
    return rows if rows is not None and rows.columns == lake.schema(asset.name).names else None


def as_of(workspace: Workspace, asset: DerivedAsset, time: int) -> DataFrame:
    """A table as it was at a time (epoch ms, by the ledger's clock): the changelog of its steps until then, merged.

    The first step after `time` and all steps with higher numbers are left out, even if the clock was set back after that step.

    Raises:
        OperatorError: the asset has no changelog, or no step yet; or retention has replaced the steps of that time, or a rebuild has.
    """
    key = require_upserts(asset).key
    if not workspace.lake.exists(asset.changelog):
        raise OperatorError(f"{asset.name} has no step yet, so it has no earlier state; advance it first")
    changelog = workspace.spark.read.format("delta").load(workspace.lake.path(asset.changelog))
    is_later = F.col(CHANGED_AT) > F.timestamp_millis(F.lit(time))
    [later_step] = changelog.where(is_later).agg(F.min(STEP)).first() or [None]
    replaced = workspace.lake.transaction(asset.changelog, RETENTION) or 0
    if later_step is not None and later_step <= replaced:
        raise _no_state(asset, time, f"retention has replaced its steps up to {replaced} by their result")
    if stored_progress(workspace.lake, asset).generation and changelog.where(~is_later).isEmpty() and time < workspace.ledger.wall_clock():
        raise _no_state(asset, time, "it was rebuilt, and its changelog begins after that time")
    changelog_then = changelog if later_step is None else changelog.where(F.col(STEP) < later_step)
    return fold(changelog_then.drop(CHANGED_AT), key=key, order=STEP)


def _no_state(asset: DerivedAsset, time: int, reason: str) -> OperatorError:
    return OperatorError(f"{asset.name} has no state of {moment(time).isoformat()} any more: {reason}. Read a later time")


def as_known_now(workspace: Workspace, asset: DerivedAsset, time: int) -> DataFrame:
    """A table computed from all rows ingested so far with an event time up to `time` (epoch ms).

    Each row is selected by its event time, however late it arrived. Rows of a changelog are applied in changelog order. With an
    event-time TTL, only keys with a row in the TTL before `time` are returned. A processing-time TTL is not applied, because rows do not
    record it.

    Raises:
        OperatorError: the asset, or a table that it reads, has no changelog, or retention has removed rows of a source.
    """
    _ = require_upserts(asset)
    for source in sorted(workspace.input_named(asset.name).sources):
        if (removed := removed_rows_of(workspace.lake, workspace.sources[source])) is not None:
            reason = f"retention has removed rows of {source} with event times before {moment(removed.before).isoformat()}"
            raise OperatorError(
                f"{asset.name} cannot be computed as of an event time: {reason}. Read its present rows, or an `--as-of` time"
            )
    rows = asset.rows(*[_rows_until(workspace, asset, index, time) for index in range(len(asset.inputs))])
    reads = asset.operator.reads
    if reads.ttl is None or reads.ttl_by == "processing":
        return rows
    newest = Span(time - reads.ttl, time)
    recent = [read_input(workspace, asset, index, workspace.ledger.head, newest) for index in range(len(asset.inputs))]
    return rows_of_keys(rows, keys_of(recent, reads.affected_by), reads.affected_by)


def _rows_until(workspace: Workspace, asset: DerivedAsset, index: int, time: int) -> DataFrame:
    table = workspace.input_named(asset.inputs[index]).table
    if table is None:
        return read_input(workspace, asset, index, workspace.ledger.head, Span(None, time))
    return as_known_now(workspace, table, time).withColumn(change_column(asset), F.lit(INSERT))
