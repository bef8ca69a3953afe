"""What the tests of chaos share."""

import pytest
from pyspark.sql import SparkSession

from platform_defs.engine import ledger
from tests.chaos.content import Content
from tests.chaos.inprocess import undisturbed as live
from tests.chaos.plan import Passages


@pytest.fixture(scope="package")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Content, Passages]:
    """What a short life leads to when nothing dies, and the points that it passes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "MANY_FILES", 5)
        return live(spark, tmp_path_factory.mktemp("undisturbed"))
