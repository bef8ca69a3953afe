"""A standalone Spark cluster, and a Spark Connect server, on this machine."""

from typing import Any, cast

from pyspark.sql import SparkSession

from benchmarks.live.cluster import Cluster, cluster, hides_folders, kill_with_children
from platform_defs.engine.lake.arrow_rows import java_class
from platform_defs.setup.java import find_java
from platform_defs.setup.ports import HOST
from platform_defs.spark.class_archive import archive_option
from tests.support.quick_session import UNVERIFIED

__all__ = ["SMALL_EXECUTORS", "Cluster", "cluster", "connect_server", "hides_folders", "kill_with_children"]

SMALL_EXECUTORS = {
    "spark.driver.host": HOST,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {UNVERIFIED}{archive_option(find_java())}",
}
"""Options of Spark for a driver on this machine, and for executors with little memory."""


def connect_server(spark: SparkSession) -> str:
    """The address of a Spark Connect server in the JVM of a session. Spark starts only one in a JVM, so it runs as long as the JVM."""
    conf = java_class(spark, "org.apache.spark.SparkEnv").get().conf()
    for name, value in {"address": HOST, "port": "0"}.items():
        conf.set(f"spark.connect.grpc.binding.{name}", value)
    service = getattr(java_class(spark, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    service.start(cast(Any, spark.sparkContext)._jsc.sc())  # nothing happens if it runs
    return f"sc://{HOST}:{service.localPort()}"
