"""Tiny files of a table are merged after a commit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from platform_defs.engine.lake import compaction, merged_files
from platform_defs.engine.lake.merged_files import merge_files
from platform_defs.engine.lake.tables import Lake
from tests.support.every_type import rows_of_every_type
from tests.support.json_rows import json_rows_of
from tests.support.spark_jobs import jobs_of

BOUNDED = ["k", "text", "first_time", "day", "exact", "double"]
MORE = {
    "not_text": "CAST(X'C328' AS string)",
    "odd `name.": "id",
    "odd_field": "struct(id AS `a b`)",
}
"""Further columns: a string that is not UTF-8, and names that need quotes."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "a lake in ü"))


def _paths(lake: Lake) -> list[Path]:
    actions = DeltaTable(lake.path("t")).get_add_actions(flatten=True)
    return [Path(lake.path("t"), path) for path in actions["path"].to_pylist()]


def _files(lake: Lake) -> int:
    return len(_paths(lake))


def _merge(lake: Lake, below: int = compaction.TINY_BYTES) -> bool:
    return merge_files(DeltaTable(lake.path("t")), lake.path("t"), lake.storage_options, below)


def _append(lake: Lake, spark: SparkSession, n: int) -> None:
    lake.append(spark.range(2 * n, 2 * n + 2, 1, 1), "t", {"key": n}, pruned_by=["id"], change_feed=True)


def _ids(lake: Lake, spark: SparkSession) -> list[int]:
    return sorted(row.id for row in lake.read(spark, "t").collect())


@pytest.fixture
def never_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits merge no files."""
    monkeypatch.setattr(compaction, "MANY_TINY_FILES", 1 << 30)


@pytest.mark.usefixtures("never_merged")
def test_a_merge_keeps_all_values_and_bounds_and_disturbs_no_reader(spark: SparkSession, lake: Lake) -> None:
    """One column was added after the first files were written."""

    def seen() -> tuple[Any, ...]:
        rows = lake.read(spark, "t")
        as_text = rows.withColumn("not_text", F.hex(rows.not_text.cast("binary")))
        log = pa.table(DeltaTable(lake.path("t")).get_add_actions(flatten=True))
        bounds = lake.extent("t", ["k", "text"], {}), lake.time_extent("t", "first_time", {}), {*log.column_names}
        return json_rows_of({"t": as_text}), rows.schema, lake.newest_commit("t", "key"), bounds

    for n in range(4):
        lake.append(
            rows_of_every_type(spark, n, n + 1, **MORE | ({"added": "id"} if n > 1 else {})), "t", {"key": n}, pruned_by=BOUNDED, widen=True
        )
    reader, before = lake.read(spark, "t"), seen()
    with jobs_of(spark) as jobs:
        assert _merge(lake)
    assert jobs == []
    assert (_files(lake), seen()) == (1, before)
    assert reader.count() == 4
    assert json_rows_of({"t": spark.read.format("delta").load(lake.path("t")).drop("not_text")}) == json_rows_of(
        {"t": lake.read(spark, "t").drop("not_text")}
    )


def test_files_are_merged_whenever_there_are_many(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MANY_TINY_FILES", 4)
    counts, jobs_of_each = list[int](), set[int]()
    for n in range(8):
        with jobs_of(spark) as jobs:
            _append(lake, spark, n)
        counts.append(_files(lake))
        jobs_of_each.add(len(jobs))
    assert counts == [1, 2, 3, 1, 2, 3, 1, 2]
    assert jobs_of_each == {1}, "a merge needs no job"
    [merged] = [file for file in _paths(lake) if pq.read_metadata(file).num_rows > 2]
    assert pq.read_table(merged)["id"].to_pylist() == [*range(14)]
    assert _ids(lake, spark) == [*range(16)]


@pytest.mark.usefixtures("never_merged")
def test_a_merge_is_no_change_for_readers_of_the_change_feed(spark: SparkSession, lake: Lake) -> None:
    for n in range(3):
        _append(lake, spark, n)
    assert _merge(lake)
    _append(lake, spark, 3)
    by_deltalake = pa.table(DeltaTable(lake.path("t")).load_cdf().read_all())
    by_spark = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(lake.path("t"))
    expected = [(n, "insert") for n in range(8)]
    assert sorted(zip(by_deltalake["id"].to_pylist(), by_deltalake["_change_type"].to_pylist(), strict=True)) == expected
    assert sorted((row.id, row._change_type) for row in by_spark.collect()) == expected


def _delete(lake: Lake) -> object:
    return DeltaTable(lake.path("t")).delete("id = 0")


@pytest.mark.parametrize("update", [False, True], ids=["", "the opened table is then updated"])
@pytest.mark.parametrize("other", [_merge, _delete], ids=["another merge", "a delete"])
@pytest.mark.usefixtures("never_merged")
def test_a_merge_that_another_commit_has_overtaken_commits_nothing(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, other: Callable[[Lake], object], update: bool
) -> None:
    """The other commit comes after the merged file is written. After another merge, deltalake's own compaction would double the rows."""
    for n in range(3):
        _append(lake, spark, n)
    opened, original = DeltaTable(lake.path("t")), merged_files.add_actions

    def overtaken(*args: Any) -> Any:
        monkeypatch.setattr(merged_files, "add_actions", original)
        other(lake)
        if update:
            opened.update_incremental()
        return original(*args)

    monkeypatch.setattr(merged_files, "add_actions", overtaken)
    assert not merge_files(opened, lake.path("t"), None, compaction.TINY_BYTES)
    assert lake.version("t") == 3
    assert _ids(lake, spark) == [*range(1 if other is _delete else 0, 6)]


