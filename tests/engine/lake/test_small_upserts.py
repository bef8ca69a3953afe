"""Upserts of few rows by deltalake: the table and its change feed are those of a MERGE by Spark."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators.columns import are_rows_equal
from platform_defs.engine.lake import small_upserts
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.opened_tables import OpenedTable
from platform_defs.engine.lake.tables import Lake
from tests.support.json_rows import json_rows, json_rows_of

KEYS = {
    "int": "cast(n as int)",
    "string": "if(n = 0, '', cast(n as string))",
    "decimal": "cast(n as decimal(20, 3))",
    "date": "date_add(date'0001-01-01', cast(n as int))",
    "timestamp": "timestamp_micros(n * 1000001 - 62135596800000000)",
    "boolean": "n % 2 = 0",
    "binary": "cast(cast(n as string) as binary)",
}
KEY = ["Order", *KEYS, "größe"]
"""`Order` contains the type of a row's key. Only the column of that type has a value, so each row is found by the equality of one type."""
Changes = dict[str, list[tuple[int | None, int, str]]]
"""Rows by the type of their key: number of the key or null, value, change kind."""


def _frame(spark: SparkSession, rows: Changes, change: bool) -> DataFrame:
    names, kinds = ("type", "n", "v", "kind"), (pa.string(), pa.int64(), pa.int64(), pa.string())
    all_rows = [(name, *row) for name, some in rows.items() for row in some]
    columns = [pa.array(values, kind) for values, kind in zip(zip(*all_rows, strict=True), kinds, strict=True)]
    frame = spark.createDataFrame(pa.table(columns, names))
    keys = [F.expr(f"if(type = '{name}' and n is not null, {key}, null)").alias(name) for name, key in KEYS.items()]
    key = [F.col("type").alias("Order"), *keys, F.lit("same").alias("größe")]
    return frame.select(*key, F.struct("v").alias("nested"), F.lit(None).cast("double").alias("none"), *[F.col("kind")] * change)


@pytest.fixture(scope="module")
def created_folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a lake whose table `t` has rows of each type of key."""
    folder = tmp_path_factory.mktemp("created")
    rows: Changes = {name: [(None, 0, ""), *[(n, n, "") for n in range(2 if name == "boolean" else 8)]] for name in KEYS}
    Lake(str(folder)).overwrite(_frame(spark, rows, change=False), "t", {"m": 1}, number=1, pruned_by=KEY, change_feed=True)
    return folder


def _changes(name: str, seed: int) -> list[tuple[int | None, int, str]]:
    rng, numbers = Random(seed), [None, *range(2 if name == "boolean" else 12)]
    return [(n, rng.randrange(100, 200), rng.choice(["+I", "+U", "-D"])) for n in rng.sample(numbers, rng.randint(1, len(numbers)))]


def _change_feed(spark: SparkSession, lake: Lake, table: str) -> DataFrame:
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(lake.path(table))
    return changes.drop("_commit_timestamp")


@dataclass(frozen=True)
class Upserted:
    """The rows of one type of key in a table that was upserted twice, by each writer and reader, and its change feeds."""

    by_deltalake: list[str]
    by_spark: list[str]
    read_by_spark: list[str]
    feed_of_deltalake: list[str]
    feed_of_spark: list[str]


@pytest.fixture(scope="module")
def upserted_lake(spark: SparkSession, created_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two equal tables with rows of each type of key, each of which gets the same changes, one by deltalake and the other by Spark."""
    lake = Lake(str(tmp_path_factory.mktemp("upserted")))
    for table in ("few", "many"):
        shutil.copytree(created_folder / "t", lake.path(table))
    for step in (2, 3):
        changes = _frame(spark, {name: _changes(name, step) for name in KEYS}, change=True)
        assert lake.upsert("few", changes, KEY, is_deleted="c.`kind` = '-D'", metadata={"m": step}, number=step)
        same, is_deleted = are_rows_equal("t", "c", KEY), F.col("c.kind") == "-D"
        lake.merge("many", changes, same, is_deleted=is_deleted, metadata={"m": step}, number=step, stored=True)
    return lake


@pytest.fixture(scope="module")
def upserted(spark: SparkSession, upserted_lake: Lake) -> dict[str, Upserted]:
    lake = upserted_lake
    frames = [
        *(lake.read(spark, table) for table in ("few", "many")),
        lake.frame(spark, "few"),
        *(_change_feed(spark, lake, table) for table in ("few", "many")),
    ]
    found: list[dict[str, list[str]]] = [{name: [] for name in KEYS} for _ in frames]
    for rows, of_types in zip(json_rows_of(dict(enumerate(frames))).values(), found, strict=True):
        for row in rows:
            of_types[json.loads(row)["Order"]].append(row)
    return {name: Upserted(*(sorted(of_types[name]) for of_types in found)) for name in KEYS}


@pytest.mark.parametrize("name", KEYS)
def test_deltalake_and_spark_upsert_the_same_rows(upserted: dict[str, Upserted], name: str) -> None:
    found = upserted[name]
    assert found.by_deltalake == found.by_spark == found.read_by_spark != []
    assert found.feed_of_deltalake == found.feed_of_spark != []


