"""Dagster's job `stream`: one run that ingests, advances the tables and accounts for them until it is cancelled."""

from contextlib import ExitStack

import dagster as dg
from pydantic import Field

from operators.errors import OperatorError
from operators.timing import DAY_MS, length_ms
from platform_defs.engine import Engine
from platform_defs.monitoring.endpoint import EndpointError
from platform_defs.monitoring.stream_metrics import metrics_of_stream
from platform_defs.orchestration.stream_runs import JOB, TAG, run_lock, stream_of
from platform_defs.settings import Settings
from platform_defs.settings.stream_trigger import StreamTrigger, TriggerError
from platform_defs.stream.dagster_reports import DagsterReports
from platform_defs.stream.run import StreamRun

DESCRIPTION = (
    "Ingests files and records at an interval, advances all tables after each batch, publishes those with a sink, and accounts for them, "
    "until it is cancelled or the conservation law is violated. It is outside the pool `spark`, so other runs can run at the same time."
)


class StreamConfig(dg.Config):
    """When the stream ingests, and how often it reports."""

    trigger: str | None = Field(
        default=None,
        description="`processingTime=` and an interval, such as `processingTime=30 seconds`, or `availableNow` to end when all present "
        "files and records are ingested; by default TIDEMARK_STREAM_TRIGGER",
    )
    summary: str | None = Field(
        default=None,
        description="how often materializations and checks are reported, such as `5 minutes`; by default TIDEMARK_STREAM_SUMMARY",
    )


def stream_job(values: Settings, days: dg.DailyPartitionsDefinition, stream_id: str | None = None) -> dg.JobDefinition:
    """The job. Dagster does not retry its run: the sensor `stream_supervisor` requests a new run.

    Args:
        values: the settings, with the default trigger and interval of summaries.
        days: the daily partitions of tables that close ranges.
        stream_id: the identity of the stream, which each run has as a tag from its creation on; None to add the tag when the run begins.
    """

    @dg.op(required_resource_keys={"engine"}, description=DESCRIPTION)
    def run_stream(context: dg.OpExecutionContext, config: StreamConfig) -> None:
        trigger, interval_s = _configured(values, config)
        engine: Engine = context.resources.engine
        context.instance.add_run_tags(context.run_id, {TAG: stream_of(engine)})  # a link in the path may have changed since the launch
        metrics, serving = metrics_of_stream(engine, values.stream_metrics_host, values.stream_metrics_port, context.log.info)
        with run_lock(engine), ExitStack() as stack:
            try:
                stack.enter_context(serving)
            except EndpointError as error:
                context.log.warning(f"The stream runs without serving metrics: {error}")
            reports = DagsterReports(context, engine, days, interval_s)
            with reports.stored_at_end():
                StreamRun(engine, reports, metrics.measure_steps).run(trigger)

    @dg.job(name=JOB, description=DESCRIPTION, tags={} if stream_id is None else {TAG: stream_id})
    def stream() -> None:
        run_stream()

    return stream


def _configured(values: Settings, config: StreamConfig) -> tuple[StreamTrigger, float]:
    """The trigger, and the interval of summaries in seconds.

    Raises:
        Failure: the configuration is illegal; a retry would not help.
    """
    try:
        trigger = StreamTrigger.read(config.trigger or values.stream_trigger, "trigger")
        summary = config.summary or values.stream_summary
        if not 0 < (summary_ms := length_ms(summary, "summary")) <= DAY_MS:
            raise dg.Failure(f"`summary` is {summary!r}; legal: more than zero, at most a day", allow_retries=False)
        return trigger, summary_ms / 1000
    except (TriggerError, OperatorError) as error:
        raise dg.Failure(str(error), allow_retries=False) from error
