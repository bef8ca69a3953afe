"""Overwrites committed by deltalake: the table, its properties and its change feed are those of an overwrite by Spark."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.exceptions import ConcurrentTransactionException
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from platform_defs.engine.lake import written_tables
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.table_columns import keeps_statistics
from platform_defs.engine.lake.tables import Lake
from tests.support.json_rows import json_rows, json_rows_of
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


def _feed(spark: SparkSession, lake: Lake, table: str) -> DataFrame:
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).option("endingVersion", 1)
    return feed.load(lake.path(table)).drop("_commit_timestamp")


def test_deltalake_and_spark_overwrite_alike(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is created, then its rows are replaced, and then its columns, by a frame with rows and by an empty frame."""
    versions: list[tuple[DataFrame, dict[str, Any]]] = [
        (spark.sql(TYPES.format(3)), {"pruned_by": ["k", "t"], "change_feed": True}),
        (spark.sql(TYPES.format(5)).where("k > 1"), {"pruned_by": ["k"]}),
        (spark.sql(OTHER), {}),
        (spark.sql(OTHER).where("false"), {}),
    ]
    found: dict[str, list[Any]] = {"t": [], "of_spark": []}
    for number, (rows, options) in enumerate(versions, 1):
        for table in found:
            with monkeypatch.context() as patch:
                if table == "of_spark":
                    patch.setattr(written_tables, "is_written_by_deltalake", lambda _: False)
                lake.overwrite(rows, table, {"m": number}, number=number, deletion_vectors=table == "of_spark" and number == 1, **options)
        frames = {table: lake.frame(spark, table) for table in found}
        read = json_rows_of(frames)
        # before the columns change: Delta reads no feed across that
        feeds = json_rows_of({table: _feed(spark, lake, table) for table in found}) if number == 2 else {}
        for table, states in found.items():
            newest = lake.newest_commit(table, "m")
            assert newest is not None
            configuration = DeltaTable(lake.path(table)).metadata().configuration
            properties = {name: value for name, value in configuration.items() if "DeletionVectors" not in name}
            states.append((newest.value, newest.rows, lake.transaction(table, "tidemark"), properties, frames[table].dtypes, read[table]))
            states.extend([feeds[table]] if feeds else [])
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
    schemas = [spark.sql(OTHER).drop(column).schema for column in ("other", "k", "t")]
    assert [keeps_statistics(delta, schema) for schema in schemas] == [True, False, False]


def test_a_schema_keeps_statistics_only_with_types_that_can_have_them(tmp_path: Path) -> None:
    rows = pa.table({"k": ["x"], "v": [1]})
    write_deltalake(str(tmp_path), rows, configuration={"delta.dataSkippingStatsColumns": "`k`,`v`"})
    for types, keeps in {("string", "long"): True, ("date", "double"): True, ("boolean", "long"): False, ("binary", "long"): False}.items():
        schema = StructType().add("v", types[1]).add("other", "boolean").add("k", types[0])
        assert keeps_statistics(DeltaTable(str(tmp_path)), schema) is keeps, types
    assert not keeps_statistics(DeltaTable(str(tmp_path)), StructType().add("k", "string"))


@pytest.mark.parametrize(
    ("queries", "deletion_vectors"),
    [
        pytest.param([f"SELECT other, t FROM ({OTHER})", "SELECT 5 AS v, 1 AS w"], True, id="lost columns of Spark"),
        pytest.param([f"SELECT other, t FROM ({OTHER})", "SELECT 5 AS v, 1 AS w"], False, id="lost columns"),
        pytest.param([f"SELECT other, true AS k, t FROM ({OTHER})"], True, id="a type without statistics of Spark"),
        pytest.param([f"SELECT other, array(k) AS k, t FROM ({OTHER})"], False, id="a type without statistics"),
    ],
)
def test_an_overwrite_can_remove_the_statistics_of_a_column(
    spark: SparkSession, lake: Lake, queries: list[str], deletion_vectors: bool
) -> None:
    frames = [*map(spark.sql, [OTHER, *queries])]
    for number, frame in enumerate(frames, 1):
        lake.overwrite(frame, "t", {"m": number}, number=number, pruned_by=frame.columns[1:], deletion_vectors=deletion_vectors)
        newest = lake.newest_commit("t", "m")
        assert newest is not None
        assert (newest.value, newest.rows) == (number, 1)
        if number > 1:  # other tests read a new table
            rows = json_rows_of({"found": lake.frame(spark, "t"), "wanted": frame})
            assert rows["found"] == rows["wanted"]
    assert lake.append(frames[-1], "t", {"m": 9}, after=len(frames)) == 1
    spark.sql(f"ALTER TABLE delta.`{lake.path('t')}` SET TBLPROPERTIES ('a.b' = 'c')")  # Delta checks the columns with statistics


def test_an_overwrite_of_few_rows_is_one_spark_job(spark: SparkSession, lake: Lake) -> None:
    for number in (1, 2):
        with jobs_of(spark) as jobs:
            lake.overwrite(spark.range(3).repartition(1), "t", {"m": number}, number=number)
        assert len(jobs) == 1


@pytest.mark.parametrize(
    ("lost", "deletion_vectors"),
    [pytest.param("other", False, id="deltalake"), pytest.param("k", False, id="lost statistics"), pytest.param("k", True, id="vectors")],
)
def test_an_overwrite_by_a_step_that_was_committed_already_commits_nothing(
    spark: SparkSession, lake: Lake, lost: str, deletion_vectors: bool
) -> None:
    """Spark would first have to remove the table's property with the column `k`."""
    lake.overwrite(spark.sql(OTHER), "t", {"m": 1}, number=1, pruned_by=["k"], deletion_vectors=deletion_vectors)
    with pytest.raises(LakeError, match="another writer"):
        lake.overwrite(spark.sql(OTHER).drop(lost), "t", {"m": 1}, number=1, deletion_vectors=deletion_vectors)
    assert lake.version("t") == 0
    assert json_rows(lake.frame(spark, "t")) == json_rows(spark.sql(OTHER))


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
