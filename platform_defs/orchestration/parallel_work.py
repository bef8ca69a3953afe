"""Does the work of a Dagster run's tables and checks in parallel, while Dagster executes the run's steps one after the other."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from threading import Lock
from typing import Any

from assets.factories.work import Advanced, RunDetails, StepContext, Work
from assets.ports import EnginePort
from platform_defs.engine.lake.interrupts import Stop, cancel_jobs, waiting_until
from platform_defs.engine.operations.in_parallel import THREADS

IN_PROCESS = ("in_process", "execute_in_process_executor")
"""The executors that run all steps of a run in one process."""
GRACE_S = 5.0
"""At the end of a run, how long its remaining work may take to end before Spark's jobs are cancelled, in seconds."""
_CANCEL_EVERY_S = 1.0


class ParallelWork:
    """Does the work of up to four steps at once: those of tables, of suites, and of the checks of leaderboards.

    When the first of these steps of a run begins, the work of all of them begins too, and each step waits for its own work.
    Work begins when the work of its inputs has succeeded and their conservation law holds; Dagster's blocking checks make the
    step of a table wait for the same. A step does its work itself if the work has not begun, or if Dagster retries the step.
    """

    def __init__(self) -> None:
        self._steps: dict[str, tuple[Sequence[str], Work]] = {}
        self._run: _Run | None = None

    def add(self, step: str, inputs: Sequence[str], work: Work) -> None:
        """Register the work of a step, and the steps whose work it reads. If several can begin, the one that was added first does."""
        self._steps[step] = inputs, work

    def do(self, context: StepContext, engine: EnginePort, step: str) -> Any:
        """Wait for a step's work, or do the work if it has not begun. An interrupt first ends all work of the run, and is then raised."""
        try:
            future = self._claim(context, engine, step)
            return self._steps[step][1](engine, RunDetails.of(context)) if future is None else future.result()
        except BaseException as error:
            if self._run is not None and not isinstance(error, Exception):
                self._run.close(0)
            raise

    def _claim(self, context: StepContext, engine: EnginePort, step: str) -> "Future[Any] | None":
        """A step's work, if it has begun; the first call of a run begins it."""
        selected = self._selected_steps(context)
        if context.retry_number > 0 or len(selected) < 2:
            return None
        if self._run is None or self._run.id != context.run.run_id:
            if self._run is not None:
                self._run.close(GRACE_S)
            self._run = _Run(context.run.run_id, {name: self._steps[name] for name in selected}, engine, RunDetails.of(context))
        return self._run.claim(step)

    def end(self, run: str | None) -> None:
        """End the remaining work of a run whose steps have ended: the work of steps that were skipped or interrupted."""
        if self._run is not None and self._run.id == run:
            self._run.close(GRACE_S)
            self._run = None

    def _selected_steps(self, context: StepContext) -> list[str]:
        """The run's steps that have work; none if they run in several processes, or are configured, for example to rebuild."""
        run, job = context.run, context.job_def
        ops: Any = run.run_config.get("ops", {})
        if job.executor_def.name not in IN_PROCESS or any(op.get("config") for op in ops.values()):
            return []
        steps = run.step_keys_to_execute
        nodes = {node.name for node in job.nodes}
        return [name for name in self._steps if name in nodes and (steps is None or name in steps)]


class _Run:
    """The work of one run.

    Args:
        id: the run.
        steps: by name of its steps, their inputs and their work.
        engine: the engine.
        details: the details of the run.
    """

    def __init__(self, id: str, steps: Mapping[str, tuple[Sequence[str], Work]], engine: EnginePort, details: RunDetails) -> None:
        self.id, self._steps, self._engine, self._details = id, steps, engine, details
        self._lock, self._stopped, self._pool = Lock(), Stop(), ThreadPoolExecutor(THREADS)
        self._work: dict[str, Future[Any]] = {}
        self._finished: set[str] = set()
        self._not_begun = {*steps}
        with self._lock:
            self._begin_ready()

    def claim(self, step: str) -> "Future[Any] | None":
        """A step's work, for the step to wait for; None if the step must do the work itself: it has not begun, or it was stopped."""
        with self._lock:
            self._not_begun.discard(step)
            work = self._work.get(step)
        if work is not None and self._stopped.is_set() and (work.cancelled() or work.exception() is not None):
            return None
        return work

    def close(self, grace_s: float) -> None:
        """End all work of the run; committed steps remain. After the grace period Spark's jobs are cancelled."""
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        timeout = grace_s
        while running := self._running_work():
            if wait(running, timeout=timeout).not_done:
                self._stopped.cancel()
                cancel_jobs()
            timeout = _CANCEL_EVERY_S

    def _running_work(self) -> list[Future[Any]]:
        with self._lock:  # a worker may add work
            return [work for work in self._work.values() if not work.done()]

    def _begin_ready(self) -> None:
        for name in [name for name in self._steps if name in self._not_begun]:
            inputs, work = self._steps[name]
            if not self._stopped.is_set() and self._finished.issuperset({*inputs} & {*self._steps}):
                self._not_begun.discard(name)
                self._work[name] = self._pool.submit(self._run_work, name, work)
        if not self._not_begun:
            self._pool.shutdown(wait=False)

    def _run_work(self, name: str, work: Work) -> Any:
        with waiting_until(self._stopped):
            result = work(self._engine, self._details)
        if not isinstance(result, Advanced) or result.holds:
            with self._lock, suppress(RuntimeError):  # the pool was closed
                self._finished.add(name)
                self._begin_ready()
        return result