@pytest.mark.usefixtures("never_merged")
def test_large_files_and_a_single_small_file_are_not_merged(spark: SparkSession, lake: Lake) -> None:
    for n in range(2):
        _append(lake, spark, n)
    [size, *_] = compaction.file_sizes(DeltaTable(lake.path("t")))
    assert not _merge(lake, below=size)
    assert _merge(lake, below=size + 1)
    assert not _merge(lake)


@pytest.mark.usefixtures("never_merged")
def test_a_merge_reads_no_more_rows_and_bytes_than_its_limits(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(4):
        _append(lake, spark, n)
    monkeypatch.setattr(merged_files, "MOST_ROWS", 5)
    assert _merge(lake)
    assert _files(lake) == 3
    monkeypatch.setattr(merged_files, "MOST_ROWS", 1 << 30)
    monkeypatch.setattr(merged_files, "MOST_BYTES", sum(compaction.file_sizes(DeltaTable(lake.path("t")))) - 1)
    assert _merge(lake)
    assert _files(lake) == 2
    assert _ids(lake, spark) == [*range(8)]


@pytest.mark.parametrize(
    "columns", [{"ID": [7]}, {"id": [7], "other": [7]}, {"id": ["7"]}], ids=["in another case", "one more", "of another type"]
)
@pytest.mark.usefixtures("never_merged")
def test_a_file_with_other_columns_than_the_table_is_not_merged(spark: SparkSession, lake: Lake, columns: dict[str, list[Any]]) -> None:
    """Tidemark writes no such file. Spark reads it by the names of the columns, in any case."""
    _append(lake, spark, 0)
    [path] = _paths(lake)
    _append(lake, spark, 1)
    pq.write_table(pa.table(columns), path)
    with pytest.raises(pa.ArrowInvalid, match="has other columns than the table"):
        _merge(lake)
    assert lake.version("t") == 1


@pytest.mark.usefixtures("never_merged")
def test_a_file_whose_name_is_a_uri_in_the_log_is_not_merged(spark: SparkSession, lake: Lake) -> None:
    _append(lake, spark, 0)
    Path(lake.path("t"), "x y").mkdir()
    file = Path(lake.path("t"), "x y", "f.parquet")
    pq.write_table(pa.table({"id": [9]}), file)
    action = AddAction("x y/f.parquet", file.stat().st_size, {}, 0, True, '{"numRecords": 1}')
    DeltaTable(lake.path("t")).create_write_transaction([action], "append", DeltaTable(lake.path("t")).schema())
    _append(lake, spark, 1)
    assert _merge(lake)
    assert _files(lake) == 2
    by_delta = spark.read.format("delta").load(lake.path("t"))  # a read of the lake does not find the file
    assert sorted(row.id for row in by_delta.collect()) == [0, 1, 2, 3, 9]


@pytest.mark.compiled  # interpreted plans cannot write deletion vectors
def test_files_of_a_table_with_deletion_vectors_are_left_to_spark(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compaction, "MANY_TINY_FILES", 2)
    lake.overwrite(spark.range(9), "t", {"key": 0}, deletion_vectors=True)
    for n in range(1, 3):
        lake.append(spark.range(n, n + 1, 1, 1), "t", {"key": n})
    assert lake.version("t") == 2
    assert caplog.text == ""


def test_a_file_that_cannot_be_merged_is_logged_and_checkpoints_are_written(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compaction, "CHECKPOINT_EVERY", 3)
    monkeypatch.setattr(compaction, "MANY_TINY_FILES", 3)
    for n in range(2):
        _append(lake, spark, n)
    _paths(lake)[0].unlink()
    for n in range(2, 4):
        _append(lake, spark, n)
    assert "the tiny files of t were not merged" in caplog.text
    assert lake.version("t") == 3
    assert DeltaTable(lake.path("t")).version() == 3
    assert Path(lake.path("t"), "_delta_log/00000000000000000003.checkpoint.parquet").exists()
