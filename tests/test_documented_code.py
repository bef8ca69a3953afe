"""Every block of Python and YAML in README.md and in docs/how-to/read-results.md works."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from assets.contracts import DerivedAsset, Preparation
from operators import Aggregate
from platform_defs.declared.pipeline import read
from tests.conftest import MakeEngine
from tests.support.kills import run_and_die
from tests.support.small_sources import START, Event, iso, land, source

PROJECT = Path(__file__).resolve().parents[1]


def _blocks(page: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```$", (PROJECT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


BLOCKS = _blocks("README.md")


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


def test_results_are_read_as_documented(make_engine: MakeEngine) -> None:
    count = {"operator": Aggregate(by="k", aggregates={"n": "count(*)"}), "inputs": ("orders",)}
    engine = make_engine([source("orders")], [DerivedAsset(name=name, **count) for name in ("hot_items", "category_leaderboard")])
    land(engine, "orders", "1.jsonl", [Event(k, 1, 0).line for k in "aab"])
    engine.ingest()
    for name in engine.assets:
        engine.advance(name)
    land(engine, "orders", "2.jsonl", [Event("c", 1, 0).line])
    run_and_die(engine.ingest, "ingest.before_ledger")
    found: dict[str, Any] = {}
    for language, block in _blocks("docs/how-to/read-results.md"):
        assert language == "python"
        assert '".tidemark/demo"' in block
        found |= _run(block.replace('".tidemark/demo"', repr(engine.lake.root)))
    assert sorted(zip(found["board"]["k"], found["board"]["n"], strict=True)) == [("a", 2), ("b", 1)]
    assert found["numbers"] == [(2,)]
    assert sorted(found["orders"]["k"].to_pylist()) == ["a", "a", "b"]
