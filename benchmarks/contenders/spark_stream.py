"""Spark's stream-stream join: both tables as streams of files, with watermarks of 5 s, into the no-op sink."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import payments, tidemark
from benchmarks.contenders import Job
from benchmarks.data import TABLES, batches_folder

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def run(job: Job) -> dict[str, Any]:
    provider = {"spark.sql.streaming.stateStore.providerClass": ROCKSDB} if job.options.get("state") == "rocksdb" else {}
    spark = tidemark.spark_session(job, **provider)
    orders, paid = (_stream(spark, job, table) for table in TABLES)
    latest = F.col("ordered_at") + F.make_dt_interval(secs=F.lit(job.within_ms / 1_000))
    is_within = (F.col("paid_at") >= F.col("ordered_at")) & (F.col("paid_at") <= latest)
    pairs = orders.join(paid, (F.col("o.order_id") == F.col("p.order_id")) & is_within).observe("joined", F.count(F.lit(1)).alias("pairs"))
    query = pairs.writeStream.format("noop").option("checkpointLocation", str(job.scratch / "checkpoint")).trigger(availableNow=True)
    batches: list[dict[str, Any]] = []

    def run_query() -> None:
        running = query.start()
        running.awaitTermination()
        batches.extend(running.recentProgress)

    seconds = tidemark.seconds_of(run_query)
    spark.stop()
    read = [sum(source["numInputRows"] for source in progress["sources"]) for progress in batches]
    return {"seconds": seconds, "found": sum(_pairs(p) for p in batches), "batches": sum(1 for rows in read if rows)}


def _stream(spark: SparkSession, job: Job, table: str) -> DataFrame:
    """A table's micro-batches as a stream, one file at a time."""
    side, time_column = {"orders": ("o", "ordered_at"), "payments": ("p", "paid_at")}[table]
    reader = spark.readStream.schema(payments.SCHEMAS[table]).option("maxFilesPerTrigger", 1)
    files = reader.parquet(str(batches_folder(job.data, job.batches, job.first) / table))
    return files.withColumn(time_column, F.timestamp_millis("ts")).drop("ts").withWatermark(time_column, "5 seconds").alias(side)


def _pairs(progress: Any) -> int:
    metrics = progress["observedMetrics"].get("joined")
    return int(metrics["pairs"]) if metrics else 0
