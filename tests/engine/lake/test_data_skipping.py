"""Data skipping reads all files that can contain rows of a range, and returns the rows that Delta returns."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from platform_defs.engine.lake import data_skipping
from platform_defs.engine.lake.data_skipping import Ranges, extent, matching_files
from platform_defs.engine.lake.tables import Lake

MINUTE = 60_000


def _time(minute: float) -> datetime:
    return datetime.fromtimestamp(minute * 60, UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table of three files: minutes and numbers 0 to 9, 10 to 19, and 20 with a null number; each file has one letter."""
    lake = Lake(str(tmp_path / "lake"))
    for letter, numbers in (("a", [*range(10)]), ("b", [*range(10, 20)]), ("c", [20, None])):
        times = pa.array([_time(20 if n is None else n) for n in numbers], pa.timestamp("us", "UTC"))
        write_deltalake(
            lake.path("t"), pa.table({"n": pa.array(numbers, pa.int64()), "at": times, "s": [letter] * len(numbers)}), mode="append"
        )
    return lake


def _delta(lake: Lake) -> DeltaTable:
    found = lake.delta("t")
    assert found is not None
    return found


RANGES: list[tuple[Ranges, str]] = [
    ({}, "abc"),
    ({"n": (None, None)}, "abc"),
    ({"n": (9, 10)}, "ab"),
    ({"n": (10, 10)}, "b"),
    ({"n": (None, 9)}, "a"),
    ({"n": (20, None)}, "c"),
    ({"n": (21, None)}, ""),
    ({"n": (5, 15), "s": ("b", "b")}, "b"),
    ({"s": ("aa", "bb")}, "b"),
    ({"at": (10 * MINUTE, 10 * MINUTE)}, "b"),
    ({"at": (9 * MINUTE + 1, 10 * MINUTE - 1)}, ""),
    ({"at": (9 * MINUTE, 9 * MINUTE)}, "a"),
    ({"unknown": (1, 2)}, "abc"),
    ({"n": [(0, 3), (20, 25)]}, "ac"),
    ({"n": [(21, None), (None, -1)]}, ""),
    ({"n": [(None, None), (20, 20)]}, "abc"),
    ({"n": [(0, 3), (11, 12)], "s": ("b", "c")}, "b"),
]


@pytest.mark.parametrize(("within", "letters"), RANGES)
def test_files_that_contain_no_row_of_the_range_are_skipped(lake: Lake, within: Ranges, letters: str) -> None:
    matching = matching_files(_delta(lake), within)
    every = dict(zip(("c", "b", "a"), pa.table(_delta(lake).get_add_actions())["path"].to_pylist(), strict=True))
    assert matching is not None
    assert sorted(matching) == sorted(every[letter] for letter in letters)


def test_a_file_without_a_minimum_and_maximum_is_read(lake: Lake) -> None:
    unknown = pa.table({"n": pa.array([None], pa.int64()), "at": pa.array([None], pa.timestamp("us", "UTC")), "s": ["d"]})
    write_deltalake(lake.path("t"), unknown, mode="append")
    assert len(matching_files(_delta(lake), {"n": (900, 901)}) or ()) == 1


def test_a_partitioned_table_is_read_by_delta(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"n": [1, 2], "p": ["a", "b"]}), partition_by=["p"])
    assert matching_files(DeltaTable(tmp_path / "t"), {"n": (1, 1)}) is None


def test_a_table_with_column_mapping_is_read_by_delta(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "lake" / "t"
    spark.range(3).withColumnRenamed("id", "a").write.format("delta").save(str(path))
    modes = "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({modes})")
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN a TO b")
    assert matching_files(DeltaTable(path), {}) is None
    assert sorted(r.b for r in Lake(str(path.parent)).read(spark, "t").collect()) == [0, 1, 2]


def test_the_rows_read_equal_those_that_delta_reads(spark: SparkSession, lake: Lake) -> None:
    delta = spark.read.format("delta").load(lake.path("t"))
    assert lake.read(spark, "t").exceptAll(delta).isEmpty()
    assert delta.exceptAll(lake.read(spark, "t")).isEmpty()
    assert lake.read(spark, "t").dtypes == delta.dtypes
    in_range = lake.read(spark, "t", within={"n": (5, 12)}).where(F.col("n").between(5, 12))
    assert [r.n for r in in_range.orderBy("n").collect()] == [*range(5, 13)]
    assert lake.read(spark, "t", within={"n": (50, None)}).dtypes == delta.dtypes
    assert lake.read(spark, "t", within={"n": (50, None)}).isEmpty()


def test_files_are_listed_once_and_two_reads_of_a_table_can_be_joined(spark: SparkSession, lake: Lake) -> None:
    listed = data_skipping._cached_relation.cache_info
    one, other = lake.read(spark, "t"), lake.read(spark, "t")
    before = listed().misses
    again = lake.read(spark, "t")
    assert listed().misses == before
    joined = one.join(other, one["n"] == other["n"]).join(again, other["n"] == again["n"])
    assert joined.select(one["n"], again["s"]).count() == 21
    assert one.union(other).where(one["n"] == 5).count() == 2
    write_deltalake(lake.path("t"), pa.table({"n": [5], "at": pa.array([_time(0)]), "s": ["d"]}), mode="append")
    assert lake.read(spark, "t").count() == 23


def test_a_cached_relation_is_used_only_while_its_files_have_the_sizes_in_the_log(spark: SparkSession, lake: Lake) -> None:
    [file] = matching_files(_delta(lake), {"n": (0, 4)}) or []
    path = Path(lake.path("t"), file)
    content = path.read_bytes()
    path.write_bytes(b"")  # as a power cut can leave it
    with suppress(PySparkException, Py4JJavaError):
        lake.read(spark, "t").count()
    path.write_bytes(content)
    assert lake.read(spark, "t").count() == 22
    path.unlink()
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        lake.read(spark, "t")


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(path.read_bytes() + b" ")], ids=["deleted", "longer"])
def test_a_file_that_changes_after_its_size_was_compared_is_not_left_out(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    [file] = matching_files(_delta(lake), {"n": (0, 4)}) or []
    change(Path(lake.path("t"), file))
    monkeypatch.setattr(data_skipping, "_have_sizes", lambda *_: True)
    data_skipping._cached_relation.cache_clear()
    with pytest.raises((PySparkException, Py4JJavaError)):
        lake.read(spark, "t").count()
    assert data_skipping._cached_relation.cache_info().currsize == 0


def test_files_with_nulls_are_read_if_they_are_wanted(spark: SparkSession, lake: Lake) -> None:
    within: Ranges = {"n": (0, 9)}
    assert lake.read(spark, "t", within=within).count() == 10
    assert lake.read(spark, "t", within=within, with_nulls=True).count() == 12


def test_rows_masked_by_deletion_vectors_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "lake" / "t"
    spark.range(10).write.format("delta").option("delta.enableDeletionVectors", "true").save(str(path))
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 3")
    lake = Lake(str(path.parent))
    assert sorted(r.id for r in lake.read(spark, "t", within={"id": (3, 4)}).collect()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        pytest.param({"n": (0, 15)}, {"n": (0, 19), "s": ("a", "b")}, id="whole files; a time in ms is no exact bound"),
        pytest.param({"n": (15, 20)}, {"s": ("b", "c")}, id="a null among the numbers"),
        pytest.param({"n": (30, 40)}, {}, id="no file"),
    ],
)
def test_the_range_of_the_selected_files_is_returned(lake: Lake, within: Ranges, expected: Ranges) -> None:
    assert extent(_delta(lake), ["n", "at", "s", "unknown"], within) == expected
