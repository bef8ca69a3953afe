"""Does the work of a Dagster run's tables in parallel, while Dagster executes the run's steps one after the other."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from threading import Event, Lock
from typing import Any

import dagster as dg

from assets.contracts import DerivedAsset
from assets.factories.partitions import Days, run_days
from assets.factories.work import Advanced, Work
from assets.ports import EnginePort
from platform_defs.engine.lake.interrupts import cancel_jobs, waiting_until
from platform_defs.engine.operations.in_parallel import THREADS

IN_PROCESS = ("in_process", "execute_in_process_executor")
"""The executors that run all steps of a run in one process."""
GRACE_S = 5.0
"""At the end of a run, how long its remaining work may take to end before Spark's jobs are cancelled, in seconds."""
_CANCEL_EVERY_S = 1.0


class ParallelWork:
    """Does the work of up to four tables at once.

    When the first step of a run's tables begins, the work of all its tables begins too, and each step waits for its own table's work.
    A table's work begins when the work of its inputs has succeeded and their conservation law holds; Dagster's blocking checks make its
    step wait for the same. A step does its table's work itself if it has not begun, or if Dagster retries the step.
    """

    def __init__(self) -> None:
        self._tables: dict[str, tuple[DerivedAsset, Work]] = {}
        self._run: _Run | None = None

    def add(self, table: DerivedAsset, work: Work) -> None:
        """Register the work of a table."""
        self._tables[table.name] = table, work

    def do(self, context: dg.AssetExecutionContext, engine: EnginePort, table: str, days: Days | None) -> Advanced:
        """Wait for a table's work, or do it if it has not begun. An interrupt first ends all work of the run, and is then raised."""
        try:
            future = self._claim(context, engine, table)
            return self._tables[table][1](engine, days) if future is None else future.result()
        except BaseException as error:
            if self._run is not None and not isinstance(error, Exception):
                self._run.close(0)
            raise

    def _claim(self, context: dg.AssetExecutionContext, engine: EnginePort, table: str) -> "Future[Advanced] | None":
        """A table's work, if it has begun; the first call of a run begins it."""
        selected = self._selected_tables(context)
        if context.retry_number > 0 or len(selected) < 2:
            return None
        if self._run is None or self._run.id != context.run.run_id:
            if self._run is not None:
                self._run.close(GRACE_S)
            self._run = _Run(context.run.run_id, {name: self._tables[name] for name in selected}, engine, run_days(context.run.tags))
        return self._run.claim(table)

    def end(self, run: str | None) -> None:
        """End the remaining work of a run whose steps have ended: the work of tables whose steps were skipped or interrupted."""
        if self._run is not None and self._run.id == run:
            self._run.close(GRACE_S)
            self._run = None

    def _selected_tables(self, context: dg.AssetExecutionContext) -> list[str]:
        """The run's tables; none if its steps run in several processes, or are configured, for example to rebuild."""
        run, job = context.run, context.job_def
        ops: Any = run.run_config.get("ops", {})
        if job.executor_def.name not in IN_PROCESS or any(op.get("config") for op in ops.values()):
            return []
        steps = run.step_keys_to_execute
        return [node.name for node in job.nodes if node.name in self._tables and (steps is None or node.name in steps)]


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

    def claim(self, table: str) -> "Future[Advanced] | None":
        """A table's work, for its step to wait for; None if the step must do it, since it has not begun or was ended."""
        with self._lock:
            self._left.discard(table)
            work = self._work.get(table)
        if work is not None and self._stopped.is_set() and (work.cancelled() or work.exception() is not None):
            return None
        return work

    def close(self, grace_s: float) -> None:
        """End all work of the run; committed steps remain. After the grace period Spark's jobs are cancelled."""
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        timeout = grace_s
        while running := [work for work in self._work.values() if not work.done()]:
            if wait(running, timeout=timeout).not_done:
                cancel_jobs()
            timeout = _CANCEL_EVERY_S

    def _begin_ready(self) -> None:
        for name in sorted(self._left):
            table, work = self._tables[name]
            if not self._stopped.is_set() and self._finished.issuperset({*table.inputs} & {*self._tables}):
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
