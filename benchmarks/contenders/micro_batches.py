"""Tidemark, micro-batches: each is ingested exactly once, advanced, and checked by the conservation law; then a drain and empty steps."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks import shop
from benchmarks.contenders import Job
from benchmarks.data import micro_batches
from platform_defs.engine import Engine

EMPTY_STEPS = 7
PARTS = ("ingest", "advance", "law", "checks")


@dataclass
class Live:
    """One run: its times, and the number of rows that the conservation law has counted as finalized."""

    job: Job
    engine: Engine
    watch: shop.Stopwatch = field(default_factory=shop.Stopwatch)
    settled: int = 0

    @property
    def lawful(self) -> bool:
        """Whether the conservation law is checked after each step."""
        return self.job.options.get("without") != "law" and shop.has_a_law(self.engine)

    def advance(self) -> None:
        """Advance the table, and check the conservation law for the finalized rows."""
        with self.watch.time("advance"):
            steps = self.engine.advance(shop.only(self.engine))
        if self.lawful:
            with self.watch.time("law"):
                self.settled += shop.hold_to_law(self.engine, steps)

    def entered(self) -> None:
        """Advance the table and run the expectation suites after a micro-batch."""
        self.advance()
        if self.job.options.get("checks"):
            with self.watch.time("checks"):
                shop.check_batch(self.engine, self.job)

    def straight(self, after: Callable[[], None]) -> None:
        """Pass the files of each micro-batch to the engine."""
        for files in micro_batches(self.job.data, self.job.batches, self.job.first):
            self.watch.lap()
            with self.watch.time("ingest"):
                shop.ingest(self.engine, files)
            self.entered()
            after()

    def through_folders(self) -> None:
        """Let the engine ingest the landing folders, one file per table at a time."""

        def entered(_: Any) -> None:
            self.watch.lap()
            self.entered()

        made = self.engine.ingestion.stream.run(on_entry=entered)
        if len(made) != self.job.batches:
            raise shop.WrongAnswer(f"{self.job.batches} micro-batches became {len(made)} batches in the ledger")

    def drain(self) -> None:
        """Drain the input, finalize every row, and compare the number of finalized rows with that of ingested rows."""
        self.watch.lap()
        self.engine.drain()
        self.advance()
        if self.lawful and self.settled != shop.ingested_so_far(self.engine):
            raise shop.WrongAnswer(f"{shop.ingested_so_far(self.engine)} rows were ingested, but {self.settled} were finalized")

    def empty_steps(self) -> float:
        """The median time of steps without rows: a raised watermark, an advance and the conservation check."""

        def step() -> None:
            self.watch.lap()
            shop.pass_time(self.engine)
            self.advance()

        return round(shop.middle([shop.seconds_of(step) for _ in range(EMPTY_STEPS)]), 3)


def run(job: Job) -> dict[str, Any]:
    spark = shop.spark_session(job)
    live, files, every = (
        Live(job, shop.make_engine(job, spark, max_step=max(5_000_000, 2 * job.rows))),
        [],
        job.options.get("count_files_every"),
    )

    def count_files() -> None:
        if every and len(live.watch.laps) % every == 0:
            files.append({"step": len(live.watch.laps), **shop.files_by_table(live.engine)})

    feed_s = shop.seconds_of(live.through_folders if job.options.get("stream") else lambda: live.straight(count_files))
    laps = [*live.watch.laps]
    quiet_s = live.empty_steps()
    end_s = shop.seconds_of(live.drain)
    costs = _costs(laps, feed_s, end_s) | {"quiet_s": quiet_s, "empty_s": live.empty_steps(), "files": files}
    found = shop.outcome(live.engine, job)
    spark.stop()
    return costs | found


def _costs(laps: list[dict[str, float]], feed_s: float, end_s: float) -> dict[str, Any]:
    """The costs of the micro-batches. Ingest from landing folders is not timed itself: it is the time that the other parts leave."""
    parts = {f"{part}_s": round(sum(lap.get(part, 0.0) for lap in laps), 3) for part in PARTS}
    ingest_s = parts["ingest_s"] or round(feed_s - sum(parts.values()), 3)
    return {"seconds": round(feed_s + end_s, 3), **parts, "ingest_s": ingest_s, "end_s": end_s, "steps": laps}
