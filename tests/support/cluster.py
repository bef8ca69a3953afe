"""A standalone Spark cluster, and a Spark Connect server, on this machine."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from benchmarks.live.cluster import CLASS_PATH, SMALL_JVM, Cluster, cluster, hides_folders, kill_with_children
from platform_defs.engine.lake.arrow_rows import java_class
from platform_defs.setup.java import find_java
from platform_defs.setup.ports import HOST, free_ports, is_open
from platform_defs.spark.class_archive import archive_option
from tests.support.quick_session import INTERPRETED, UNVERIFIED

__all__ = ["SMALL_EXECUTORS", "Cluster", "cluster", "connect_server", "connect_server_of", "hides_folders", "kill_with_children"]

_WAIT_S = 60
_MODULES = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch", "java.lang", "java.util", "java.lang.invoke")
)
"""The packages that Arrow and Spark open by reflection."""

SMALL_EXECUTORS = {
    "spark.driver.host": HOST,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {UNVERIFIED}{archive_option(find_java())}",
}
"""Options of Spark for a driver on this machine, and for executors with little memory."""


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server on this machine while the block runs; yields its address."""
    folder.mkdir(parents=True)
    [port] = free_ports(1)
    java = find_java()
    options = {"master": "local[2]", "connect.grpc.binding.port": str(port), "sql.shuffle.partitions": "1", "ui.enabled": "false"}
    all_options = {f"spark.{name}": value for name, value in options.items()} | INTERPRETED
    confs = [part for name, value in all_options.items() for part in ("--conf", f"{name}={value}")]
    server = ["org.apache.spark.deploy.SparkSubmit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *confs]
    environment = {**os.environ, "SPARK_LOCAL_IP": HOST, "SPARK_LOCAL_DIRS": str(folder / "local"), "SPARK_SCALA_VERSION": "2.13"}
    jvm = ["-Xmx700m", *SMALL_JVM[2:], *UNVERIFIED.split(), *_MODULES, *archive_option(java).split(), "-cp", CLASS_PATH]
    command = [f"{java}/bin/java", *jvm, *server, "spark-internal"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
    try:
        deadline = time.monotonic() + _WAIT_S
        while process.poll() is None and not is_open(port):
            assert time.monotonic() < deadline, "the server did not start in time"
            time.sleep(0.05)
        assert process.poll() is None, (folder / "server.log").read_text()
        yield f"sc://{HOST}:{port}"
    finally:
        kill_with_children(process.pid)
        process.wait(_WAIT_S)


def connect_server_of(spark: SparkSession) -> str:
    """The address of a Spark Connect server in the JVM of a session. Spark starts only one in a JVM, so it runs as long as the JVM."""
    conf = java_class(spark, "org.apache.spark.SparkEnv").get().conf()
    for name, value in {"address": HOST, "port": "0"}.items():
        conf.set(f"spark.connect.grpc.binding.{name}", value)
    service = getattr(java_class(spark, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    service.start(cast(Any, spark.sparkContext)._jsc.sc())  # nothing happens if it runs
    return f"sc://{HOST}:{service.localPort()}"
