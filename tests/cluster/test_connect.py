"""The operators on DataFrames of a Spark Connect server: the tutorial's page gives the same results there."""

import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from platform_defs.settings import PROJECT
from tests.support.cluster import connect_server

PAGE = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.connect.dataframe import DataFrame

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
import platform_defs.spark.session as own
from tests.docs.page import DOCS, run
from tests.support.quick_session import INTERPRETED

own.session = lambda settings: spark
for name in own.FIXED_OPTIONS.keys() - {"spark.sql.session.timeZone"}:
    spark.conf.unset(name)  # the JVM has the product's options; the operators need none
for name, value in (INTERPRETED | {"spark.sql.shuffle.partitions": "1"}).items():
    spark.conf.set(name, value)
DataFrame.show = lambda *_, **__: None  # the page's assertions read the same rows
run(DOCS / "tutorial/operators.md", Path(sys.argv[2]), spark)
print(type(spark).__module__)
"""


def test_the_tutorial_of_the_operators_runs_on_a_connect_server(spark: SparkSession, tmp_path: Path):
    """The server runs in the JVM of the tests, and its client in a process that has no JVM."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    arguments = [sys.executable, "-c", PAGE, connect_server(spark), str(tmp_path / "page")]
    process = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=PROJECT, env=environment)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "pyspark.sql.connect.session"
