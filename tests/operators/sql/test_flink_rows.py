"""The statements of Flink's documentation give the rows that Flink gives, recorded in `flink_rows.yaml`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import operators
from tests.operators.frames import frame_of_json
from tests.operators.sql.test_flink_statements import DOCUMENT, MAPPED
from tests.support.json_rows import values_of

RECORDED = yaml.safe_load(Path(__file__).with_name("flink_rows.yaml").read_text("utf-8"))
RESULTS: dict[str, list[list[Any]]] = RECORDED["results"]
WANTED = RESULTS | {"window join, anti by NOT IN": RESULTS["window join, anti by NOT EXISTS"]}
"""A null matches nothing in Tidemark's NOT IN, as docs/reference/sql.md says."""
STATEMENTS = {case["name"]: case["sql"] for case in MAPPED if case["name"] in RESULTS}
NOT_RECORDED = {
    "group aggregation, having, with columns that are computed from the key and the aggregates",  # Flink's CONCAT takes no number
    "lookup join",  # Flink refuses it for files
    "create table, processing time",  # the rows depend on the clock
}


def frame(spark: SparkSession, table: Mapping[str, Any]) -> DataFrame:
    """The rows of a recorded table, with the order in which they arrived."""
    schema = f"{table['schema']}, seq BIGINT, arrival BIGINT"
    names = StructType.fromDDL(schema).fieldNames()  # pyright: ignore[reportAttributeAccessIssue]
    return frame_of_json(spark, [dict(zip(names, (*row, 0, n), strict=True)) for n, row in enumerate(table["rows"])], schema)


def test_all_mapped_statements_but_three_have_recorded_rows():
    assert {case["name"] for case in MAPPED} - RESULTS.keys() == NOT_RECORDED
    assert STATEMENTS.keys() == RESULTS.keys()


@pytest.mark.usefixtures("interpreted_plans")
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.oracle_all)], ids=["a quarter of them", "all of them"])
def test_statements_give_the_rows_of_flink(spark: SparkSession, every: int):
    frames = {name: frame(spark, table) for name, table in RECORDED["tables"].items()}
    made = {name: operators.sql(f"{DOCUMENT['tables']};{STATEMENTS[name]}", frames) for name in [*STATEMENTS][::every]}
    wanted = {name: sorted(map(tuple, WANTED[name]), key=repr) for name in made}
    found = values_of(made)
    assert {name: rows for name, rows in found.items() if rows != wanted[name]} == {}
