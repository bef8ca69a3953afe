"""A Spark session that starts fast, for processes that make a few small computations and end."""

from pyspark.sql import SparkSession

from platform_defs.settings import Settings
from platform_defs.setup.jars import jar_paths
from platform_defs.spark.session import JAVA_OPTIONS, LOGGING, session

UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""The JVM does not verify the bytecode of JARs, which are pinned. So printing Spark's version takes 8 % less CPU time."""
LARGE_CODE_CACHE = "-XX:ReservedCodeCacheSize=1g"
"""A large code cache. Java looks for unused code each time that a small part of the cache was filled: with the default size, that takes 6 %
of the CPU time of a JVM that compiles little, and 1.3 % of that of the JVM that tests share."""
QUICK_JVM = (
    f"-Dlog4j2.configurationFile={LOGGING.as_uri()} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xlog:disable {UNVERIFIED} "
    f"{LARGE_CODE_CACHE}"
)
"""Options of a JVM that compiles little, with the product's logging."""
INTERPRETED = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Spark's options for interpreted plans: compiling a plan for ten rows takes longer than running it."""
QUICK_CONNECTIONS = {"spark": {JAVA_OPTIONS: QUICK_JVM, **INTERPRETED}}
"""The connections with which a process that uses the product's session starts fast, to make a few small computations."""


def quick_session(java: str | None = None, **more: str) -> SparkSession:
    """The session of this process: one core, interpreted plans, and a JVM that compiles little.

    Args:
        java: the JVM's option for a class archive of all JARs; by default the option for the archive of `make setup`, which has only
            Spark's JARs.
        more: further Spark configuration, by its dotted names.
    """
    quick = {
        JAVA_OPTIONS: QUICK_JVM if java is None else f"{QUICK_JVM} {java}",
        "spark.default.parallelism": "1",
        "spark.sql.leafNodeDefaultParallelism": "2",  # as in the session of the tests
        **INTERPRETED,
    }
    if java is not None:  # a class archive can contain only classes from the class path
        quick |= {"spark.driver.extraClassPath": ":".join(jar_paths()), "spark.jars": ""}
    return session(Settings(spark_master="local[1]", driver_memory="1g", shuffle_partitions=1), **quick | more)
