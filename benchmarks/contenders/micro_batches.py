"""Tidemark, micro-batches: each is ingested exactly once and advanced; then a drain and empty steps.

The conservation law is checked after each step of a table whose results name their rows: of the join, but not of hot items and top bids.
With the option `checks` the expectations of the workload are checked too, as in Dagster: new rows of event logs, changed days of tables.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks import tidemark
from benchmarks.contenders import Job
from benchmarks.data import micro_batches
from platform_defs.engine import Engine

EMPTY_STEPS = 7
PARTS = ("ingest", "advance", "law", "checks")


@dataclass
class LiveRun:
    """One run.

    Args:
        job: the job.
        engine: its engine.
        watch: the times of the steps.
        finalized_rows: the number of rows that the conservation law has counted as finalized.
        checked: by source, the batch up to which its rows were checked.
    """

    job: Job
    engine: Engine
    watch: tidemark.Stopwatch = field(default_factory=tidemark.Stopwatch)
    finalized_rows: int = 0
    checked: dict[str, int] = field(default_factory=dict)

    @property
    def checks_conservation(self) -> bool:
        """Whether the conservation law is checked after each step, which needs results that name their rows."""
        return tidemark.accounts_for_steps(self.engine)

    def advance(self) -> None:
        """Advance the table, and check the law for the rows that its steps have finalized, if single steps can be accounted for."""
        with self.watch.time("advance"):
            steps = self.engine.advance(tidemark.derived_table(self.engine))
        if self.checks_conservation:
            with self.watch.time("law"):
                self.finalized_rows += tidemark.check_conservation(self.engine, steps)

    def ingest_files(self, after_batch: Callable[[], None]) -> None:
        """Ingest each micro-batch, advance the table and make its checks; then call `after_batch`."""
        for files in micro_batches(self.job.data, self.job.batches, self.job.first):
            self.watch.lap()
            with self.watch.time("ingest"):
                tidemark.ingest(self.engine, files)
            days = self.engine.pending.all_days()
            self.advance()
            if self.job.options.get("checks"):
                with self.watch.time("checks"):
                    self.checked |= tidemark.check_expectations(self.engine, self.job, days, self.checked)
            after_batch()

    def drain(self) -> None:
        """Drain the input, and finalize every row; if finalized rows were counted, they must be as many as the ingested ones."""
        self.watch.lap()
        self.engine.drain()
        self.advance()
        if self.checks_conservation and self.finalized_rows != tidemark.ingested_rows(self.engine):
            raise tidemark.WrongAnswer(
                f"{tidemark.ingested_rows(self.engine)} rows were ingested, but {self.finalized_rows} were finalized"
            )

    def empty_steps(self) -> float:
        """The median time of steps without rows: a raised watermark, an advance and, if it is made, the conservation check."""

        def step() -> None:
            self.watch.lap()
            tidemark.raise_watermarks(self.engine)
            self.advance()

        return round(median([tidemark.seconds_of(step) for _ in range(EMPTY_STEPS)]), 3)


def run(job: Job) -> dict[str, Any]:
    spark = tidemark.spark_session(job)
    live_run = LiveRun(job, tidemark.make_engine(job, spark, max_step=max(5_000_000, 2 * job.rows)))
    count_every = job.options.get("count_files_every")
    files: list[dict[str, int]] = []

    def count_files() -> None:
        if count_every and len(live_run.watch.laps) % count_every == 0:
            files.append({"step": len(live_run.watch.laps), **tidemark.files_by_table(live_run.engine)})

    feed_s = tidemark.seconds_of(lambda: live_run.ingest_files(count_files))
    laps = [*live_run.watch.laps]
    end_s = tidemark.seconds_of(live_run.drain)
    costs = _costs(laps, feed_s, end_s) | {"empty_s": live_run.empty_steps(), "files": files}
    summary = tidemark.outcome(live_run.engine, job)
    spark.stop()
    return costs | summary


def _costs(laps: list[dict[str, float]], feed_s: float, end_s: float) -> dict[str, Any]:
    """The costs of the micro-batches."""
    parts = {f"{part}_s": round(sum(lap.get(part, 0.0) for lap in laps), 3) for part in PARTS}
    return {"seconds": round(feed_s + end_s, 3), **parts, "end_s": end_s, "steps": laps}
