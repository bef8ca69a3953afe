"""Does the work of a Dagster run's tables side by side, while Dagster executes the run's steps one after the other."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import date
from threading import Event, Lock
from typing import Any

import dagster as dg

from assets.contracts import DerivedAsset
from assets.factories.work import Advanced, Days, Work
from assets.ports import EnginePort
from platform_defs.engine.lake.interrupts import cancel_jobs, waiting_until
from platform_defs.engine.operations.in_parallel import THREADS
from platform_defs.jobs import RANGE_END, RANGE_START

PARTITION = "dagster/partition"
IN_PROCESS = ("in_process", "execute_in_process_executor")
"""The executors that run all steps of a run in one process."""
_CANCEL_EVERY_S = 1.0


class SideBySide:
    """Does the work of up to four tables at once.

    When the first step of a run's tables begins, so does the work of all of them; each step then waits for its own. The work of a table
    begins when that of its inputs has succeeded and their conservation law holds, as the steps of a run do. A step that is tried
    again, or whose work did not begin, does it by itself.
    """

    def __init__(self) -> None:
        self._tables: dict[str, tuple[DerivedAsset, Work]] = {}
        self._run: _Run | None = None

    def add(self, table: DerivedAsset, work: Work) -> None:
        """Make a table's work known."""
        self._tables[table.name] = table, work

    def do(self, context: dg.AssetExecutionContext, engine: EnginePort, table: str, days: Days | None) -> Advanced:
        """Wait for a table's work, or do it if it has not begun."""
        selected = self._selected(context)
        if context.retry_number == 0 and len(selected) > 1:
            if self._run is None or self._run.id != context.run.run_id:
                if self._run is not None:
                    self._run.close()
                self._run = _Run(context.run.run_id, {name: self._tables[name] for name in selected}, engine, _days(context.run.tags))
            begun = self._run.begun(table)
            if begun is not None:
                return self._run.result(begun)
        return self._tables[table][1](engine, days)

    def _selected(self, context: dg.AssetExecutionContext) -> list[str]:
        """The run's tables; none if its steps run in several processes, or are configured, for example to rebuild."""
        run, job = context.run, context.job_def
        ops: Any = run.run_config.get("ops", {})
        if job.executor_def.name not in IN_PROCESS or any(op.get("config") for op in ops.values()):
            return []
        steps = run.step_keys_to_execute
        return [node.name for node in job.nodes if node.name in self._tables and (steps is None or node.name in steps)]


def _days(tags: Mapping[str, str]) -> Days | None:
    """The days of a run over partitions; None for another run."""
    first, last = (tags.get(tag, tags.get(PARTITION)) for tag in (RANGE_START, RANGE_END))
    return (date.fromisoformat(first), date.fromisoformat(last)) if first and last else None


class _Run:
    """The work of one run.

    Args:
        id: the run.
        tables: its tables and their work, by name.
        engine: the engine.
        days: the run's days.
    """

    def __init__(self, id: str, tables: Mapping[str, tuple[DerivedAsset, Work]], engine: EnginePort, days: Days | None) -> None:
        self.id, self._tables, self._engine, self._days = id, tables, engine, days
        self._lock, self._stopped, self._pool = Lock(), Event(), ThreadPoolExecutor(THREADS)
        self._work: dict[str, Future[Advanced]] = {}
        self._finished: set[str] = set()
        self._left = {*tables}
        with self._lock:
            self._begin_ready()

    def begun(self, table: str) -> "Future[Advanced] | None":
        """The work of a table; None if it has not begun, and it never begins then."""
        with self._lock:
            self._left.discard(table)
            return self._work.get(table)

    def result(self, work: "Future[Advanced]") -> Advanced:
        """The result of a table's work. An interrupt ends all work of the run before it is raised."""
        try:
            return work.result()
        except BaseException:
            if not work.done():
                self.close()
            raise

    def close(self) -> None:
        """End all work of the run; what has been committed stays."""
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        while wait(self._work.values(), timeout=_CANCEL_EVERY_S).not_done:
            cancel_jobs()

    def _begin_ready(self) -> None:
        for name in sorted(self._left):
            table, work = self._tables[name]
            if not self._stopped.is_set() and self._finished.issuperset(_among(table.inputs, self._tables)):
                self._left.discard(name)
                self._work[name] = self._pool.submit(self._do, name, work)
        if not self._left:
            self._pool.shutdown(wait=False)

    def _do(self, name: str, work: Work) -> Advanced:
        with waiting_until(self._stopped):
            advanced = work(self._engine, self._days)
        if advanced.holds:
            with self._lock, suppress(RuntimeError):  # the pool was closed
                self._finished.add(name)
                self._begin_ready()
        return advanced


def _among(inputs: Collection[str], tables: Collection[str]) -> set[str]:
    return {*inputs} & {*tables}
