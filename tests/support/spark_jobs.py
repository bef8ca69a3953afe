"""Counts the Spark jobs of a test; other processes may run jobs in the same JVM."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from pyspark.sql import SparkSession


@contextmanager
def jobs_of(spark: SparkSession) -> Iterator[list[int]]:
    """The ids of the jobs that this thread starts in the block; the list is filled at its end."""
    group, found = uuid4().hex, list[int]()
    spark.sparkContext.setJobGroup(group, "")
    try:
        yield found
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # pyright: ignore[reportArgumentType]
    found += spark.sparkContext.statusTracker().getJobIdsForGroup(group)
