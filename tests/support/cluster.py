"""A standalone Spark cluster, and a Spark Connect server, on this machine."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.live.cluster import SMALL_JVM, SPARK, cluster, hides_folders, kill_with_children
from platform_defs.setup.java import find_java
from platform_defs.setup.ports import HOST, free_ports, is_open

__all__ = ["SMALL_EXECUTORS", "cluster", "connect_server", "hides_folders", "kill_with_children"]

_WAIT_S = 60
_MODULES = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch", "java.lang", "java.util", "java.lang.invoke")
)
"""The packages that Arrow and Spark open by reflection."""

SMALL_EXECUTORS = """
spark:
  spark.driver.host: 127.0.0.1
  spark.executor.memory: 512m
  spark.executor.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
"""The part `spark` of a file of connections, for the executors of these workers."""


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server on this machine while the block runs; yields its address."""
    folder.mkdir(parents=True)
    [port] = free_ports(1)
    java = find_java()
    options = {"master": "local[2]", "connect.grpc.binding.port": str(port), "sql.shuffle.partitions": "1", "ui.enabled": "false"}
    confs = [part for name, value in options.items() for part in ("--conf", f"spark.{name}={value}")]
    server = ["org.apache.spark.deploy.SparkSubmit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *confs]
    environment = {**os.environ, "SPARK_LOCAL_IP": HOST, "SPARK_LOCAL_DIRS": str(folder / "local"), "SPARK_SCALA_VERSION": "2.13"}
    command = [f"{java}/bin/java", "-Xmx700m", *SMALL_JVM[2:], *_MODULES, "-cp", f"{SPARK}/jars/*", *server, "spark-internal"]
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
