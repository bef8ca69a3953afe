"""The operators on DataFrames of a Spark Connect server: the tutorial's page gives the same results there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from platform_defs.settings import PROJECT
from tests.support.cluster import connect_server

pytestmark = [pytest.mark.cluster]
PAGE = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
import platform_defs.spark.session as own
own.session = lambda settings: spark
from tests.docs.page import DOCS, run

run(DOCS / "tutorial/operators.md", Path(sys.argv[2]), spark)
print(type(spark).__module__)
"""


def test_the_tutorial_of_the_operators_runs_on_a_connect_server(tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    with connect_server(tmp_path / "server") as address:
        arguments = [sys.executable, "-c", PAGE, address, str(tmp_path / "page")]
        process = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=PROJECT, env=environment)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "pyspark.sql.connect.session"
