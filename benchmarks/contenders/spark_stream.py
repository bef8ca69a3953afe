"""Spark's stream-stream join: both tables as streams of files, with watermarks of 5 s, into the no-op sink."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import payments, tidemark
from benchmarks.contenders import Job
from benchmarks.data import TABLES, batches_folder
from benchmarks.workload import WATERMARK_BOUND

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SIDES = {"orders": "o", "payments": "p"}
_TIME_COLUMNS = {"orders": "ordered_at", "payments": "paid_at"}


def run(job: Job) -> dict[str, Any]:
    provider = {"spark.sql.streaming.stateStore.providerClass": ROCKSDB} if job.options.get("state") == "rocksdb" else {}
    spark = tidemark.spark_session(job, **provider)
    orders, paid = (_stream(spark, job, table) for table in TABLES)
    latest = F.col("ordered_at") + F.make_dt_interval(secs=F.lit(job.within_ms / 1_000))
    is_within = (F.col("paid_at") >= F.col("ordered_at")) & (F.col("paid_at") <= latest)
    pairs = orders.join(paid, (F.col("o.order_id") == F.col("p.order_id")) & is_within).observe("joined", F.count(F.lit(1)).alias("pairs"))
    query = pairs.writeStream.format("noop").option("checkpointLocation", str(job.scratch / "checkpoint")).trigger(availableNow=True)
    reports: list[dict[str, Any]] = []

    def run_query() -> None:
        running = query.start()
        running.awaitTermination()
        reports.extend(running.recentProgress)

    seconds = tidemark.seconds_of(run_query)
    spark.stop()
    rows_read = [sum(source["numInputRows"] for source in report["sources"]) for report in reports]
    return {"seconds": seconds, "found": sum(map(_pairs, reports)), "batches": sum(rows > 0 for rows in rows_read)}


def _stream(spark: SparkSession, job: Job, table: str) -> DataFrame:
    """A table's micro-batches as a stream, one file at a time."""
    time_column = _TIME_COLUMNS[table]
    reader = spark.readStream.schema(payments.SCHEMAS[table]).option("maxFilesPerTrigger", 1)
    rows = reader.parquet(str(batches_folder(job.data, job.batches, job.first) / table))
    timed = rows.withColumn(time_column, F.timestamp_millis("ts")).drop("ts")
    return timed.withWatermark(time_column, WATERMARK_BOUND).alias(_SIDES[table])


def _pairs(progress: Any) -> int:
    metrics = progress["observedMetrics"].get("joined")
    return int(metrics["pairs"]) if metrics else 0
