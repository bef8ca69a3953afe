"""The Dagster code location: `defs` is its entry point; tests, and the component of another Dagster project, call `build`."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.contracts import DerivedAsset
from assets.factories.closed_range_table import closed_range_asset
from assets.factories.event_log import event_logs
from assets.factories.kafka_topic import topic_asset, topic_key
from assets.factories.upserted_table import upserted_asset
from assets.pipeline import Pipeline
from expectations import suite_and_table_checks
from expectations.new_rows import FULL
from operators.errors import TidemarkError
from platform_defs.configured_engine import folders_of
from platform_defs.connections import connections
from platform_defs.connections.kafka_sinks import check_steps
from platform_defs.connections.lake import lake_of
from platform_defs.monitoring.alert_sensor import alert_sensor
from platform_defs.monitoring.fresh_checks import fresh_checks, fresh_sensor, limits_of
from platform_defs.orchestration.daily_partitions import daily_partitions
from platform_defs.orchestration.jobs import ADVANCE, RETRIES, export_job, ingest_job, land_changes_job, maintenance_job
from platform_defs.orchestration.parallel_work import ParallelWork
from platform_defs.orchestration.schedules import nightly, nightly_checks, nightly_maintenance
from platform_defs.orchestration.sensors import ledger_moved, new_input
from platform_defs.orchestration.stream_runs import stream_on
from platform_defs.pipelines import configured_pipeline
from platform_defs.resources.engine import engine_resource
from platform_defs.resources.spark import SparkResource
from platform_defs.settings import Settings, settings
from platform_defs.stream.job import stream_job
from platform_defs.stream.supervisor import stream_supervisor


def build(values: Settings, pipeline: Pipeline | None = None) -> dg.Definitions:
    """The Dagster definitions of a pipeline: assets, checks, jobs, sensors, schedules and resources.

    Args:
        values: the settings.
        pipeline: the pipeline; by default the one that the settings name.

    Raises:
        TidemarkError: the pipeline, the connections or the Kafka sinks are not valid; the text says what is legal.
    """
    pipeline = configured_pipeline(values) if pipeline is None else pipeline
    days = daily_partitions(values, pipeline)
    names = [s.name for s in pipeline.sources]
    worker = ParallelWork()
    tables = [
        closed_range_asset(table, sources=names, days=days, completeness=pipeline.completeness_of(table.name), worker=worker)
        if table.operator.reads.closes_ranges
        else upserted_asset(table, sources=names, worker=worker)
        for table in pipeline.tables
    ]
    declared = connections(values).declared_sinks
    check_steps(declared, pipeline)
    published = [table for table in pipeline.tables if table.name in declared]
    topics = [topic_asset(table, declared[table.name].topic) for table in published]
    checks, limits = suite_and_table_checks(pipeline, worker), limits_of(pipeline)
    stream = stream_job(values, days, _stream_id(values, pipeline))
    jobs, schedules = [ingest_job, maintenance_job, export_job, land_changes_job, stream], [nightly_maintenance]
    sensors = [new_input, stream_supervisor(values), alert_sensor(values)]
    if tables:
        jobs, sensors, schedules = [*jobs, _advance_job(pipeline.tables, published)], [*sensors, ledger_moved], [*schedules, nightly]
    if checks:
        jobs, schedules = [*jobs, _full_checks_job(checks)], [*schedules, nightly_checks]
    return dg.Definitions(
        assets=[event_logs(pipeline.sources), *tables, *topics],
        asset_checks=[*checks, *([fresh_checks(limits)] if limits else [])],
        jobs=jobs,
        sensors=[*sensors, *([fresh_sensor(limits)] if limits else [])],
        schedules=schedules,
        resources={"spark": SparkResource(), "engine": engine_resource(values, pipeline, worker.end)},
        executor=dg.in_process_executor,
    )


def _stream_id(values: Settings, pipeline: Pipeline) -> str | None:
    """The identity of the pipeline's stream; None if the lake's options are not legal: runs report that error."""
    try:
        return stream_on(lake_of(values).root, folders_of(values, pipeline))
    except TidemarkError:
        return None


def _advance_job(tables: Sequence[DerivedAsset], published: Sequence[DerivedAsset]) -> Any:
    keys = [*(table.name for table in tables), *(topic_key(table.name) for table in published)]
    return dg.define_asset_job(
        ADVANCE,
        selection=dg.AssetSelection.assets(*keys),
        description="Advances the tables as far as the watermark allows, but not beyond the last selected day; updates upserted tables; "
        "publishes the tables that have a Kafka topic.",
        op_retry_policy=RETRIES,
    )


def _full_checks_job(checks: Sequence[dg.AssetChecksDefinition]) -> Any:
    return dg.define_asset_job(
        "full_checks",
        selection=dg.AssetSelection.checks(*checks),
        tags={FULL: "true"},
        description="Evaluates the suites, and the changelogs and ranks of upserted tables, on all rows. Other runs check only new rows, "
        "or those of their days, where they can.",
        op_retry_policy=RETRIES,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """The code location's entry point."""
    return build(settings())
