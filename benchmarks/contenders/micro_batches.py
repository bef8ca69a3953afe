"""Tidemark, live: micro-batches, each ingested exactly once and advanced; then a drain, the law, and empty steps."""

from collections.abc import Callable
from typing import Any

from benchmarks import shop
from benchmarks.contenders import Job
from benchmarks.data import micro_batches
from platform_defs.engine import Engine

EMPTY_STEPS = 7


def run(job: Job) -> dict[str, Any]:
    spark = shop.spark_session(job)
    engine = shop.make_engine(job, spark, max_step=max(5_000_000, 2 * job.rows))
    watch, files, every = shop.Stopwatch(), [], job.options.get("count_files_every")

    def advance() -> None:
        with watch.time("advance"):
            engine.advance(shop.ASSET)
        if job.options.get("checks"):
            with watch.time("checks"):
                shop.check_batch(engine)
        if every and len(watch.laps) % every == 0:
            files.append({"step": len(watch.laps), **shop.files_by_table(engine)})

    wall_s = shop.seconds_of(lambda: (_through_spark if job.options.get("stream") else _straight)(job, engine, watch, advance))
    quiet_s = _empty_steps(engine) if not job.options.get("stream") else None
    end_s = shop.seconds_of(lambda: _drain(engine))
    law_s = 0.0 if job.options.get("without") == "law" else shop.seconds_of(lambda: shop.hold_to_law(engine))
    found = shop.pairs(engine)
    empty_s = _empty_steps(engine)
    spark.stop()
    ingest_s = watch.total("ingest") or round(wall_s - watch.total(), 3)
    seconds = round(wall_s + end_s + law_s, 3)
    return {
        "seconds": seconds,
        "pairs": found,
        "ingest_s": ingest_s,
        "advance_s": watch.total("advance"),
        "checks_s": watch.total("checks"),
        "end_s": end_s,
        "law_s": law_s,
        "empty_s": empty_s,
        "quiet_s": quiet_s,
        "steps": watch.laps,
        "files": files,
    }


def _straight(job: Job, engine: Engine, watch: shop.Stopwatch, advance: Callable[[], None]) -> None:
    """Each micro-batch handed to the engine."""
    for files in micro_batches(job.data, job.batches, job.first):
        watch.lap()
        with watch.time("ingest"):
            shop.let_in(engine, files)
        advance()


def _through_spark(job: Job, engine: Engine, watch: shop.Stopwatch, advance: Callable[[], None]) -> None:
    """Each micro-batch found by Structured Streaming, one file of each table at a time."""

    def entered(_: Any) -> None:
        watch.lap()
        advance()

    made = engine.stream.run(on_entry=entered)
    if len(made) != job.batches:
        raise shop.WrongAnswer(f"{job.batches} micro-batches became {len(made)} ledger entries")


def _drain(engine: Engine) -> None:
    engine.drain()
    engine.advance(shop.ASSET)


def _empty_steps(engine: Engine) -> float:
    """The median of steps that no row came for: before the drain the join's reach is full of rows, after it there is none."""
    return round(shop.middle([shop.seconds_of(lambda: shop.pass_time(engine)) for _ in range(EMPTY_STEPS)]), 3)
