"""Tidemark, catch-up: the event logs contain all rows, and one step writes all results to a Delta table. `seconds` times that step."""

from typing import Any

from benchmarks import tidemark
from benchmarks.contenders import Job


def run(job: Job) -> dict[str, Any]:
    spark = tidemark.spark_session(job)
    engine = tidemark.make_engine(job, spark, max_step=2 * job.rows)
    ingest_s = tidemark.seconds_of(lambda: tidemark.ingest(engine, tidemark.complete_files(job)))
    engine.drain()
    steps: list[Any] = []
    seconds = tidemark.seconds_of(lambda: steps.extend(engine.advance(tidemark.derived_table(engine))))
    if len(steps) != 1:
        raise tidemark.WrongAnswer(f"a catch-up must take one step, but took {len(steps)}")
    summary = tidemark.outcome(engine, job)
    spark.stop()
    return {"seconds": seconds, **summary, "ingest_s": ingest_s}
