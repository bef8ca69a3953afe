"""The objects that the JVM keeps for Python's processes."""

from typing import Any, cast

from py4j.java_gateway import JavaObject
from py4j.protocol import GATEWAY_SERVER_OBJECT_ID
from pyspark.sql import SparkSession


def objects_of(spark: SparkSession) -> set[str]:
    """The names of the Java objects that the JVM keeps for Python's processes.

    It makes one call; iterating over the set in Python makes two for each name.
    """
    client = cast(Any, spark.sparkContext)._gateway._gateway_client
    server: Any = JavaObject(GATEWAY_SERVER_OBJECT_ID, client)
    return {*server.getGateway().getBindings().keySet().toString()[1:-1].split(", ")}
