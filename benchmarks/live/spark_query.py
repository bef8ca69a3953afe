"""The comparison: Structured Streaming queries over the same topic, with the operator's streaming form and Spark's own state.

`python -m benchmarks.live.spark_query '{...}'` runs two queries, one into a Delta table and one into a topic, until it is ended.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.live.pipeline import BOUND_MS, EVENTS, WINDOWS, measurements, windows
from benchmarks.live.processes import StreamProcess
from benchmarks.live.world import World
from platform_defs.settings import Settings
from platform_defs.spark.session import session

_STARTED = "the queries run"


def queries(spark: SparkSession, address: str, root: Path, every: str) -> None:
    """Start both queries."""
    rows = _rows(spark, address)
    value = F.to_json(F.struct(*[F.col(c) for c in rows.columns]), {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"})
    records = rows.select(F.col("k").alias("key"), value.alias("value"))
    to_topic = records.writeStream.format("kafka").option("kafka.bootstrap.servers", address).option("topic", WINDOWS)
    for name, writer, path in (("table", rows.writeStream.format("delta"), str(root / "lake" / WINDOWS)), ("topic", to_topic, None)):
        own = writer.option("checkpointLocation", str(root / "checkpoints" / name)).outputMode("append")
        own.trigger(processingTime=every).start(path)


def _rows(spark: SparkSession, address: str) -> DataFrame:
    """The results of the operator over the topic."""
    topic = {"kafka.bootstrap.servers": address, "subscribe": EVENTS, "startingOffsets": "earliest"}
    value = F.from_json(F.col("value").cast("string"), measurements.schema).alias("row")
    rows = spark.readStream.format("kafka").options(**topic).load().select(value).select("row.*")
    timed = rows.withColumnRenamed("at", windows.operator.time).withWatermark(windows.operator.time, f"{BOUND_MS} milliseconds")
    return windows.operator(timed)  # pyright: ignore[reportCallIssue]


@contextmanager
def spark_streaming(world: World, every: str, heap: str, cores: int) -> Iterator[StreamProcess]:
    """The queries in a process of their own, until the block ends."""
    argument = {"settings": world.settings(heap, cores), "address": world.broker.address, "root": str(world.root), "every": every}
    command = [sys.executable, "-m", "benchmarks.live.spark_query", json.dumps(argument)]
    made = StreamProcess(command, world.root / "spark.log").start()
    try:
        made.wait_started(lambda: _STARTED in made.lines)
        yield made
    finally:
        made.end()


def main(settings: Mapping[str, str], address: str, root: str, every: str) -> None:
    """Run the queries until one of them ends."""
    spark = session(Settings(**settings))  # pyright: ignore[reportArgumentType]
    queries(spark, address, Path(root), every)
    print(_STARTED, flush=True)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
