"""The join as a Spark user would write it: a batch query over both tables' Parquet files, into Delta or the no-op sink."""

from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from benchmarks import tidemark
from benchmarks.contenders import Job


def run(job: Job) -> dict[str, Any]:
    spark = tidemark.spark_session(job)
    write = _into_delta if job.options["sink"] == "delta" else _into_noop
    seconds, found = write(spark, job)
    spark.stop()
    return {"seconds": seconds, "found": found}


def _into_delta(spark: SparkSession, job: Job) -> tuple[float, int]:
    target = str(job.scratch / "pairs")
    seconds = tidemark.seconds_of(lambda: _joined(spark, job).write.format("delta").save(target))
    return seconds, spark.read.format("delta").load(target).count()


def _into_noop(spark: SparkSession, job: Job) -> tuple[float, int]:
    observation, count = Observation("joined"), F.count(F.lit(1)).alias("pairs")
    seconds = tidemark.seconds_of(lambda: _joined(spark, job).observe(observation, count).write.format("noop").mode("append").save())
    return seconds, observation.get["pairs"]


def _joined(spark: SparkSession, job: Job) -> DataFrame:
    """Each pair of an order and a payment of it whose time is in the interval."""
    orders = spark.read.parquet(str(job.data / "orders")).withColumn("ordered_at", F.timestamp_millis("ts")).drop("ts").alias("o")
    payments = spark.read.parquet(str(job.data / "payments")).withColumn("paid_at", F.timestamp_millis("ts")).drop("ts").alias("p")
    latest = F.col("ordered_at") + F.make_dt_interval(secs=F.lit(job.within_ms / 1_000))
    is_within = (F.col("paid_at") >= F.col("ordered_at")) & (F.col("paid_at") <= latest)
    columns = ["o.order_id", "customer_id", "payment_id", "ordered_at", "paid_at"]
    amounts = F.col("o.amount").alias("order_amount"), F.col("p.amount").alias("payment_amount")
    return orders.join(payments, (F.col("o.order_id") == F.col("p.order_id")) & is_within).select(*columns, *amounts)
