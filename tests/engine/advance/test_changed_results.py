"""The changes of a correction, merged by deltalake: the table and its change feed are those of a MERGE by Spark."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from operators.changelog import OWN_CHANGE, bag_changes, difference
from platform_defs.engine.advance.changed_results import ComputedChanges
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import rows_of
from tests.support.spark_jobs import jobs_of

Row = tuple[str | None, int, int | None]
HELD: list[Row] = [("a", 1, 10), ("b", 2, 20), ("c", 3, 30), (None, 4, 20), ("same", 5, 15), ("apart", 6, 99)]
WANTED: list[Row] = [("a", 1, 11), ("c", 7, 30), (None, 4, None), ("same", 5, 15), ("new", 8, 12)]
COPIES: list[Row] = [("three", 1, 10)] * 3 + [("one", 2, 20)] + [("same", 5, 15)] * 2 + [(None, 4, None)] * 2 + [("apart", 6, 99)]
WANTED_COPIES: list[Row] = [("three", 1, 10)] * 2 + [("one", 2, 20)] * 2 + [("same", 5, 15)] * 2 + [("new", 8, 12)]
KEYS = {"keyed": ("k", "n"), "without a key": ()}


def _frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """Rows of (key, number, seconds of `final_at` and value); a null value has the time 40."""
    kinds = (pa.string(), pa.int32(), pa.int32())
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    frame = spark.createDataFrame(pa.table(columns, ["k", "n", "v"]))  # rows in memory: a small query
    return frame.selectExpr("k", "n", "v", "timestamp_millis(1000L * coalesce(v, 40)) AS final_at", "CAST(v / 3 AS decimal(9, 4)) AS third")


def _changes(spark: SparkSession, key: tuple[str, ...]) -> DataFrame:
    held, wanted = (_frame(spark, rows) for rows in ((HELD, WANTED) if key else (COPIES, WANTED_COPIES)))
    held = held.where("k IS NULL OR k <> 'apart'")  # the range of a correction does not contain it
    return difference(held, wanted, key=key, change=OWN_CHANGE) if key else bag_changes(held, wanted, OWN_CHANGE)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


@pytest.mark.parametrize("case", KEYS)
def test_deltalake_and_spark_make_the_same_changes(spark: SparkSession, lake: Lake, case: str) -> None:
    key = KEYS[case]
    lake.overwrite(_frame(spark, HELD if key else COPIES), "few", {"m": 1}, number=1, change_feed=True)
    shutil.copytree(lake.path("few"), lake.path("many"))
    jobs: dict[str, list[int]] = {}
    with ComputedChanges.compute(_changes(spark, key)) as changes:
        assert changes.ends == (10_000, 40_000)
        for table, made in {"few": changes, "many": replace(changes, few_rows=None)}.items():
            with jobs_of(spark) as jobs[table]:
                made.apply(lake, table, key, {"m": 2}, 2)
    assert (len(jobs["few"]), len(jobs["many"]) > 0) == (0, True)
    wanted = [*WANTED, ("apart", 6, 99)] if key else [*WANTED_COPIES, ("apart", 6, 99)]
    feeds = {table: _feed(spark, lake, table) for table in ("few", "many")}
    assert feeds["few"] == feeds["many"]
    assert set(feeds["few"]) == ({"insert", "update_preimage", "update_postimage", "delete"} if key else {"insert", "delete"})
    rows = json_rows_of({"few": lake.read(spark, "few"), "many": lake.read(spark, "many"), "wanted": _frame(spark, wanted)})
    assert rows["few"] == rows["many"] == rows["wanted"]
    for table in ("few", "many"):
        newest = lake.newest_commit(table, "m")
        assert newest is not None
        assert (newest.value, lake.transaction(table, "tidemark")) == (2, 2)


def _feed(spark: SparkSession, lake: Lake, table: str) -> dict[str, Counter[Any]]:
    """The changed rows of the second commit, by kind."""
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(lake.path(table))
    found: dict[str, Counter[Any]] = {}
    for kind, *row in rows_of(feed, "_change_type", "k", "n", "v", "third", "_commit_version"):
        found.setdefault(kind, Counter())[tuple(row)] += 1
    return found


def test_a_row_with_the_same_key_outside_of_the_range_is_not_changed(spark: SparkSession, lake: Lake) -> None:
    """A damaged table has a second row of a key, whose `final_at` is after all changes."""
    lake.overwrite(_frame(spark, [("a", 1, 10), ("a", 1, 99)]), "t", {"m": 1}, number=1)
    with ComputedChanges.compute(
        difference(*[_frame(spark, [("a", 1, v)]) for v in (10, 11)], key=("k", "n"), change=OWN_CHANGE)
    ) as changes:
        changes.apply(lake, "t", ("k", "n"), {"m": 2}, 2)
    assert rows_of(lake.read(spark, "t"), "v") == [(11,), (99,)]


def test_several_changes_of_a_key_are_refused_by_spark(spark: SparkSession, lake: Lake) -> None:
    """A damaged table has two rows of a key: two changes would match both, and the result would depend on their order."""
    held = _frame(spark, [("a", 1, 10), ("a", 1, 12)])
    lake.overwrite(held, "t", {"m": 1}, number=1)
    changes = difference(held, _frame(spark, [("a", 1, 11)]), key=("k", "n"), change=OWN_CHANGE)
    with ComputedChanges.compute(changes) as computed, pytest.raises(PySparkException, match="MULTIPLE_SOURCE_ROW"):
        computed.apply(lake, "t", ("k", "n"), {"m": 2}, 2)
    assert lake.version("t") == 0


def test_a_table_that_deltalake_cannot_compare_is_changed_by_spark(spark: SparkSession, lake: Lake) -> None:
    """Without a key every column is compared, and a NaN equals a NaN for Spark only."""
    held, wanted = (
        spark.sql(f"SELECT timestamp_millis(1000L) AS final_at, {sql} AS x") for sql in ("float('NaN')", "explode(array(float('NaN'), 0))")
    )
    lake.overwrite(held.union(held), "t", {"m": 1}, number=1)
    with ComputedChanges.compute(bag_changes(held.union(held), wanted, OWN_CHANGE)) as changes:
        changes.apply(lake, "t", (), {"m": 2}, 2)
    assert sorted(map(str, rows_of(lake.read(spark, "t"), "x"))) == ["(0.0,)", "(nan,)"]


def test_a_correction_that_was_already_made_is_refused(spark: SparkSession, lake: Lake) -> None:
    lake.overwrite(_frame(spark, HELD), "t", {"m": 2}, number=2)
    with ComputedChanges.compute(_changes(spark, ("k", "n"))) as changes, pytest.raises(LakeError, match="another writer"):
        changes.apply(lake, "t", ("k", "n"), {"m": 2}, 2)
    assert lake.version("t") == 0
