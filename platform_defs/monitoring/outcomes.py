"""How often jobs and checks have failed in a row, from Dagster's instance."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, takewhile

import dagster as dg
from dagster import DagsterInstance, RunRecord
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecord,
    AssetCheckExecutionRecordStatus,
)
from dagster._core.storage.tags import REPOSITORY_LABEL_TAG

from assets.factories.closed_range_table import LAW
from operators.errors import TidemarkError
from platform_defs.safe_text import one_line, shortened

_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
_ENDED_CHECKS = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}
_RECORDS_OF_A_RUN = 40
"""The most records that one run makes for a check: one for each of up to a month's days, and one for all of them."""
_FROM_THE_UI = "__ASSET_JOB"
_LONGEST_REASON = 500


@dataclass(frozen=True)
class Streak:
    """The newest outcomes of a job or a check.

    Args:
        failures: how often it has failed in a row, counted up to the number of failures that alerts.
        is_failing: whether these are enough for an alert.
        since_s: when the first of them ended, in epoch s; after a success, when that ended.
        run_id: the run of the newest outcome; None for a check that no run evaluated.
        reason: why it failed; None if it is not known.
    """

    failures: int
    is_failing: bool
    since_s: float
    run_id: str | None = None
    reason: str | None = None


def streaks(instance: DagsterInstance, repository: dg.RepositoryDefinition, label: str | None, after: int) -> dict[str, Streak]:
    """The newest outcomes of every job and check of a repository that has ended once.

    A cancelled run is no outcome. Failures of a check that are warnings are not counted. A run that evaluates a check for several days
    counts once.

    Args:
        instance: Dagster's instance.
        repository: the repository.
        label: `repository@location`, so that jobs of the same name in other code locations are left out; None to read all.
        after: how many failures in a row alert. One is enough for a check that a sensor evaluated: its limit is a time.
    """
    names = {job.name for job in repository.get_all_jobs()}
    jobs = {_job(name): _of_job(instance, name, label, after) for name in sorted(names)}
    checks = _of_checks(instance, repository.asset_graph.asset_check_keys, after)
    return {subject: streak for subject, streak in {**jobs, **checks}.items() if streak is not None}


def _job(name: str) -> str:
    return "a materialization of assets" if name.startswith(_FROM_THE_UI) else f"job {name}"


def _of_job(instance: DagsterInstance, job: str, label: str | None, after: int) -> Streak | None:
    tags = {} if label is None else {REPOSITORY_LABEL_TAG: label}
    records = instance.get_run_records(dg.RunsFilter(job_name=job, statuses=_ENDED, tags=tags), limit=after)
    if not records:
        return None
    newest = records[0].dagster_run.run_id
    failed = [*takewhile(lambda record: record.dagster_run.status == dg.DagsterRunStatus.FAILURE, records)]
    if not failed:
        return Streak(0, False, _ended_s(records[0]), newest)
    is_failing = len(failed) >= after
    return Streak(len(failed), is_failing, _ended_s(failed[-1]), newest, _why(instance, newest) if is_failing else None)


def _ended_s(record: RunRecord) -> float:
    return record.end_time or record.update_timestamp.timestamp()


def _why(instance: DagsterInstance, run_id: str) -> str | None:
    """The failed steps of a run, each with its error. Only texts that Tidemark wrote are quoted: others may quote rows."""
    found = list[str]()
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        data = entry.get_dagster_event().step_failure_data
        names, error = list[str](), data.error
        while error is not None:
            names.append(error.cls_name or "an error")
            if error.cls_name in _own_errors():
                names = [error.message.removeprefix(f"{_module_of(error.message)}{error.cls_name}: ").strip()]
                break
            error = error.cause
        words = data.user_failure_data.description if data.user_failure_data else None
        found.append(f"{entry.step_key}: {words or (names[-1] if names else 'failed')}")
    return _short("; ".join(found)) if found else None


def _module_of(message: str) -> str:
    """The module in front of an error's class in its message, with the dot."""
    return message.partition(": ")[0].rpartition(".")[0] + "." if "." in message.partition(": ")[0] else ""


def _own_errors() -> set[str]:
    """The names of the errors whose text Tidemark writes."""
    return {kind.__name__ for kind in _below(TidemarkError)}


def _below(kind: type) -> Iterator[type]:
    for below in kind.__subclasses__():
        yield below
        yield from _below(below)


def _of_checks(instance: DagsterInstance, keys: Iterable[dg.AssetCheckKey], after: int) -> Mapping[str, Streak | None]:
    newest = instance.event_log_storage.get_latest_asset_check_execution_by_key([*keys])
    return {f"check {key.name} of {key.asset_key.to_user_string()}": _of_check(instance, key, after) for key in newest}


def _of_check(instance: DagsterInstance, key: dg.AssetCheckKey, after: int) -> Streak | None:
    storage = instance.event_log_storage
    records = storage.get_asset_check_execution_history(key, limit=after * _RECORDS_OF_A_RUN, status=_ENDED_CHECKS)
    runs = [[*of_run] for _, of_run in groupby(records, key=lambda record: record.run_id or record.id)]
    if not runs:
        return None
    failed = [*takewhile(lambda of_run: any(map(_is_failure, of_run)), runs)]
    run_id, first = runs[0][0].run_id or None, runs[0][0]
    if not failed:
        return Streak(0, False, first.create_timestamp, run_id)
    is_failing = len(failed) >= after or run_id is None or key.name == LAW  # a stream that breaks the law is not started again
    shown = next(record for record in failed[0] if _is_failure(record))
    return Streak(min(len(failed), after), is_failing, failed[-1][-1].create_timestamp, run_id, _description(shown))


def _is_failure(record: AssetCheckExecutionRecord) -> bool:
    evaluation = _evaluation(record)
    return evaluation is not None and not evaluation.passed and evaluation.severity == dg.AssetCheckSeverity.ERROR


def _description(record: AssetCheckExecutionRecord) -> str | None:
    evaluation = _evaluation(record)
    return _short(evaluation.description) if evaluation is not None and evaluation.description else None


def _evaluation(record: AssetCheckExecutionRecord) -> dg.AssetCheckEvaluation | None:  # pyright: ignore[reportPrivateImportUsage]
    event = record.event.dagster_event if record.event else None
    return None if event is None else event.asset_check_evaluation_data


def _short(text: str) -> str:
    return shortened(one_line(text), _LONGEST_REASON)
