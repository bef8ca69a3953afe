"""What became of the runs that a sensor asked for.

Dagster's daemon never launches a second run for a `run_key`, whatever became of the first (`dagster._daemon.sensor`). So a key names
the run before it: it stays the same until another run was made, and a run that failed is asked for again, later each time.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import dagster as dg
from dagster import RunRecord

LAKE, ASKED = "tidemark/lake", "tidemark/asked"
"""The tags of a run: which lake it is for, and what it was asked for, in a few letters."""
_LOOKED_AT = 16
_FIRST_WAIT_S, _LONGEST_WAIT_S = 30.0, 900.0
_UNDER_WAY_S = 3600.0
"""How long a run that has not ended keeps the next one waiting: one whose process was killed may never be recorded as ended."""


@dataclass(frozen=True)
class Tries:
    """The newest runs of a job on a lake that a sensor asked for.

    Args:
        lake: the lake's identity.
        asked: what is to be done now, in a few letters.
        records: the runs, newest first; some of them, if there are many.
        now_s: the time, in epoch s.
    """

    lake: str
    asked: str
    records: Sequence[RunRecord]
    now_s: float

    @property
    def key(self) -> str:
        """The key of the next run."""
        return f"{self.asked}:after:{self.records[0].dagster_run.run_id if self.records else 'none'}"

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the next run."""
        return {LAKE: self.lake, ASKED: self.asked}

    @property
    def succeeded(self) -> bool:
        """Whether the newest run was asked for the same and succeeded."""
        return bool(self.records) and self._is_success(self.records[0]) and self.records[0].dagster_run.tags.get(ASKED) == self.asked

    @property
    def wait(self) -> str | None:
        """Why no run is to be asked for just now; None where one is.

        A run that is under way is waited for. After a failure it is 30 s to the next run, after each further one twice as long, 15
        minutes at most. A run that succeeded and left something to do is followed by the next after 15 minutes.
        """
        if not self.records:
            return None
        newest = self.records[0]
        run, age_s = newest.dagster_run, self.now_s - _ended(newest)
        if not run.is_finished and age_s < _UNDER_WAY_S:
            return f"run {run.run_id} has not ended yet"
        failures = len([*takewhile(lambda r: not self._is_success(r), self.records)])
        wait_s = self._wait_s(failures)
        if not wait_s or age_s >= wait_s:
            return None
        outcome = f"failed, the last of {failures} in a row" if failures else "succeeded, and left this to do"
        return f"run {run.run_id} {outcome}; the next is asked for in {wait_s - age_s:.0f} s"

    def _wait_s(self, failures: int) -> float:
        if failures:
            return min(_FIRST_WAIT_S * 2 ** (failures - 1), _LONGEST_WAIT_S)
        return _LONGEST_WAIT_S if self.succeeded else 0.0

    @staticmethod
    def _is_success(record: RunRecord) -> bool:
        return record.dagster_run.status == dg.DagsterRunStatus.SUCCESS


def tries(instance: dg.DagsterInstance, job: str, lake: str, subject: str, now_s: float) -> Tries:
    """Look up the newest runs of a job on a lake.

    Args:
        instance: Dagster's instance.
        job: the job's name.
        lake: the lake's identity.
        subject: what is to be done now.
        now_s: the time, in epoch s.
    """
    asked = hashlib.sha256(f"{lake}:{subject}".encode()).hexdigest()[:16]
    found = instance.get_run_records(dg.RunsFilter(job_name=job, tags={LAKE: lake}), limit=_LOOKED_AT)
    return Tries(lake, asked, found, now_s)


def _ended(record: RunRecord) -> float:
    """When a run ended, in epoch s; when it was last heard of, where it did not."""
    return record.end_time or record.update_timestamp.timestamp()
