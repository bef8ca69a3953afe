"""Tidemark, catch-up: the log contains all rows, and one step finalizes them into a Delta table."""

from typing import Any

from benchmarks import shop
from benchmarks.contenders import Job


def run(job: Job) -> dict[str, Any]:
    spark = shop.spark_session(job)
    engine = shop.make_engine(job, spark, max_step=2 * job.rows)
    ingest_s = shop.seconds_of(lambda: shop.ingest(engine, shop.whole_files(job)))
    engine.drain()
    steps: list[Any] = []
    seconds = shop.seconds_of(lambda: steps.extend(engine.advance(shop.only(engine))))
    if len(steps) != 1:
        raise shop.WrongAnswer(f"a catch-up must take one step, but took {len(steps)}")
    found = shop.outcome(engine, job)
    spark.stop()
    return {"seconds": seconds, **found, "ingest_s": ingest_s}
