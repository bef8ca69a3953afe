"""Tidemark, backlog: ingest the input in several batches, then advance in steps of bounded size, with a heap smaller than the input."""

from typing import Any

from benchmarks import tidemark
from benchmarks.contenders import Job
from benchmarks.data import micro_batches


def run(job: Job) -> dict[str, Any]:
    spark = tidemark.spark_session(job)
    engine = tidemark.make_engine(job, spark, max_step=job.options["max_step"])
    ingest_s = tidemark.seconds_of(lambda: [tidemark.ingest(engine, files) for files in micro_batches(job.data, job.batches, job.first)])
    engine.drain()
    steps: list[Any] = []
    seconds = tidemark.seconds_of(lambda: steps.extend(engine.advance(tidemark.derived_table(engine))))
    summary = tidemark.outcome(engine, job)
    spark.stop()
    return {"seconds": seconds, **summary, "ingest_s": ingest_s, "steps": len(steps)}