def test_an_upsert_by_deltalake_records_its_step(upserted_lake: Lake) -> None:
    newest = upserted_lake.newest_commit("few", "m")
    assert newest is not None
    assert (newest.value, upserted_lake.transaction("few", "tidemark")) == (3, 3)


@pytest.fixture
def lake(created_folder: Path, tmp_path: Path) -> Lake:
    """A copy of the lake with the table `t`."""
    return Lake(str(shutil.copytree(created_folder, tmp_path / "lake")))


def test_a_step_that_was_applied_is_refused(spark: SparkSession, lake: Lake) -> None:
    changes, before = _frame(spark, {"int": [(1, 100, "+U")]}, change=True), lake.version("t")
    with pytest.raises(LakeError, match="another writer"):
        lake.upsert("t", changes, KEY, is_deleted="c.`kind` = '-D'", metadata={"m": 1}, number=1)
    assert lake.version("t") == before


@pytest.mark.parametrize("rows", [[], [(99, 1, "-D")]], ids=["no change", "a delete of an absent key"])
def test_a_step_that_changes_no_row_is_committed(spark: SparkSession, lake: Lake, rows: list[tuple[int | None, int, str]]) -> None:
    """Without the commit, the table would seem to lack the step, and would never again be compared with its changelog."""
    changes, before = _frame(spark, {"int": [*rows, (98, 1, "-D")]}, change=True).limit(len(rows)), json_rows(lake.read(spark, "t"))
    assert lake.upsert("t", changes, KEY, is_deleted="c.`kind` = '-D'", metadata={"m": 2}, number=2)
    newest = lake.newest_commit("t", "m")
    assert newest is not None
    assert (newest.value, lake.transaction("t", "tidemark")) == (2, 2)
    assert json_rows(lake.read(spark, "t")) == before


@pytest.mark.parametrize("error", [OSError("Input/output error"), CommitFailedError("the store failed")])
def test_a_failure_of_the_store_is_not_called_another_writer(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(small_upserts, "upsert", fail)
    with pytest.raises(type(error), match=str(error)):
        lake.upsert(
            "t", _frame(spark, {"int": [(1, 1, "+U")]}, change=True), KEY, is_deleted="c.`kind` = '-D'", metadata={"m": 2}, number=2
        )


def test_another_writers_commit_is_not_overwritten(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, seen = _frame(spark, {"int": [(1, 100, "+U")]}, change=True), lake.delta("t")
    assert lake.upsert("t", changes, KEY, is_deleted="c.`kind` = '-D'", metadata={"m": 2}, number=2)
    after = lake.version("t")
    opened = [seen]  # by a writer that was paused after it had opened the table
    original = Lake._for_writing
    monkeypatch.setattr(Lake, "_for_writing", lambda self, table: OpenedTable(opened.pop()) if opened else original(self, table))
    with pytest.raises(LakeError, match="another writer"):
        lake.upsert("t", changes, KEY, is_deleted="c.`kind` = '-D'", metadata={"m": 3}, number=3)
    monkeypatch.undo()
    assert lake.version("t") == after


@pytest.mark.parametrize("reason", ["float key", "dotted name", "deletion vectors", "large", "many rows"])
def test_rows_that_deltalake_would_merge_differently_are_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    lake, rows = Lake(str(tmp_path / "lake")), spark.range(3).select((F.col("id") + F.lit(0.5)).alias("x"), "id")
    lake.overwrite(rows, "t", {"m": 1}, number=1, deletion_vectors=reason == "deletion vectors")
    if reason == "deletion vectors":
        spark.sql(f"DELETE FROM delta.`{lake.path('t')}` WHERE id = 1")
    if reason == "large":
        monkeypatch.setattr(Lake, "is_large", lambda *_: True)
    if reason == "many rows":
        monkeypatch.setattr("platform_defs.engine.lake.small_queries.MOST_FETCHED_ROWS", 1)
    changes = rows.withColumn("kind", F.lit("+U"))
    if reason == "dotted name":
        lake.overwrite(rows.withColumnRenamed("x", "x.y"), "t", {"m": 1}, number=2)
    key = ["x"] if reason == "float key" else ["id"]
    assert not lake.upsert("t", changes, key, is_deleted="c.`kind` = '-D'", metadata={"m": 2}, number=3)


def test_a_table_gets_deletion_vectors_when_it_is_large(spark: SparkSession, tmp_path: Path) -> None:
    lake, rows = Lake(str(tmp_path / "lake")), spark.range(1000).withColumn("v", F.lit(0))
    lake.overwrite(rows, "t", {"m": 1}, number=1, change_feed=True)
    changes = spark.range(1).select("id", F.lit(1).alias("v"), F.lit("+U").alias("kind"))
    lake.merge("t", changes, F.expr("t.id = c.id"), is_deleted=F.expr("c.kind = '-D'"), metadata={"m": 2}, number=2, deletion_vectors=True)
    delta = lake.delta("t")
    assert delta is not None
    assert "deletionVectors" in (delta.protocol().writer_features or ())
    assert lake.read(spark, "t").agg(F.sum("v"), F.count("*")).collect() == [(1, 1000)]
