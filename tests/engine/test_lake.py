"""What the lake remembers, and whom it refuses."""

import os
import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from platform_defs.resources.lake import Commit, Lake, LakeError

ROWS = pa.table({"a": [1, 2]})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def _foreign(lake: Lake, table: str, told: str | None) -> None:
    properties = None if told is None else CommitProperties(custom_metadata={"userMetadata": told})
    write_deltalake(lake.path(table), ROWS, mode="append", commit_properties=properties)


def test_a_second_writer_is_told_who_writes_and_since_when(lake: Lake) -> None:
    told = rf"events/l has a writer already: process {os.getpid()} \(.+\) on .+ since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC; one writer"
    with lake.writer("events/l"):
        with pytest.raises(LakeError, match=told), lake.writer("events/l"):
            pass
        with lake.writer("events_l"), lake.writer("events"):
            pass
    with lake.writer("events/l"):
        pass


def test_a_writer_that_dies_leaves_the_lock_free(lake: Lake) -> None:
    with pytest.raises(ZeroDivisionError, match="division"), lake.writer("x"):
        _ = 1 // 0
    with lake.writer("x"):
        pass


def test_a_holder_without_a_name_is_refused_too(lake: Lake) -> None:
    with lake.writer("x"):
        next(Path(lake.root, "_locks").glob("*.holder")).unlink()
        with pytest.raises(LakeError, match="already: unknown; one"), lake.writer("x"):
            pass


def test_no_table_has_no_commit(lake: Lake) -> None:
    assert (lake.newest("t", "key"), lake.version("t"), lake.delta("t")) == (None, None, None)


@pytest.mark.parametrize("others", [0, 1, 7, 8, 30])
def test_commits_of_others_are_stepped_over(lake: Lake, others: int) -> None:
    lake.append_small(ROWS, "t", {"key": {"seq": 0}})
    lake.append_small(ROWS, "t", {"key": {"seq": 1}})
    for n in range(others):
        _foreign(lake, "t", [None, "not JSON {", "[1]", '"key"', '{"other": 1}', "null"][n % 6])
    found = lake.newest("t", "key")
    assert found is not None
    assert (found.version, found.value) == (1, {"seq": 1})
    assert lake.version("t") == 1 + others


def test_a_value_that_is_false_is_a_value(lake: Lake) -> None:
    lake.append_small(ROWS, "t", {"key": {"seq": 1}})
    lake.append_small(ROWS, "t", {"key": None})
    assert lake.newest("t", "key") == Commit(1, None, lake.newest("t", "key").rows)  # pyright: ignore[reportOptionalMemberAccess]


def test_a_table_that_remembers_nothing_is_named(lake: Lake) -> None:
    _foreign(lake, "t", None)
    with pytest.raises(LakeError, match=re.escape("no commit of t tells its progress")):
        lake.newest("t", "progress")


@pytest.mark.parametrize(("root", "local"), [("/data/lake", True), ("lake", True), ("s3a://b/lake", False), ("hdfs://h/lake/", False)])
def test_paths_below_a_root(root: str, local: bool) -> None:
    assert Lake(root).path("events/l") == root.rstrip("/") + "/events/l"
    assert Lake(root).is_local is local
