"""The operators on DataFrames of a Spark Connect server: the tutorial's page gives the same results there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from platform_defs.settings import PROJECT
from tests.support.cluster import connect_server, connect_server_of

PAGE = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
import platform_defs.spark.session as own
from tests.docs.page import DOCS, run

own.session = lambda settings: spark
{settings}
run(DOCS / "tutorial/operators.md", Path(sys.argv[2]), spark)
print(type(spark).__module__)
"""
OTHER_SETTINGS = """
from pyspark.sql.connect.dataframe import DataFrame
from platform_defs.settings import Settings
from tests.support.quick_session import INTERPRETED

for name in own.spark_config(Settings()).keys() - {"spark.sql.session.timeZone"}:  # the page asks for this one
    if spark.conf.isModifiable(name):
        spark.conf.unset(name)
for name, value in (INTERPRETED | {"spark.sql.shuffle.partitions": "1"}).items():
    spark.conf.set(name, value)
DataFrame.show = lambda *_, **__: None  # the page's assertions read the same rows
"""
"""Settings for a session in the JVM of the tests: Spark's defaults in place of the product's options. Delta's extension stays."""


def test_the_tutorial_of_the_operators_runs_on_a_connect_server(spark: SparkSession, tmp_path: Path):
    """The server runs in the JVM of the tests, and its client in a process that has no JVM."""
    _run_page(connect_server_of(spark), tmp_path, OTHER_SETTINGS)


@pytest.mark.soak
@pytest.mark.cluster
def test_the_tutorial_of_the_operators_runs_on_a_connect_server_with_sparks_options(tmp_path: Path):
    with connect_server(tmp_path / "server") as address:
        _run_page(address, tmp_path, "")


def _run_page(address: str, folder: Path, settings: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    arguments = [sys.executable, "-c", PAGE.format(settings=settings), address, str(folder / "page")]
    process = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=PROJECT, env=environment)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "pyspark.sql.connect.session"
