"""Fixtures of the tests of sources that read topics."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.kafka import Kafka
from tests.support.topics import TopicEngines


@pytest.fixture
def engines(spark: SparkSession, tmp_path: Path, kafka: Kafka) -> TopicEngines:
    return TopicEngines(spark, tmp_path, kafka.address)
