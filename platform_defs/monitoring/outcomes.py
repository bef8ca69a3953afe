"""Counts how often jobs and checks have failed in a row, from the records of Dagster's instance."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import dagster as dg
from dagster import DagsterInstance, RunRecord
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)
from dagster._core.storage.tags import REPOSITORY_LABEL_TAG

from assets.factories.conservation_law import LAW
from assets.pipeline import FRESH
from platform_defs.engine import LawError
from platform_defs.orchestration.requested_runs import ended_s
from platform_defs.orchestration.run_errors import failed_steps, has_failed_with, short_line
from platform_defs.orchestration.stream_runs import HEALTHY_S, since_long_run
from platform_defs.orchestration.stream_runs import JOB as STREAM

_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
_ENDED_CHECKS = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}
_LONG_S, _MOST_STREAM_RUNS = 86_400.0, 200
"""Failures of a stream before a run that lasted a day are not counted with those after it, however that run ended; and how many of its
runs are looked at, cancelled ones included. A run of a few minutes is no reason to forget failures: a stream may fail every 15 minutes."""
_AT_ONCE, _MOST_RECORDS = 200, 10_000
"""The number of records of a check that are read at once, and the most that are read. A run makes a record for each day, and a later
evaluation of the day in the same run replaces it."""
_AT_FIRST = {LAW, FRESH}
"""Checks for which one failure is enough for an alert: a stream that violates the law is not restarted, and `fresh` has its own limit."""
_FROM_THE_UI = "__ASSET_JOB"


@dataclass(frozen=True)
class FailureStreak:
    """The newest outcomes of a job or a check.

    Args:
        failures: how often it has failed in a row, counted up to the number that gives an alert.
        is_failing: whether these failures are enough for an alert.
        since_s: when the first of these failures ended, in epoch s; after a success, when the success ended.
        run_id: the run of the newest outcome; None for a check that no run evaluated.
        reason: why it failed; None if it is not known.
    """

    failures: int
    is_failing: bool
    since_s: float
    run_id: str | None = None
    reason: str | None = None


def streaks(
    instance: DagsterInstance, repository: dg.RepositoryDefinition, label: str | None, after: int, now_s: float
) -> dict[str, FailureStreak]:
    """The newest outcomes of every job and check of a repository that has ended at least once.

    A cancelled run is no outcome. A failed check with the severity of a warning is a success here. A run that evaluates a check for several
    days counts once: it has failed if the newest result of any day has.

    A run of the job `stream` does not end by itself, so it is a success as long as it is running and has lasted ten minutes. If it has
    ended, it is a success no longer; but after a run of a day, failures before it are not counted. If a run violates the conservation law,
    one failure is enough: the stream is not started again, and the failed check may not have been stored.

    Args:
        instance: Dagster's instance.
        repository: the repository.
        label: `repository@location`, so that jobs of the same name in other code locations are left out; None to read all.
        after: how many failures in a row give an alert. For `fresh`, `conservation_law` and checks that a sensor evaluated, one is enough.
        now_s: the time, in epoch s.
    """
    names = {job.name for job in repository.get_all_jobs()}
    jobs = {_job(name): _of_job(instance, name, label, after) for name in sorted(names)}
    if (running := _running_stream(instance, label, now_s)) is not None:
        jobs[_job(STREAM)] = running
    checks = _of_checks(instance, repository.asset_graph.asset_check_keys, after)
    return {subject: streak for subject, streak in {**jobs, **checks}.items() if streak is not None}


def _job(name: str) -> str:
    return "a materialization of assets" if name.startswith(_FROM_THE_UI) else f"job {name}"


def _of_job(instance: DagsterInstance, job: str, label: str | None, after: int) -> FailureStreak | None:
    records = _outcomes(instance, job, label, after)
    if not records:
        return None
    newest = records[0].dagster_run.run_id
    failures = [*takewhile(lambda record: record.dagster_run.status == dg.DagsterRunStatus.FAILURE, records)]
    if not failures:
        return FailureStreak(0, False, ended_s(records[0]), newest)
    is_failing = len(failures) >= after or (job == STREAM and has_failed_with(instance, newest, LawError))
    return FailureStreak(len(failures), is_failing, ended_s(failures[-1]), newest, failed_steps(instance, newest) if is_failing else None)


def _outcomes(instance: DagsterInstance, job: str, label: str | None, after: int) -> Sequence[RunRecord]:
    """The newest runs of a job that succeeded or failed, at most `after`; of the stream, those since a run that lasted a day."""
    if job != STREAM:
        return _runs_of_job(instance, job, label, after, _ENDED)
    statuses = [*_ENDED, dg.DagsterRunStatus.CANCELED]  # a user ends a stream by cancelling its run
    records = _runs_of_job(instance, job, label, _MOST_STREAM_RUNS, statuses)
    return [record for record in since_long_run(records, _LONG_S) if record.dagster_run.status in _ENDED][:after]


def _running_stream(instance: DagsterInstance, label: str | None, now_s: float) -> FailureStreak | None:
    """The success of a stream that is running and has lasted long enough; None if there is none."""
    for record in _runs_of_job(instance, STREAM, label, 1):
        lasts_since = record.start_time + HEALTHY_S if record.start_time else now_s
        if record.dagster_run.status == dg.DagsterRunStatus.STARTED and lasts_since < now_s:
            return FailureStreak(0, False, lasts_since, record.dagster_run.run_id)
    return None


def _runs_of_job(
    instance: DagsterInstance, job: str, label: str | None, most: int, statuses: Sequence[dg.DagsterRunStatus] = ()
) -> Sequence[RunRecord]:
    """The newest runs of a job, at most `most`; only those with one of the statuses, if there are any."""
    tags = {} if label is None else {REPOSITORY_LABEL_TAG: label}
    return instance.get_run_records(dg.RunsFilter(job_name=job, statuses=[*statuses], tags=tags), limit=most)


def _of_checks(instance: DagsterInstance, keys: Iterable[dg.AssetCheckKey], after: int) -> Mapping[str, FailureStreak | None]:
    newest = instance.event_log_storage.get_latest_asset_check_execution_by_key([*keys])
    return {f"check {key.name} of {key.asset_key.to_user_string()}": _of_check(instance, key, after) for key in newest}


def _of_check(instance: DagsterInstance, key: dg.AssetCheckKey, after: int) -> FailureStreak | None:
    runs = _newest_runs(instance, key, after)
    if not runs:
        return None
    failures = [*takewhile(lambda of_run: any(map(_is_failure, of_run)), runs)][:after]
    run_id = runs[0][0].run_id or None
    if not failures:
        return FailureStreak(0, False, max(map(_evaluated_s, runs[0])), run_id)
    is_failing = len(failures) >= after or run_id is None or key.name in _AT_FIRST
    shown_record = next(record for record in failures[0] if _is_failure(record))
    since_s = min(_evaluated_s(record) for record in failures[-1] if _is_failure(record))
    return FailureStreak(len(failures), is_failing, since_s, run_id, _description(shown_record))


def _newest_runs(instance: DagsterInstance, key: dg.AssetCheckKey, most: int) -> list[list[AssetCheckExecutionRecord]]:
    """For each of the newest runs, the newest record of each day: more than `most` runs, unless there are fewer."""
    records_by_run, records_read, cursor = dict[str | int, dict[str | None, AssetCheckExecutionRecord]](), 0, None
    while len(records_by_run) <= most and records_read < _MOST_RECORDS:
        records = instance.event_log_storage.get_asset_check_execution_history(key, _AT_ONCE, cursor, _ENDED_CHECKS)
        for record in records:
            records_by_run.setdefault(record.run_id or record.id, {}).setdefault(record.partition, record)
        if len(records) < _AT_ONCE:
            break
        records_read, cursor = records_read + len(records), records[-1].id
    return [[*by_day.values()] for by_day in records_by_run.values()]


def _is_failure(record: AssetCheckExecutionRecord) -> bool:
    evaluation = _evaluation(record)
    return evaluation is not None and not evaluation.passed and evaluation.severity == dg.AssetCheckSeverity.ERROR


def _evaluated_s(record: AssetCheckExecutionRecord) -> float:
    """When a check was evaluated, in epoch s. `create_timestamp` is when the run planned it, or evaluated it for the first time."""
    return record.event.timestamp if record.event else record.create_timestamp


def _description(record: AssetCheckExecutionRecord) -> str | None:
    evaluation = _evaluation(record)
    return short_line(evaluation.description) if evaluation is not None and evaluation.description else None


def _evaluation(record: AssetCheckExecutionRecord) -> dg.AssetCheckEvaluation | None:  # pyright: ignore[reportPrivateImportUsage]
    event = record.event.dagster_event if record.event else None
    return None if event is None else event.asset_check_evaluation_data
