"""The sensors that request an ingest for waiting input (see `waiting_input`), and an advance for new ledger batches, without Spark.

A sensor skips while another process writes. It requests failed runs again, as often as they fail, after growing waits; see `tries`.
"""

import hashlib
import json
from collections.abc import Mapping

import dagster as dg
from dagster._core.errors import DagsterAssetCheckFailedError

from platform_defs.engine import Engine
from platform_defs.engine.inputs.identity import identity_of
from platform_defs.engine.ledger.ledger import TABLE
from platform_defs.orchestration.jobs import advance_request, later_days, partition_days, repeated_request
from platform_defs.orchestration.readable_tables import readable_tables
from platform_defs.orchestration.requested_runs import RequestedRuns, newest_requested_runs
from platform_defs.orchestration.run_errors import has_failed_with
from platform_defs.orchestration.stream_runs import reason_not_to_ingest
from platform_defs.orchestration.waiting_input import waiting_input


@dg.sensor(
    job_name="ingest",
    minimum_interval_seconds=30,
    description="Requests an ingest when a file or record has arrived that the ledger does not list, a source has become idle, or the "
    "watermark of a source with processing time must advance.",
)
def new_input(context: dg.SensorEvaluationContext, engine: dg.ResourceParam[Engine]) -> dg.RunRequest | dg.SkipReason:
    """Requests one run for each set of new files, new records, and sources that need a batch without rows; see `waiting_input`."""
    waiting = waiting_input(engine)
    if waiting.subject is None:
        return dg.SkipReason(waiting.reason)
    if busy := reason_not_to_ingest(context.instance, engine):
        return dg.SkipReason(busy)
    earlier_runs = _tries(context, engine, "ingest", waiting.subject)
    return dg.SkipReason(earlier_runs.wait) if earlier_runs.wait else dg.RunRequest(run_key=earlier_runs.key, tags=earlier_runs.tags)


@dg.sensor(
    job_name="advance",
    minimum_interval_seconds=30,
    description="Requests an advance when the ledger has new batches, a table is new or was changed, or the last run has failed.",
)
def ledger_moved(context: dg.SensorEvaluationContext, engine: dg.ResourceParam[Engine]) -> dg.SensorResult | dg.SkipReason:
    """Requests an advance when the ledger has batches that a table has not handled, or when the last run failed.

    Tables that cannot be read, and those that read them, are left out; the sensor reports the reason at each evaluation. The cursor is the
    lake's identity, the `seq` up to which its tables are advanced, and a hash of the assets' configuration.
    """
    head, configured = engine.ledger.head, configuration(engine)
    cursor = f"{lake_identity(engine)}:{head}:{configured}"
    if not head or context.cursor == cursor:
        return dg.SkipReason(f"the ledger has no batch after {head}")
    if busy := reason_not_to_ingest(context.instance, engine) or engine.pending.current_writer():
        return dg.SkipReason(busy)
    readable, unreadable = readable_tables(engine)
    earlier_runs = _tries(context, engine, "advance", f"advance:{head}:{configuration(readable)}")
    if earlier_runs.wait and not earlier_runs.succeeded:
        return dg.SkipReason(earlier_runs.wait)
    days = partition_days(context.repository_def)
    if request := _advance_request(context.instance, engine, readable, earlier_runs, days):
        if unreadable:
            context.log.warning(f"Tables are left out: {'; '.join(unreadable.values())}")
        return dg.SensorResult(run_requests=[request])
    if reason := _reason_to_look_again(readable, unreadable, days):
        return dg.SkipReason(reason)
    return dg.SensorResult(skip_reason=f"all tables are advanced up to batch {head}", cursor=cursor)


def _advance_request(
    instance: dg.DagsterInstance, engine: Engine, readable: Engine, earlier_runs: RequestedRuns, days: dg.DailyPartitionsDefinition | None
) -> dg.RunRequest | None:
    """The run for tables that are behind. If there are none, a repetition of the newest run if it failed, unless a check made it fail.

    None if there is nothing to run.
    """
    if earlier_runs.succeeded:
        return None
    if request := advance_request(engine, readable, earlier_runs.key, days, earlier_runs.tags):
        return request
    newest = next(iter(earlier_runs.records), None)
    if newest is None or newest.dagster_run.status != dg.DagsterRunStatus.FAILURE:
        return None
    if has_failed_with(instance, newest.dagster_run.run_id, DagsterAssetCheckFailedError):  # it would fail again over the same rows
        return None
    return repeated_request(engine, readable, newest.dagster_run, earlier_runs.key, days, earlier_runs.tags)


def _reason_to_look_again(engine: Engine, unreadable: Mapping[str, str], days: dg.DailyPartitionsDefinition | None) -> str | None:
    """Why the cursor stays: tables that cannot be read, or days without a partition. Both may change without a new batch."""
    if unreadable:
        return f"all other tables are advanced up to batch {engine.ledger.head}; {'; '.join(unreadable.values())}"
    return later_days(engine, days)


def configuration(engine: Engine) -> str:
    """A hash of the configured assets. When it changes, an asset may be behind although the ledger has no new batch."""
    described = sorted((name, identity_of(asset)) for name, asset in engine.assets.items())
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:12]


def lake_identity(engine: Engine) -> str:
    """The Delta id of the lake's ledger, which changes when the lake is created again; `none` before the first batch."""
    return engine.lake.identity(TABLE) or "none"


def _tries(context: dg.SensorEvaluationContext, engine: Engine, job: str, subject: str) -> RequestedRuns:
    return newest_requested_runs(context.instance, job, lake_identity(engine), subject, engine.clock() / 1000)
