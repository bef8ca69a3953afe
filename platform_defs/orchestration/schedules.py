"""The nightly schedules."""

import dagster as dg

from platform_defs.engine import Engine
from platform_defs.orchestration.jobs import advance_request, later_days, maintenance_job, partition_days
from platform_defs.orchestration.readable_tables import readable_tables
from platform_defs.orchestration.stream_runs import reason_not_to_ingest


@dg.schedule(
    job_name="advance",
    cron_schedule="30 2 * * *",
    execution_timezone="UTC",
    description="Advances the tables that the sensors did not advance during the day.",
)
def nightly(context: dg.ScheduleEvaluationContext, engine: dg.ResourceParam[Engine]) -> dg.RunRequest | dg.SkipReason:
    """Requests an advance every night at 02:30 UTC. If `reason_not_to_ingest` gives a reason, the schedule skips this night.

    The schedule does not skip while another process writes to a table: the run tries this table again.
    """
    if busy := reason_not_to_ingest(context.instance, engine):
        return dg.SkipReason(busy)
    days = partition_days(context.repository_def)
    readable, unreadable = readable_tables(engine)
    if request := advance_request(engine, readable, days=days):
        return request
    reasons = [*unreadable.values(), later_days(readable, days)]
    return dg.SkipReason("; ".join(filter(None, reasons)) or "every table is advanced up to its watermark")


nightly_maintenance = dg.ScheduleDefinition(
    name="nightly_maintenance",
    job=maintenance_job,
    cron_schedule="30 3 * * *",
    execution_timezone="UTC",
    description="Runs the job `maintenance` at night, when few rows are written. The job also removes rows that retention does not keep.",
)

nightly_checks = dg.ScheduleDefinition(
    name="nightly_checks",
    job_name="full_checks",
    cron_schedule="30 4 * * *",
    execution_timezone="UTC",
    description="Evaluates suites, changelogs and ranks on all rows at night; other runs check only new rows where they can.",
)
