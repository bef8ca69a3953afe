"""The sensor that keeps the job `stream` running: it starts it, starts it again with back-off, and says why it has stopped."""

from itertools import takewhile

import dagster as dg
from dagster import RunRecord

from platform_defs.engine import Engine
from platform_defs.sensors import lake_identity
from platform_defs.settings import Settings
from platform_defs.stream.runs import JOB, TAG, is_starting, newest_runs, reason_of_end, stream_of
from platform_defs.stream_trigger import StreamTrigger
from platform_defs.tries import Tries, asked_for

_HEALTHY_S = 600.0
"""A run that lasted this long does not lengthen the wait after a later failure: a stream that fails once a day starts again at once."""
_LEFT = "its process has ended without a record, and its stream holds no lock"


def stream_supervisor(values: Settings) -> dg.SensorDefinition:
    """The sensor. It never starts a second stream on a lake: it looks at the lock that each stream holds.

    Args:
        values: the settings, with the trigger of the stream.
    """

    @dg.sensor(
        name="stream_supervisor",
        job_name=JOB,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Starts the job `stream`, and starts it again with growing waits after failures. A run that was cancelled stays off.",
    )
    def supervise(context: dg.SensorEvaluationContext, engine: dg.ResourceParam[Engine]) -> dg.RunRequest | dg.SkipReason:
        if busy := engine.ingestion.busy():
            return dg.SkipReason(f"the input is being ingested: {busy}")
        if StreamTrigger.read(values.stream_trigger).every is None and not _has_input(engine):
            return dg.SkipReason("all present input is ingested")
        return _request(context.instance, engine)

    return supervise


def _request(instance: dg.DagsterInstance, engine: Engine) -> dg.RunRequest | dg.SkipReason:
    now_s = engine.clock() / 1000
    records = [*newest_runs(instance, engine)]
    newest = records[0] if records else None
    if newest is not None and is_starting(newest, now_s):
        return dg.SkipReason(f"run {newest.dagster_run.run_id} has not ended yet")
    if newest is not None and newest.dagster_run.status == dg.DagsterRunStatus.CANCELED:
        return dg.SkipReason(f"run {newest.dagster_run.run_id} was cancelled; launch the job {JOB} to go on, and this sensor supervises it")
    if newest is not None and not newest.dagster_run.is_finished:
        instance.report_run_failed(newest.dagster_run, _LEFT)  # else it would be shown as running beside the next one
        records = [*newest_runs(instance, engine)]
    if broken := _broken(engine):
        return dg.SkipReason(broken)
    before = Tries(lake_identity(engine), asked_for(lake_identity(engine), JOB), _since_healthy(records), now_s)
    if before.wait:
        return dg.SkipReason(f"{before.wait}. It ended with: {reason_of_end(instance, records[0].dagster_run.run_id)}")
    return dg.RunRequest(run_key=before.key, tags={**before.tags, TAG: stream_of(engine)})


def _has_input(engine: Engine) -> bool:
    """Whether a file has landed that the ledger does not list, a source has become idle, or Kafka may have records.

    To look at topics needs a Spark session, so a run is requested for them; the wait after a successful one is 15 minutes.
    """
    return bool(engine.topics) or any(engine.ingestion.new_files(source) for source in engine.folders) or bool(engine.pending.idle())


def _broken(engine: Engine) -> str | None:
    """Why the stream stays off: a recorded account violates the conservation law. None if there is none."""
    found = [name for name in engine.assets if (account := engine.accounts.recorded(name)) is not None and not account.holds]
    if not found:
        return None
    return (
        f"the recorded account of {', '.join(found)} violates the conservation law. `tidemark status --recount` shows it, "
        "`tidemark backfill --rebuild` repairs the days; the stream starts when the recorded account holds"
    )


def _since_healthy(records: list[RunRecord]) -> list[RunRecord]:
    """The newest runs up to the first that lasted long."""
    short = [*takewhile(lambda record: _lasted_s(record) < _HEALTHY_S, records)]
    return records[: len(short) + 1]


def _lasted_s(record: RunRecord) -> float:
    return (record.end_time - record.start_time) if record.end_time and record.start_time else 0.0
