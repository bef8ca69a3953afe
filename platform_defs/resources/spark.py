"""The Spark session as a Dagster resource."""

from typing import Any

from dagster_pyspark import LazyPySparkResource

from platform_defs.settings import settings
from platform_defs.spark.session import session


class SparkResource(LazyPySparkResource):
    """dagster-pyspark's lazy resource with the platform's session: one for each process, created when it is first needed."""

    spark_config: dict[str, Any] = {}

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = session(settings(), **self.spark_config)
