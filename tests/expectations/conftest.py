"""A session for tests that compare or count many small queries."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

ONE_TASK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture
def one_task(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, in which a query is one Spark job; its plans are interpreted and a stage after a shuffle has one task."""
    before = {key: spark.conf.get(key) or "" for key in ONE_TASK}
    for key, value in ONE_TASK.items():
        spark.conf.set(key, value)
    yield spark
    for key, value in before.items():
        spark.conf.set(key, value)
