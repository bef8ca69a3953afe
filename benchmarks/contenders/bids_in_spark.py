"""Hot items as a Spark user would write them: a batch query into Delta, or a stream with two chained aggregations into the no-op sink."""

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from benchmarks import bids, tidemark
from benchmarks.contenders import Job
from benchmarks.contenders.spark_stream import ROCKSDB
from benchmarks.data import batches_folder
from benchmarks.workload import WATERMARK_BOUND


def run(job: Job) -> dict[str, Any]:
    state = job.options.get("state")
    spark = tidemark.spark_session(job, **({"spark.sql.streaming.stateStore.providerClass": ROCKSDB} if state == "rocksdb" else {}))
    found = _streamed(spark, job) if state else _batch(spark, job)
    spark.stop()
    return found


def _counts(rows: DataFrame, job: Job) -> DataFrame:
    window = F.window("at", f"{bids.WINDOW_MS} milliseconds", f"{bids.slide_ms(job)} milliseconds")
    return rows.groupBy(window, "auction").agg(F.count("*").alias("bids"))


def _batch(spark: SparkSession, job: Job) -> dict[str, Any]:
    target = str(job.scratch / "hot_items")
    seconds = tidemark.seconds_of(lambda: _ranks(spark, job).write.format("delta").save(target))
    return {"seconds": seconds, **bids.outcome(spark.read.format("delta").load(target))}


def _ranks(spark: SparkSession, job: Job) -> DataFrame:
    rows = spark.read.parquet(str(job.data / "bids")).withColumn("at", F.timestamp_millis("ts"))
    best = Window.partitionBy("window").orderBy(F.col("bids").desc(), "auction")
    ranked = _counts(rows, job).withColumn("rank", F.row_number().over(best)).where(F.col("rank") <= bids.TOP)
    return ranked.select(F.col("window.end").alias("window_end"), "rank", "auction", "bids")


def _streamed(spark: SparkSession, job: Job) -> dict[str, Any]:
    reader = spark.readStream.schema(bids.SCHEMA).option("maxFilesPerTrigger", 2)
    rows = reader.parquet(str(batches_folder(job.data, job.batches, job.first) / "bids")).withColumn("at", F.timestamp_millis("ts"))
    counts = _counts(rows.withWatermark("at", WATERMARK_BOUND), job)
    best = F.sort_array(F.collect_list(F.struct("bids", (-F.col("auction")).alias("key"))), asc=False)
    top = counts.groupBy("window").agg(F.slice(best, 1, bids.TOP).alias("top")).select("window", F.posexplode("top").alias("n", "item"))
    observed = top.observe("ranks", F.count(F.lit(1)).alias("found"), _checksum().alias("checksum"))
    query = observed.writeStream.format("noop").outputMode("append").option("checkpointLocation", str(job.scratch / "checkpoint"))
    batches: list[dict[str, Any]] = []

    def run_query() -> None:
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        batches.extend(progress["observedMetrics"].get("ranks") or {} for progress in running.recentProgress)

    return {"seconds": tidemark.seconds_of(run_query), "found": _sum(batches, "found"), "checksum": _sum(batches, "checksum")}


def _checksum() -> Column:
    item = F.col("item")
    return bids.checksum_of(F.unix_millis("window.end"), F.col("n") + 1, -item["key"], item["bids"])


def _sum(batches: list[dict[str, Any]], name: str) -> int:
    return sum(int(metrics[name] or 0) for metrics in batches if name in metrics)
