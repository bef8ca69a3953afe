"""Jobs that every pipeline has: ingest, maintain the lake, export a table, land a table's changes; and requests for runs of `advance`."""

from collections.abc import Iterable, Mapping

import dagster as dg
from pydantic import Field

from assets.days import day_start
from assets.factories.event_log import EVENTS
from assets.factories.kafka_topic import topic_key
from assets.factories.partitions import days_in_tags, partitioned_range, range_of, range_tags
from assets.factories.pool import SPARK
from operators.errors import OperatorError
from platform_defs.engine import Engine, MaintenanceError
from platform_defs.engine.operations.export import ExportFolderError, ViewError, view_of
from platform_defs.engine.operations.maintenance import Maintained, retention_of

RETRIES = dg.RetryPolicy(max_retries=2, delay=15, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""Retries for transient faults: another writer, an unreachable store. After lasting faults the sensors request a new run."""

ingest_job = dg.define_asset_job(
    "ingest",
    selection=dg.AssetSelection.groups(EVENTS),
    description="Ingests the files that have landed, and the new records of Kafka topics.",
    op_retry_policy=RETRIES,
)

ADVANCE = "advance"
"""The name of the job that advances a pipeline's tables."""


def _outcome_text(outcome: Maintained) -> str:
    retention = retention_of(outcome.rows_removed, outcome.kept_from, outcome.held_back)
    return "; ".join(
        [f"{outcome.before} files, now {outcome.after}", f"{outcome.removed} deleted", *([] if retention is None else [retention])]
    )


@dg.op(required_resource_keys={"engine"}, pool=SPARK)
def maintain(context: dg.OpExecutionContext) -> None:
    """Remove what retention does not keep, compact and delete files, repeat the tables' progress in new commits, write checkpoints."""
    outcomes = context.resources.engine.maintain()
    by_table = {outcome.table: outcome.failed or outcome.left or _outcome_text(outcome) for outcome in outcomes}
    try:
        MaintenanceError.check(outcomes)
    except MaintenanceError as error:  # a failed op has no output with metadata; a retry would maintain all other tables once more
        raise dg.Failure(str(error), metadata=by_table, allow_retries=False) from error
    context.add_output_metadata(by_table)


@dg.job(
    name="maintenance",
    op_retry_policy=RETRIES,
    description="Removes the rows that retention does not keep, and compacts the lake's tables and their logs, while other jobs write to "
    "them. Removed rows cannot be restored. Without a retention, all rows are kept.",
)
def maintenance_job() -> None:
    """Maintains all tables in turn, in one op and one JVM."""
    maintain()


class ExportConfig(dg.Config):
    """The table to export, and the target folder."""

    table: str = Field(description="a derived table, such as category_leaderboard")
    folder: str = Field(description="the target folder, a path or a URI outside the lake; its content is replaced")
    early: bool = Field(default=False, description="whether to add the early results of open windows or pairs, and a column is_final")
    as_of: str | None = Field(default=None, description="for an upserted table: its state at this time, such as 2026-11-22T08:30:00Z")
    event_times_to: str | None = Field(default=None, description="for an upserted table: its state from rows up to this event time")


@dg.op(required_resource_keys={"engine"}, pool=SPARK)
def export_table(context: dg.OpExecutionContext, config: ExportConfig) -> None:
    """Write a table to a separate Delta table: its present state, an earlier state, or with early results."""
    try:
        view = view_of(config.table, config.early, config.as_of, config.event_times_to)
        metadata = context.resources.engine.views.export(view, config.folder)
    except ExportFolderError:  # the store may be reachable at a retry
        raise
    except (ViewError, OperatorError) as error:  # a wrong value stays wrong, however often it is tried
        raise dg.Failure(str(error), allow_retries=False) from error
    context.add_output_metadata(metadata)


@dg.job(
    name="export",
    op_retry_policy=RETRIES,
    description="Writes a table to a separate Delta table: its present state, an earlier state, or with early results.",
)
def export_job() -> None:
    """Exports the table in one op."""
    export_table()


class LandChangesConfig(dg.Config):
    """The table whose changes to land, and the source that ingests them."""

    table: str = Field(description="a Delta table with a change data feed, a path or a URI")
    source: str = Field(description="the source that ingests the changes; its schema has a column `change`")
    from_version: int = Field(default=0, ge=0, description="the first version of the table to land")


@dg.op(required_resource_keys={"engine"}, pool=SPARK)
def land_versions(context: dg.OpExecutionContext, config: LandChangesConfig) -> None:
    """Land the changes of a Delta table since the last run, as input files of a source."""
    engine = context.resources.engine
    if config.source not in engine.sources:
        raise dg.Failure(f"`source` is {config.source!r}; legal: {', '.join(engine.sources)}", allow_retries=False)
    landed = engine.ingestion.land_changes(config.table, config.source, first=config.from_version)
    context.add_output_metadata({"versions": len(landed), "rows": sum(version.rows for version in landed)})


@dg.job(
    name="land_changes",
    op_retry_policy=RETRIES,
    description="Lands the changes of a Delta table as input files of a source, which the next ingest reads.",
)
def land_changes_job() -> None:
    """Lands the changes in one op."""
    land_versions()


def partition_days(repository: dg.RepositoryDefinition | None) -> dg.DailyPartitionsDefinition | None:
    """The daily partitions of the job `advance`; None without a repository."""
    days = None if repository is None else repository.get_job(ADVANCE).partitions_def
    return days if isinstance(days, dg.DailyPartitionsDefinition) else None


def later_days(engine: Engine, days: dg.DailyPartitionsDefinition | None) -> str | None:
    """Why no run is requested for open days: no partition has begun, or all days are after the last one. None if a run can be requested."""
    pending = engine.pending.all_days()
    if days is None or pending is None:
        return None
    partitions = range_of(days)
    if partitions is None:
        return f"the tables are behind, but the first daily partition, {days.start.date()}, is in the future; set an earlier `first_day`"
    if pending[0] <= partitions[1]:
        return None
    return f"the tables are behind, but the days from {pending[0]} on are after the last daily partition, {partitions[1]}"


def advance_request(
    engine: Engine,
    readable: Engine,
    run_key: str | None = None,
    days: dg.DailyPartitionsDefinition | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.RunRequest | None:
    """The run that advances the tables that are behind.

    If days are open, the run covers these days and selects all tables with their topics. Otherwise it selects only the upserted tables that
    are behind, with their topics, and the topics whose last publish failed. Tables that cannot be read, and those that read them, are left
    out. None if nothing is behind.

    Args:
        engine: the engine.
        readable: the engine without the tables that cannot be read, as `readable_tables` returns it.
        run_key: the run's key.
        days: the partitions to which the run is limited; None for any day. A run of the first partition also finalizes the days before it;
            days after the last partition stay open until they are partitions.
        tags: further tags of the run.
    """
    partition_range = range_of(days) if days else None
    days_to_advance, upserted = (
        readable.pending.all_days(day_start(partition_range[0]) if partition_range else None),
        readable.pending.upserted_tables(),
    )
    if days_to_advance and days:
        days_to_advance = partitioned_range(days, *days_to_advance)
    if days_to_advance:
        selected = None if readable is engine else _keys(engine, readable.assets)
        return dg.RunRequest(run_key=run_key, tags={**range_tags(*days_to_advance), **(tags or {})}, asset_selection=selected)
    unpublished = [topic_key(name) for name in engine.sinks if name in readable.assets and engine.failures.of_sink(name) is not None]
    selected = [*dict.fromkeys([*_keys(engine, upserted), *unpublished])]
    return dg.RunRequest(run_key=run_key, tags=tags, asset_selection=selected) if selected else None


def repeated_request(
    engine: Engine,
    readable: Engine,
    failed: dg.DagsterRun,
    run_key: str,
    days: dg.DailyPartitionsDefinition | None,
    tags: Mapping[str, str],
) -> dg.RunRequest | None:
    """The run that repeats a failed run after its tables were advanced: it accounts for their rows, checks and publishes them.

    None if nothing is left of the run's assets or partitions. For `readable` see `advance_request`.
    """
    is_whole = failed.asset_selection is None and readable is engine
    selected = [key for key in _keys(engine, readable.assets) if failed.asset_selection is None or key in failed.asset_selection]
    days_of_run = days_in_tags(failed.tags)
    window = partitioned_range(days, *days_of_run) if days and days_of_run else days_of_run
    if not selected or (days_of_run and not window):
        return None
    range_of_run = range_tags(*window) if window else {}
    return dg.RunRequest(run_key=run_key, tags={**range_of_run, **tags}, asset_selection=None if is_whole else selected)


def _keys(engine: Engine, tables: Iterable[str]) -> list[dg.AssetKey]:
    """The assets of tables, and of their topics."""
    names = [*tables]
    return [*(dg.AssetKey(name) for name in names), *(topic_key(name) for name in names if name in engine.sinks)]
