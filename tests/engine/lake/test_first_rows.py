"""The first rows of a table are read without a session, and equal those of Spark; what only Spark reads or converts is left to Spark."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from platform_defs.cli import render
from platform_defs.engine.lake import small_queries
from platform_defs.engine.lake.arrow_rows import arrow_rows
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.first_rows import first_rows
from platform_defs.engine.lake.small_upserts import upsert
from platform_defs.engine.lake.tables import Lake
from tests.support.every_type import rows_of_every_type

pytestmark = pytest.mark.compiled  # interpreted plans cannot write deletion vectors


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "a lake"))


def _by_spark(spark: SparkSession, lake: Lake, table: str, limit: int) -> tuple[int, list[dict[str, Any]]]:
    found = render.head_of(small_queries.plan_if_small(lake.read(spark, table)), limit)
    return found["total"], found["rows"]


def _assert_equal(spark: SparkSession, lake: Lake, limits: tuple[int, ...]) -> int:
    """Compare the first rows of the table `t` with Spark's; returns the number of all rows."""
    for limit in limits:
        found = first_rows(lake, "t", limit)
        assert repr(found) == repr(_by_spark(spark, lake, "t", limit)), limit
        assert found is not None
    return (first_rows(lake, "t", 1) or (-1, []))[0]


def test_rows_of_every_type_equal_those_of_spark_in_the_same_order(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n, (first, end) in enumerate([(0, 3), (3, 40), (40, 41), (41, 51), (51, 54)]):
        with monkeypatch.context() as patch:
            if n % 2:  # Spark writes the file, in place of Arrow
                patch.setattr(small_queries, "SMALL_INPUT_BYTES", -1)
            lake.append(rows_of_every_type(spark, first, end), "t", {"n": n})
    assert len(DeltaTable(lake.path("t")).file_uris()) == 5
    assert _assert_equal(spark, lake, (1, 20, 38, 54, 100)) == 54


def test_a_column_that_earlier_files_lack_is_null_and_case_is_ignored(spark: SparkSession, lake: Lake) -> None:
    for n, columns in enumerate((["id as K", "1 as a"], ["id as k", "2 as a", "'x' as added"])):
        lake.append(spark.range(n * 10, n * 10 + 5, 1, 1).selectExpr(*columns), "t", {"n": n}, widen=True)
    assert _assert_equal(spark, lake, (3, 20)) == 10
    assert {(row["a"], row["added"]) for row in (first_rows(lake, "t", 20) or (0, []))[1]} == {(1, None), (2, "x")}


def test_rows_that_deltalake_merges_equal_those_of_spark(spark: SparkSession, lake: Lake) -> None:
    """deltalake writes texts and bytes as view types, and an update as a new file."""
    lake.append(rows_of_every_type(spark, 0, 9), "t", {"n": 1})
    rows, delta = arrow_rows(rows_of_every_type(spark, 3, 14)), DeltaTable(lake.path("t"))
    upsert(delta, rows, ["k"], is_deleted="c.`k` = 5", metadata={"n": 2}, number=2)
    assert _assert_equal(spark, lake, (1, 20)) == 13


def test_rows_that_a_deletion_vector_marks_are_left_out(spark: SparkSession, lake: Lake) -> None:
    path = lake.path("t")
    writer = spark.range(0, 3_000, 1, 1).selectExpr("id", "cast(id as string) as text").write.format("delta")
    writer.option("delta.enableDeletionVectors", "true").save(path)
    spark.range(3_000, 3_010, 1, 1).selectExpr("id", "cast(id as string) as text").write.format("delta").mode("append").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 3 = 0 OR id BETWEEN 10 AND 2000 OR id = 3004")
    assert sum(1 for path in Path(path).glob("*.bin")) > 0
    assert _assert_equal(spark, lake, (1, 20, 10_000)) == 677


def test_an_empty_table_has_no_rows(spark: SparkSession, lake: Lake) -> None:
    spark.range(0).write.format("delta").save(lake.path("t"))
    assert first_rows(lake, "t", 20) == (0, [])
    assert first_rows(lake, "absent", 20) is None


@pytest.mark.parametrize(
    "column",
    [
        "map(date'2026-03-01', 1)",
        "timestamp'+10000-01-01 00:00:00Z'",
        "date'+10000-01-01'",
        "array(timestamp'-0001-01-01 00:00:00Z')",
        "cast(X'FF' as string)",
        "cast(115805232 as float)",
    ],
)
def test_what_only_spark_converts_is_left_to_it(spark: SparkSession, lake: Lake, column: str) -> None:
    spark.range(3).selectExpr(f"{column} AS c").write.format("delta").save(lake.path("t"))
    assert first_rows(lake, "t", 20) is None


@pytest.mark.parametrize("properties", ["PARTITIONED BY (k)", "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"])
def test_a_table_with_partitions_or_column_mapping_is_left_to_spark(spark: SparkSession, lake: Lake, properties: str) -> None:
    spark.sql(f"CREATE TABLE delta.`{lake.path('t')}` (k int, v int) USING delta {properties}")
    spark.sql(f"INSERT INTO delta.`{lake.path('t')}` VALUES (1, 2)")
    assert first_rows(lake, "t", 20) is None


def test_a_file_with_a_column_of_another_type_is_left_to_spark(spark: SparkSession, lake: Lake) -> None:
    """Times as 96-bit integers, which Spark writes by default, but not Tidemark."""
    with_times = spark.range(3).selectExpr("timestamp'1969-01-01 00:00:00Z' AS at")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        with_times.write.format("delta").save(lake.path("t"))
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    assert first_rows(lake, "t", 20) is None


@pytest.fixture(scope="module")
def fifty_rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake whose table `t` has one file."""
    lake = Lake(str(tmp_path_factory.mktemp("fifty_rows")))
    lake.append(rows_of_every_type(spark, 0, 50), "t", {"n": 1})
    return lake


@pytest.mark.parametrize("content", [None, b"", b"PAR1 and no footer", b"rows"])
def test_a_lost_or_damaged_file_is_named(fifty_rows: Lake, lake: Lake, content: bytes | None) -> None:
    shutil.copytree(fifty_rows.root, lake.root)
    [file] = Path(lake.path("t")).rglob("*.parquet")
    if content is None:
        file.unlink()
    else:
        whole = file.read_bytes()
        kept = int.from_bytes(whole[-8:-4], "little") + 8  # the footer
        file.write_bytes(b"\xff" * (len(whole) - kept) + whole[-kept:] if content == b"rows" else content)
    with pytest.raises(LakeError, match=rf"t lacks a data file: .*{file.name}"):
        first_rows(lake, "t", 20)
