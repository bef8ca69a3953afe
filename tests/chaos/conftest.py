"""One undisturbed run, which every disturbed one of the tests is compared with."""

import pytest
from pyspark.sql import SparkSession

from platform_defs.engine import ledger
from tests.chaos.content import Content
from tests.chaos.inprocess import undisturbed as run
from tests.chaos.plan import Passages


@pytest.fixture(scope="session")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Content, Passages]:
    """What the lake holds at the end, and the points passed on the way there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "MANY_FILES", 5)
        return run(spark, tmp_path_factory.mktemp("undisturbed"))
