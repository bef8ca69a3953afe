"""A Spark session that starts fast, for processes that make a few small computations and end."""

from pyspark.sql import SparkSession

from platform_defs.settings import Settings
from platform_defs.setup.jars import jar_paths
from platform_defs.spark.session import LOGGING, session


def quick_session(java: str = "", **more: str) -> SparkSession:
    """The session of this process: one core, interpreted plans, and a JVM that compiles little.

    Args:
        java: further options of the JVM.
        more: further Spark configuration, by its dotted names.
    """
    flags = f"-Dlog4j2.configurationFile={LOGGING.as_uri()} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xlog:disable {java}"
    quick = {
        "spark.driver.extraJavaOptions": flags,
        "spark.driver.extraClassPath": ":".join(jar_paths()),  # only what is on the class path can be in a class data archive
        "spark.jars": "",
        "spark.default.parallelism": "1",
        "spark.sql.leafNodeDefaultParallelism": "2",  # as in the session of the tests
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    return session(Settings(spark_master="local[1]", driver_memory="1g", shuffle_partitions=1), **quick | more)
