"""Fixtures of the tests of sources that read topics."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.kafka import Kafka
from tests.support.topics import Lakes


@pytest.fixture
def lakes(spark: SparkSession, tmp_path: Path, kafka: Kafka) -> Lakes:
    return Lakes(spark, tmp_path, kafka.address)
