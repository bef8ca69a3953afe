"""Dagster's daemon as the sensors use it: cursors, run keys that launch one run each, and the status of runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import dagster as dg

from assets.days import day_end
from assets.factories.partitions import RANGE_END
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.orchestration import sensors
from tests.hunt.process import Fault

RunOf = Callable[[Callable[[Any], Any], Sequence[Fault]], tuple[str, Any]]


@dataclass
class Run:
    """A run, with the fields of `DagsterRun`."""

    run_id: str
    tags: dict[str, str]
    status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED
    asset_selection: frozenset[dg.AssetKey] | None = None

    @property
    def is_finished(self) -> bool:
        return self.status in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE)


@dataclass
class Record:
    """A run's record, with the fields of `RunRecord`."""

    dagster_run: Run
    job: str
    began_s: float
    end_time: float | None = None

    @property
    def update_timestamp(self) -> datetime:
        return datetime.fromtimestamp(self.began_s, UTC)


@dataclass
class Context:
    """The context of a sensor."""

    instance: "Daemon"
    cursor: str | None
    repository_def: None = None


@dataclass
class Daemon:
    """The daemon.

    Args:
        clock: the wall clock, in epoch ms.
        cursors: the cursor of each sensor.
        keys: the run keys that were launched, each with its sensor.
        records: the records of all runs, the oldest first.
    """

    clock: Callable[[], int]
    cursors: dict[str, str | None] = field(default_factory=dict)
    keys: set[tuple[str, str]] = field(default_factory=set)
    records: list[Record] = field(default_factory=list)
    schedule_storage: None = None  # no stream is supervised

    def all_logs(self, *_: Any, **__: Any) -> list[Any]:
        """The events of a run: none, so no step has failed by a check."""
        return []

    def get_run_records(self, filters: dg.RunsFilter, limit: int) -> list[Record]:
        """As `DagsterInstance` returns them: the newest first."""
        tags = dict(filters.tags or {})
        found = [r for r in reversed(self.records) if r.job == filters.job_name and tags.items() <= r.dagster_run.tags.items()]
        return found[:limit]

    def is_quiet(self) -> bool:
        """Whether the newest run of each job succeeded, so that no sensor waits for a run."""
        newest = {record.job: record for record in self.records}
        return all(record.dagster_run.status == dg.DagsterRunStatus.SUCCESS for record in newest.values())

    def is_failing(self, job: str) -> bool:
        """Whether the newest run of a job failed."""
        newest = next((record for record in reversed(self.records) if record.job == job), None)
        return newest is not None and newest.dagster_run.status == dg.DagsterRunStatus.FAILURE

    def tick(self, sensor: str, run: RunOf, faults: Sequence[Fault]) -> None:
        """Evaluate a sensor, and launch the runs that it requests, except runs whose key was launched before."""
        definition: Any = getattr(sensors, sensor)
        context = Context(self, self.cursors.get(sensor))
        _, answer = run(lambda engine: definition._raw_fn(context, engine), ())
        requests = [answer] if isinstance(answer, dg.RunRequest) else list(getattr(answer, "run_requests", None) or [])
        if getattr(answer, "cursor", None) is not None:
            self.cursors[sensor] = answer.cursor
        for request in requests:
            if request.run_key is None or (sensor, request.run_key) not in self.keys:
                self.keys.add((sensor, request.run_key or ""))
                self._launch(sensor, request, run, faults)

    def _launch(self, sensor: str, request: dg.RunRequest, run: RunOf, faults: Sequence[Fault]) -> None:
        selected = None if request.asset_selection is None else frozenset(request.asset_selection)
        launched = Run(f"run-{len(self.records)}", dict(request.tags), asset_selection=selected)
        record = Record(launched, "ingest" if sensor == "new_input" else "advance", self.clock() / 1000)
        self.records.append(record)
        outcome, _ = run(_ingest if sensor == "new_input" else _advance(request.tags.get(RANGE_END)), faults)
        if outcome in ("killed", "paused"):  # the daemon does not get its result
            return
        launched.status = dg.DagsterRunStatus.SUCCESS if outcome == "done" else dg.DagsterRunStatus.FAILURE
        record.end_time = self.clock() / 1000


def _ingest(engine: Any) -> None:
    engine.ingest()


def _advance(last: str | None) -> Callable[[Any], None]:
    until = None if last is None else day_end(date.fromisoformat(last))

    def advance(engine: Any) -> None:
        refused = dict[str, ProgressError]()
        for name, asset in engine.assets.items():
            try:
                if refused.keys().isdisjoint(asset.inputs):
                    engine.advance(name, until)
            except ProgressError as error:  # Dagster advances the other assets, except the failed asset's readers
                refused[name] = error
        if refused:
            raise next(iter(refused.values()))

    return advance
