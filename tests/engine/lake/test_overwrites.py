"""Overwrites committed by deltalake: the table, its properties and its change feed are those of an overwrite by Spark."""

from pathlib import Path
from typing import Any

import pytest
from delta.exceptions import ConcurrentTransactionException
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame, SparkSession

from platform_defs.engine.lake import written_tables
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from tests.support.json_rows import json_rows
from tests.support.spark_jobs import jobs_of

TYPES = """
    SELECT int(id) AS k, string(id) AS s, CAST(id / 3 AS decimal(9, 4)) AS d, if(id = 1, null, timestamp_millis(id)) AS t,
        named_struct('x', array(id), 'y', map('m', id)) AS nested, id = 1 AS b, id / 2 AS f
    FROM range({})
"""
OTHER = "SELECT 'x' AS other, 1 AS k, timestamp_millis(7) AS t"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def _feed(spark: SparkSession, lake: Lake, table: str) -> list[str]:
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).option("endingVersion", 1)
    return json_rows(feed.load(lake.path(table)).drop("_commit_timestamp"))


def test_deltalake_and_spark_overwrite_alike(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is created, then its rows are replaced, and then its columns, by a frame with rows and by an empty frame."""
    versions: list[tuple[DataFrame, dict[str, Any]]] = [
        (spark.sql(TYPES.format(3)), {"pruned_by": ["k", "t"], "change_feed": True}),
        (spark.sql(TYPES.format(5)).where("k > 1"), {"pruned_by": ["k"]}),
        (spark.sql(OTHER), {}),
        (spark.sql(OTHER).where("false"), {}),
    ]
    found: dict[str, list[Any]] = {"t": [], "of_spark": []}
    for table, states in found.items():
        if table == "of_spark":
            monkeypatch.setattr(written_tables, "is_written_by_deltalake", lambda _: False)
        for number, (rows, options) in enumerate(versions, 1):
            lake.overwrite(rows, table, {"m": number}, number=number, deletion_vectors=table == "of_spark" and number == 1, **options)
            delta, newest = DeltaTable(lake.path(table)), lake.newest_commit(table, "m")
            assert newest is not None
            properties = {name: value for name, value in delta.metadata().configuration.items() if "DeletionVectors" not in name}
            read = lake.frame(spark, table)
            states.append((newest.value, newest.rows, lake.transaction(table, "tidemark"), properties, read.dtypes, json_rows(read)))
            if number == 2:  # before the columns change: Delta reads no feed across that
                states.append(_feed(spark, lake, table))
    assert found["t"] == found["of_spark"]
    assert [state[1] for state in found["t"] if isinstance(state, tuple)] == [3, 3, 1, 0]
    assert len(found["t"][2]) == 9, "three rows are inserted, then deleted, and three others inserted"


def test_an_overwrite_adds_the_change_feed(spark: SparkSession, lake: Lake) -> None:
    for number in (1, 2, 3):
        lake.overwrite(spark.sql(OTHER), "t", {"m": number}, number=number, pruned_by=["k", "t"], change_feed=number > 1)
    assert DeltaTable(lake.path("t")).metadata().configuration["delta.enableChangeDataFeed"] == "true"
    assert lake.version("t") == 3, "the property is set once"


def test_a_table_that_loses_a_column_with_statistics_is_left_to_spark(spark: SparkSession, lake: Lake) -> None:
    """In one commit, deltalake cannot change which columns have statistics, and Spark refuses a table that lacks such a column."""
    lake.overwrite(spark.sql(OTHER), "t", {"m": 1}, number=1, pruned_by=["k", "t"])
    delta = lake.delta("t")
    assert delta is not None
    assert [lake._can_replace(delta, spark.sql(OTHER).drop(column)) for column in ("other", "k", "t")] == [True, False, False]


@pytest.mark.parametrize("deletion_vectors", [True, False])
def test_an_overwrite_can_remove_a_column_with_statistics(spark: SparkSession, lake: Lake, deletion_vectors: bool) -> None:
    frames = [spark.sql(OTHER), spark.sql(OTHER).drop("k"), spark.sql("SELECT 5 AS v, 1 AS w")]
    for number, frame in enumerate(frames, 1):
        lake.overwrite(frame, "t", {"m": number}, number=number, pruned_by=frame.columns[1:], deletion_vectors=deletion_vectors)
        newest = lake.newest_commit("t", "m")
        assert newest is not None
        assert (newest.value, newest.rows) == (number, 1)
        assert json_rows(lake.frame(spark, "t")) == json_rows(frame)
    assert lake.append(frames[-1], "t", {"m": 4}, after=3) == 1


def test_an_overwrite_of_few_rows_is_one_spark_job(spark: SparkSession, lake: Lake) -> None:
    for number in (1, 2):
        with jobs_of(spark) as jobs:
            lake.overwrite(spark.range(3).repartition(1), "t", {"m": number}, number=number)
        assert len(jobs) == 1


def test_an_overwrite_by_a_step_that_was_made_is_refused(spark: SparkSession, lake: Lake) -> None:
    lake.overwrite(spark.range(3), "t", {"m": 1}, number=1)
    with pytest.raises(LakeError, match="another writer"):
        lake.overwrite(spark.range(4), "t", {"m": 1}, number=1)
    assert lake.version("t") == 0
    assert lake.read(spark, "t").count() == 3


@pytest.mark.parametrize("exists", [True, False])
def test_another_writers_commit_is_not_replaced(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, exists: bool) -> None:
    """A writer is paused after it has opened the table, or has found that there is none; meanwhile another writer commits."""
    if exists:
        lake.overwrite(spark.range(3), "t", {"m": 1}, number=1)
    opened = [lake.delta("t")]
    lake.overwrite(spark.range(4), "t", {"m": 2}, number=2)
    version, original = lake.version("t"), Lake.delta
    monkeypatch.setattr(Lake, "delta", lambda self, table: opened.pop() if opened else original(self, table))
    with pytest.raises(LakeError, match="another writer"):
        lake.overwrite(spark.range(5), "t", {"m": 2}, number=2)
    assert lake.version("t") == version
    assert lake.read(spark, "t").count() == 4


def test_a_commit_during_an_overwrite_by_spark_is_reported(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConcurrentTransactionException("another commit has the number of this one")

    lake.overwrite(spark.range(3), "t", {"m": 1}, number=1, deletion_vectors=True)
    monkeypatch.setattr(written_tables, "run_to_end", refuse)
    with pytest.raises(LakeError, match="another writer"):
        lake.overwrite(spark.range(4), "t", {"m": 2}, number=2, deletion_vectors=True)


def test_a_failure_of_the_store_is_not_called_another_writer(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.overwrite(spark.range(3), "t", {"m": 1}, number=1)

    def fail(*_: object, **__: object) -> None:
        raise CommitFailedError("the store failed")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", fail)
    with pytest.raises(CommitFailedError, match="the store failed"):
        lake.overwrite(spark.range(4), "t", {"m": 2}, number=2)
    assert lake.read(spark, "t").count() == 3


def test_a_commit_whose_answer_is_lost_is_found(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.overwrite(spark.range(3), "t", {"m": 1}, number=1)
    commit = DeltaTable.create_write_transaction

    def lose_the_answer(self: DeltaTable, *args: Any, **options: Any) -> None:
        commit(self, *args, **options)
        raise OSError("connection reset")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lose_the_answer)
    lake.overwrite(spark.range(4), "t", {"m": 2}, number=2)
    assert (lake.version("t"), lake.read(spark, "t").count()) == (1, 4)
