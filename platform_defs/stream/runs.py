"""The runs of Dagster's job `stream`: which lake each works on, whether one is starting, and why one has ended."""

import hashlib
from collections.abc import Sequence

import dagster as dg
from dagster import DagsterEventType, RunRecord

from platform_defs.engine import Engine
from platform_defs.engine.ingest.stream import writer_name

JOB = "stream"
"""The name of the job."""
TAG = "tidemark/stream"
"""The tag of its runs: the identity of the lake's folder and of the folders of input files."""
STARTS_S = 300.0
"""How long a run may take from its start until its stream holds the lock: it starts a JVM."""
_LOOKED_AT = 16
_LONGEST_REASON = 300
_KILLED = "Run execution process"
"""The first words of Dagster's event for a process that has ended without recording it."""
_WAITING = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED)


def stream_of(engine: Engine) -> str:
    """The identity of an engine's stream; unlike that of the ledger, it exists before the first batch."""
    return hashlib.sha256(f"{engine.lake.root}:{writer_name(engine.folders)}".encode()).hexdigest()[:12]


def newest_runs(instance: dg.DagsterInstance, engine: Engine) -> Sequence[RunRecord]:
    """The newest runs of the job on an engine's lake, the newest first; runs that a user has launched are among them."""
    return instance.get_run_records(dg.RunsFilter(job_name=JOB, tags={TAG: stream_of(engine)}), limit=_LOOKED_AT)


def is_starting(record: RunRecord, now_s: float) -> bool:
    """Whether a run waits in Dagster's queue, or was started so lately that its stream may not hold the lock yet."""
    run = record.dagster_run
    return not run.is_finished and (run.status in _WAITING or now_s - record.update_timestamp.timestamp() < STARTS_S)


def starting(instance: dg.DagsterInstance, engine: Engine, now_s: float) -> str | None:
    """Why other runs leave the input to the stream although no process ingests; None if no stream is starting."""
    newest = [*newest_runs(instance, engine)][:1]
    found = [record.dagster_run.run_id for record in newest if is_starting(record, now_s)]
    return f"run {found[0]} of the job {JOB} is starting" if found else None


def reason_of_end(instance: dg.DagsterInstance, run_id: str) -> str:
    """Why a run has ended, in one line."""
    steps = instance.all_logs(run_id, of_type=DagsterEventType.STEP_FAILURE)
    for entry in reversed([*steps]):
        data = entry.dagster_event.step_failure_data if entry.dagster_event is not None else None
        if data is not None and data.error is not None:
            error = data.error.cause or data.error
            return _line(f"{error.cls_name}: {error.message.partition(': ')[2] or error.message}")
    kinds = {DagsterEventType.ENGINE_EVENT, DagsterEventType.RUN_FAILURE}
    events = [entry.dagster_event.message or "" for entry in instance.all_logs(run_id, of_type=kinds) if entry.dagster_event is not None]
    killed = [message for message in events if message.startswith(_KILLED)]
    return _line((killed or events or ["its process has ended without a reason"])[-1])


def _line(text: str) -> str:
    first = (text.strip().splitlines() or [""])[0]
    return first if len(first) <= _LONGEST_REASON else f"{first[:_LONGEST_REASON]}..."
