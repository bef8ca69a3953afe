"""Every block of code in README.md works."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from assets.contracts import Preparation
from platform_defs.declared.pipeline import read
from tests.support.small_sources import START, iso

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def _run(block: str, **names: Any) -> dict[str, Any]:
    exec(block, names)
    return names


def _block(language: str, text: str) -> str:
    [block] = [block for found, block in BLOCKS if found == language and text in block]
    return block


def test_all_blocks_are_tested():
    assert [language for language, _ in BLOCKS] == ["python", "yaml", "python", "python"]


def test_the_pipeline_is_the_same_in_python_and_in_yaml():
    in_yaml, in_python = read(_block("yaml", "rides_per_hour")), _run(_block("python", "pipeline = Pipeline("))["pipeline"]
    assert (in_yaml.sources, in_yaml.tables) == (in_python.sources, in_python.tables)


def test_the_prepared_table_is_legal():
    table = _run(_block("python", "prepare={"))["order_payments"]
    assert table.prepare["payments"] == Preparation(select="* EXCEPT (note)")


@pytest.mark.parametrize(("minutes", "pairs"), [(5, 1), (24 * 60 + 1, 2)], ids=["a pair", "two unmatched rows"])
def test_the_operator_works_on_frames(spark: SparkSession, minutes: int, pairs: int) -> None:
    def rows(milliseconds: int, column: str) -> DataFrame:
        frame = spark.createDataFrame([("a", iso(START + milliseconds))], "order_id STRING, time STRING")
        return frame.selectExpr("order_id", f"timestamp(time) AS {column}")

    orders, payments = rows(0, "order_time"), rows(minutes * 60_000, "payment_time")
    wide = _run(_block("python", "wide = join(orders, payments)"), orders=orders, payments=payments)["wide"]
    assert wide.count() == pairs
    assert {"result_time", "final_at"} <= {*wide.columns}
