"""Tidemark, backlog: ingest the input in several batches, then advance in steps of bounded size, with a heap smaller than the input."""

from typing import Any

from benchmarks import shop
from benchmarks.contenders import Job
from benchmarks.data import micro_batches


def run(job: Job) -> dict[str, Any]:
    spark = shop.spark_session(job)
    engine = shop.make_engine(job, spark, max_step=job.options["max_step"])
    ingest_s = shop.seconds_of(lambda: [shop.ingest(engine, files) for files in micro_batches(job.data, job.batches)])
    engine.drain()
    steps: list[Any] = []
    seconds = shop.seconds_of(lambda: steps.extend(engine.advance(shop.only(engine))))
    found = shop.outcome(engine, job)
    spark.stop()
    return {"seconds": seconds, **found, "ingest_s": ingest_s, "steps": len(steps)}
