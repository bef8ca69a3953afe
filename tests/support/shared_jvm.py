"""The JVM that the processes of a test run share, so that it starts and compiles its code only once: pytest starts it, workers attach."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from platform_defs.settings import PROJECT, Settings
from platform_defs.setup.jars import SPARK, JarError, jar_paths
from platform_defs.spark.served import serve, served_session
from platform_defs.spark.session import JAVA_OPTIONS, own_session, session, spark_config
from tests.support.quick_session import LARGE_CODE_CACHE

_FILE = "TESTS_SESSION_FILE"
_WAIT_S = 180
_FEW_CACHED_TABLES = {"spark.databricks.delta.delta.log.cacheSize": "64"}
"""Delta's cache of tables is small: tests use thousands of them, and with all in the cache the JVM would only collect garbage."""
_SMALL_PAGES = {"spark.buffer.pageSize": "1m"}
"""A sort or an aggregation takes memory by the page, by default 64 MB with this heap. The tests of three processes then fill the heap, and
the JVM collects all garbage again and again: 0.5 s each time, in which no test goes on."""
_LARGE_YOUNG_GENERATION = " -Xms4g -Xmn2g"
"""Tests leave almost only garbage. A collection takes longer the more objects survive it, so a few large collections are quickest."""

_COMPILE_QUICKLY = " -XX:TieredStopAtLevel=1"
"""Java compiles each method once, quickly, and does not count its calls. Few methods run often enough in tests to repay more."""


@contextmanager
def shared_jvm(folder: Path) -> Iterator[None]:
    """Start a JVM with a session for the processes that this one starts.

    Args:
        folder: a folder for the file by which these processes find the JVM.
    """
    file = folder / "session.json"
    os.environ[_FILE] = str(file)
    process = subprocess.Popen([sys.executable, "-m", "tests.support.shared_jvm", str(file)], cwd=PROJECT)
    try:
        yield
    finally:
        del os.environ[_FILE]
        process.terminate()
        process.wait(60)


def session_of_the_tests() -> SparkSession:
    """The session of this process: in the JVM that pytest started, otherwise in its own JVM."""
    file = os.environ.get(_FILE)
    values, more = _configuration(file)
    deadline = time.monotonic() + _WAIT_S
    while file and served_session(Path(file)) is None:
        assert time.monotonic() < deadline, f"no process serves a session by {file} after {_WAIT_S} s"
        time.sleep(0.2)
    return session(values, **more)


def _configuration(file: str | None) -> tuple[Settings, dict[str, str]]:
    """The settings of the tests' session, and the options that tests add to the product's configuration.

    Args:
        file: the file of the served session; None for an own JVM.
    """
    memory, name = ("4g", file) if file else ("3g", "none")
    values = Settings(driver_memory=memory, shuffle_partitions=2, session_file=name)  # pyright: ignore[reportCallIssue]
    return values, _FEW_CACHED_TABLES | _SMALL_PAGES | {"spark.jars": ",".join(_jars())}


def _jars() -> list[str]:
    """The JARs of every session, and the JARs of Kafka if present, so that tests of Kafka can use the same JVM."""
    try:
        return jar_paths(SPARK, "kafka")
    except JarError:
        return jar_paths(SPARK)


def _serve(file: str) -> None:
    """Keep a session until SIGTERM."""
    values, more = _configuration(file)
    config = spark_config(values) | more
    own = own_session({**config, JAVA_OPTIONS: f"{config[JAVA_OPTIONS]}{_LARGE_YOUNG_GENERATION}{_COMPILE_QUICKLY} {LARGE_CODE_CACHE}"})
    serve(own, config, Path(file), ready=lambda: None)


if __name__ == "__main__":
    _serve(sys.argv[1])
