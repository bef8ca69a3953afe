"""The newest runs that a sensor requested, and when it may request the next one.

Dagster's daemon never launches a second run for a `run_key`, even if the first one failed (`dagster._daemon.sensor`). A key therefore
contains the id of the previous run, so that it changes with each run, and the sensor can request failed work again. The wait before the
next request grows with each failure.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import dagster as dg
from dagster import RunRecord

LAKE, WORK = "tidemark/lake", "tidemark/asked"
"""The tags of a run: the identity of its lake, and a hash of the work that it was requested for."""
_MOST_RUNS = 16
"""How many of the newest runs are looked up."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 30.0, 900.0
_UNFINISHED_S = 3600.0
"""How long after its last update an unfinished run prevents the next one, in seconds. There is a limit because a run whose process was
killed may never be recorded as finished."""


@dataclass(frozen=True)
class RequestedRuns:
    """The newest runs of a job on a lake that a sensor requested.

    Args:
        lake: the lake's identity.
        work: a hash of the work to be done now (see `hash_of_work`).
        records: the newest runs, newest first.
        now_s: the present time, in epoch s.
    """

    lake: str
    work: str
    records: Sequence[RunRecord]
    now_s: float

    @property
    def key(self) -> str:
        """The `run_key` of the next run."""
        return f"{self.work}:after:{self.records[0].dagster_run.run_id if self.records else 'none'}"

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the next run."""
        return {LAKE: self.lake, WORK: self.work}

    @property
    def succeeded(self) -> bool:
        """Whether the newest run was requested for the same work and succeeded."""
        return bool(self.records) and self.is_success(self.records[0]) and self.records[0].dagster_run.tags.get(WORK) == self.work

    @property
    def wait(self) -> str | None:
        """Why no run may be requested now, as text for the sensor; None if one may.

        No run may be requested while the newest one has not finished, unless Dagster has not updated it for an hour. The wait after a
        failure is 30 s, and doubles with each further failure, up to 15 minutes. If the newest run succeeded, but the same work is still
        to be done, the wait is 15 minutes.
        """
        if not self.records:
            return None
        newest = self.records[0]
        run, age_s = newest.dagster_run, self.now_s - ended_s(newest)
        if not run.is_finished and age_s < _UNFINISHED_S:
            return f"run {run.run_id} has not ended yet"
        failures = len([*takewhile(lambda r: not self.is_success(r), self.records)])
        wait_s = self._wait_s(failures)
        if not wait_s or age_s >= wait_s:
            return None
        outcome = f"did not succeed, the last of {failures} in a row" if failures else "succeeded, but did not finish the work"
        return f"run {run.run_id} {outcome}; the next is requested in {wait_s - age_s:.0f} s"

    def _wait_s(self, failures: int) -> float:
        """The wait after the newest run, in seconds, given the number of failures since the last success."""
        if failures:
            return min(_FIRST_WAIT_S * 2 ** (failures - 1), _LONGEST_WAIT_S)
        return _LONGEST_WAIT_S if self.succeeded else 0.0

    @staticmethod
    def is_success(record: RunRecord) -> bool:
        """Whether a run succeeded."""
        return record.dagster_run.status == dg.DagsterRunStatus.SUCCESS


def newest_requested_runs(instance: dg.DagsterInstance, job: str, lake: str, subject: str, now_s: float) -> RequestedRuns:
    """Look up the newest runs of a job on a lake.

    Args:
        instance: Dagster's instance.
        job: the job's name.
        lake: the lake's identity.
        subject: the work to be done now, as text.
        now_s: the present time, in epoch s.
    """
    newest = instance.get_run_records(dg.RunsFilter(job_name=job, tags={LAKE: lake}), limit=_MOST_RUNS)
    return RequestedRuns(lake, hash_of_work(lake, subject), newest, now_s)


def hash_of_work(lake: str, subject: str) -> str:
    """A hash of the work to be done on a lake: equal for the same lake and subject."""
    return hashlib.sha256(f"{lake}:{subject}".encode()).hexdigest()[:16]


def ended_s(record: RunRecord) -> float:
    """When a run ended, in epoch s; if it has not ended, when it was last updated."""
    return record.end_time or record.update_timestamp.timestamp()
