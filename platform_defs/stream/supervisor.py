"""The sensor that keeps the job `stream` running: it starts a run, restarts it after growing waits, and reports why a run ended."""

import dagster as dg

from platform_defs.engine import Engine
from platform_defs.orchestration.requested_runs import RequestedRuns, hash_of_work
from platform_defs.orchestration.sensors import lake_identity
from platform_defs.orchestration.stream_runs import (
    HEALTHY_S,
    JOB,
    SUPERVISOR,
    TAG,
    is_starting,
    newest_runs,
    reason_not_to_stream,
    reason_of_end,
    running_process,
    since_long_run,
    stream_of,
)
from platform_defs.orchestration.waiting_input import waiting_input
from platform_defs.settings import Settings
from platform_defs.settings.stream_trigger import StreamTrigger

_LEFT = "its process has ended without a record, and its stream holds no lock"


def stream_supervisor(values: Settings) -> dg.SensorDefinition:
    """The sensor. It never starts a second stream on a lake: it looks at the lock that each stream holds.

    Args:
        values: the settings, with the trigger of the stream.
    """

    @dg.sensor(
        name=SUPERVISOR,
        job_name=JOB,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Starts the job `stream`, and starts it again with growing waits after failures. It starts none after a run that was "
        "cancelled, or while the recorded account of a table violates the conservation law.",
    )
    def supervise(context: dg.SensorEvaluationContext, engine: dg.ResourceParam[Engine]) -> dg.RunRequest | dg.SkipReason:
        if busy := engine.ingestion.current_writer():
            return dg.SkipReason(f"the input is being ingested: {busy}")
        if StreamTrigger.read(values.stream_trigger).every is not None:
            return _request(context.instance, engine, JOB)
        waiting = waiting_input(engine)
        subject = waiting.subject or (None if waiting.is_complete else JOB)
        return dg.SkipReason(waiting.reason) if subject is None else _request(context.instance, engine, subject)

    return supervise


def _request(instance: dg.DagsterInstance, engine: Engine, subject: str) -> dg.RunRequest | dg.SkipReason:
    """Request a run, unless one is running or the next one has to wait.

    After failures, the next run is requested after a growing wait. After a success, it is requested at once if the subject has changed
    since then, otherwise after 15 minutes. The subject `JOB` never changes.

    Args:
        instance: Dagster's instance.
        engine: the engine.
        subject: the input that waits, as text; `JOB` for a continuous stream, or if it is not known whether input waits.
    """
    now_s = engine.clock() / 1000
    records = [*newest_runs(instance, engine)]
    newest = records[0] if records else None
    if newest is not None and not newest.dagster_run.is_finished:
        if is_starting(newest, now_s) or running_process(engine):
            return dg.SkipReason(f"run {newest.dagster_run.run_id} has not ended yet")
        is_cancelled = newest.dagster_run.status == dg.DagsterRunStatus.CANCELING
        end = instance.report_run_canceled if is_cancelled else instance.report_run_failed
        end(newest.dagster_run, _LEFT)  # otherwise Dagster would show two running runs
        records = [*newest_runs(instance, engine)]
    if reason := reason_not_to_stream(engine, records):
        return dg.SkipReason(reason)
    tries = RequestedRuns(lake_identity(engine), hash_of_work(lake_identity(engine), subject), since_long_run(records, HEALTHY_S), now_s)
    if tries.wait:
        outcome = "" if tries.is_success(records[0]) else f". It ended with: {reason_of_end(instance, records[0].dagster_run.run_id)}"
        return dg.SkipReason(f"{tries.wait}{outcome}")
    return dg.RunRequest(run_key=tries.key, tags={**tries.tags, TAG: stream_of(engine)})
