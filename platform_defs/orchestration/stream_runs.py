"""The runs of Dagster's job `stream`: their lake, whether one is starting or running, why one ended, and why none may be started."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import takewhile, zip_longest

import dagster as dg
from dagster import DagsterEventType, RunRecord
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorStatus
from dagster._core.storage.tags import REPOSITORY_LABEL_TAG

from platform_defs.engine import Engine
from platform_defs.engine.ingest.stream import writer_name
from platform_defs.orchestration.readable_tables import UNREADABLE
from platform_defs.orchestration.run_errors import failed_steps, short_line

JOB = "stream"
"""The name of the job."""
SUPERVISOR = "stream_supervisor"
"""The name of the sensor that keeps the job running."""
TAG = "tidemark/stream"
"""The tag of the job's runs: the identity of the lake's folder and of the folders of input files."""
STARTS_S = 300.0
"""How long a run may take from its start until it holds its lock: its process loads the code."""
HEALTHY_S = 600.0
"""A run that has lasted this long counts as healthy: earlier failures no longer lengthen the wait after the next failure, and an alert
about them ends."""
_MOST_RUNS = 16
"""The maximum number of runs that `newest_runs` returns."""
_KILLED = "Run execution process"
"""The first words of Dagster's event for a process that has ended without recording it."""
_ON = {InstigatorStatus.RUNNING, InstigatorStatus.AUTOMATICALLY_RUNNING}
_WAITING = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED)


def stream_of(engine: Engine) -> str:
    """The identity of an engine's stream; unlike that of the ledger, it exists before the first batch."""
    return stream_on(engine.lake.root, engine.folders)


def stream_on(lake_root: str, folders: Mapping[str, str]) -> str:
    """The identity of the stream on a lake that reads these folders of input files."""
    return hashlib.sha256(f"{lake_root}:{writer_name(folders)}".encode()).hexdigest()[:12]


def newest_runs(instance: dg.DagsterInstance, engine: Engine) -> Sequence[RunRecord]:
    """The newest runs of the job on an engine's lake, the newest first; runs that a user has launched are among them.

    A run that was cancelled in Dagster's queue while an earlier run had not ended is left out: it says nothing about that stream.
    """
    records = instance.get_run_records(dg.RunsFilter(job_name=JOB, tags={TAG: stream_of(engine)}), limit=_MOST_RUNS)
    return [record for record, earlier in zip_longest(records, records[1:]) if not _was_redundant(record, earlier)]


def _was_redundant(record: RunRecord, earlier: RunRecord | None) -> bool:
    """Whether a run was cancelled before it began, while an earlier run had not ended."""
    if earlier is None or record.dagster_run.status != dg.DagsterRunStatus.CANCELED or record.start_time is not None:
        return False
    return earlier.end_time is None or earlier.end_time > (record.end_time or record.create_timestamp.timestamp())


def since_long_run(records: Sequence[RunRecord], long_s: float) -> Sequence[RunRecord]:
    """The newest of the given runs, up to and including the newest that has ended and lasted at least this many seconds."""
    short = [*takewhile(lambda record: _lasted_s(record) < long_s, records)]
    return records[: len(short) + 1]


def _lasted_s(record: RunRecord) -> float:
    """How long a run lasted, in seconds; 0 if it has not ended."""
    return (record.end_time - record.start_time) if record.end_time and record.start_time else 0.0


def is_starting(record: RunRecord, now_s: float) -> bool:
    """Whether a run waits in Dagster's queue, or was started so recently that its stream may not hold the lock yet."""
    run = record.dagster_run
    return not run.is_finished and (run.status in _WAITING or now_s - record.update_timestamp.timestamp() < STARTS_S)


def run_lock(engine: Engine) -> AbstractContextManager[None]:
    """Hold the lock of a run while the block runs.

    The lock of the ingest is not enough: a run does not hold it while it starts a JVM or accounts for rows.
    """
    return engine.lake.writer(_lock(engine))


def running_process(engine: Engine) -> str | None:
    """The process that executes a run of the job; None if there is none."""
    return engine.lake.current_writer(_lock(engine))


def _lock(engine: Engine) -> str:
    return f"{JOB}-{stream_of(engine)}"


def reason_not_to_ingest(instance: dg.DagsterInstance, engine: Engine) -> str | None:
    """Why other runs must neither ingest nor advance tables now; None if they may.

    There are three reasons: a process ingests; a run of the job `stream`, which ingests and advances, is starting; or the sensor
    `stream_supervisor` is on but starts no stream, because a user cancelled the stream or the conservation law is violated.
    """
    if busy := engine.ingestion.current_writer():
        return busy
    newest = [*newest_runs(instance, engine)][:1]
    for record in newest:
        if is_starting(record, engine.clock() / 1000):
            return f"run {record.dagster_run.run_id} of the job {JOB} is starting"
    if _is_supervised(instance, newest) and (reason := reason_not_to_stream(engine, newest)):
        return f"{reason}. To go on without a stream, turn off the sensor {SUPERVISOR}"
    return None


def reason_not_to_stream(engine: Engine, newest: Sequence[RunRecord]) -> str | None:
    """Why the sensor `stream_supervisor` starts no stream until a user acts; None if it may start one.

    Args:
        engine: the engine.
        newest: the newest runs, the newest first.
    """
    if newest and newest[0].dagster_run.status == dg.DagsterRunStatus.CANCELED:
        return f"run {newest[0].dagster_run.run_id} was cancelled; launch the job {JOB} to go on, and {SUPERVISOR} supervises it"
    violating = [name for name in engine.assets if _is_violated(engine, name)]
    if not violating:
        return None
    return (
        f"the recorded account of {', '.join(violating)} violates the conservation law. `tidemark status --recount` shows it, "
        "and the command that repairs the days; the stream starts when the recorded account holds"
    )


def _is_violated(engine: Engine, name: str) -> bool:
    """Whether the recorded account of a table violates the conservation law. A table that cannot be read counts as not violated."""
    try:
        account = engine.accounts.recorded_account(name)
    except UNREADABLE:  # the stream reports it, and advances the other tables
        return False
    return account is not None and not account.holds


def _is_supervised(instance: dg.DagsterInstance, newest: Sequence[RunRecord]) -> bool:
    """Whether the sensor `stream_supervisor` is on, in the code location that started the newest run."""
    if instance.schedule_storage is None:  # an instance in memory has no sensors
        return False
    labels = [label for record in newest if (label := record.dagster_run.tags.get(REPOSITORY_LABEL_TAG))]
    states = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR, instigator_statuses=_ON)
    of_location = [state for state in states if state.instigator_name == SUPERVISOR]
    return any(not labels or state.origin.repository_origin.get_label() == labels[0] for state in of_location)


def reason_of_end(instance: dg.DagsterInstance, run_id: str) -> str:
    """Why a run has ended, in one line. For an error that is not Tidemark's, only its class: the text may quote rows."""
    if failures := failed_steps(instance, run_id):
        return failures
    kinds = {DagsterEventType.ENGINE_EVENT, DagsterEventType.RUN_FAILURE}
    events = [entry.dagster_event.message or "" for entry in instance.all_logs(run_id, of_type=kinds) if entry.dagster_event is not None]
    killed = [message for message in events if message.startswith(_KILLED)]
    return short_line((killed or events or ["its process has ended without a reason"])[-1].strip().partition("\n")[0])
