"""The options for `spark-submit`."""

import pytest
from typer.testing import CliRunner

from platform_defs.cli import cluster


def test_each_option_is_one_line_of_a_properties_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of YAML in the connections has line breaks."""
    options = {"spark.master": "spark://m:7077", "spark.driver.extraJavaOptions": "-Da=C:\\x\n-Db=2\r\n"}
    monkeypatch.setattr(cluster, "before_start", lambda _: options)
    printed = CliRunner().invoke(cluster.app, ["spark-config"])
    assert printed.stdout == "spark.master spark://m:7077\nspark.driver.extraJavaOptions -Da=C:\\\\x\\n-Db=2\\r\\n\n"
