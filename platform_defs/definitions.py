"""The Dagster code location."""

import dagster as dg

from assets.event_time import event_time_asset
from assets.events import event_logs
from assets.partitions import daily
from assets.upserted import upserted_asset
from expectations import all_checks, leaderboard_checks
from expectations.new_rows import FULL
from operators.timing import length_ms
from platform_defs.jobs import RETRIES, advance_job, export_job, ingest_job, land_changes_job, maintenance_job
from platform_defs.pipeline import shop
from platform_defs.resources.engine import engine_resource
from platform_defs.resources.spark import SparkResource
from platform_defs.schedules import nightly, nightly_checks, nightly_maintenance
from platform_defs.sensors import ledger_moved, new_input
from platform_defs.settings import Settings, settings


def build(values: Settings) -> dg.Definitions:
    """The Dagster definitions for the given settings."""
    sources, derived = shop(values)
    days = daily(values.first_day, length_ms(values.future_skew, "future_skew") + length_ms(values.payment_within, "payment_within"))
    names = [s.name for s in sources]
    closed = [asset for asset in derived if asset.operator.reads.closes_ranges]
    tables = [event_time_asset(asset, sources=names, days=days, completeness=values.completeness) for asset in closed]
    upserted = [asset for asset in derived if asset not in closed]
    tables += [upserted_asset(asset, sources=names) for asset in upserted]
    checks = [*all_checks(values.hot_items, values.category_hot_items), *map(leaderboard_checks, upserted)]
    full_checks = dg.define_asset_job(
        "full_checks",
        selection=dg.AssetSelection.checks(*checks),
        tags={FULL: "true"},
        description="Runs the checks of all tables on all rows. Other runs check only new rows, or those of their days, where they can.",
        op_retry_policy=RETRIES,
    )
    return dg.Definitions(
        assets=[event_logs(sources), *tables],
        asset_checks=checks,
        jobs=[ingest_job, advance_job, full_checks, maintenance_job, export_job, land_changes_job],
        sensors=[new_input, ledger_moved],
        schedules=[nightly, nightly_maintenance, nightly_checks],
        resources={"spark": SparkResource(), "engine": engine_resource(values)},
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """The code location's entry point."""
    return build(settings())
