"""The lake's tables and the metadata of their commits."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.table import TableMerger
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from platform_defs.engine.ingest.release import selected_rows_sql
from platform_defs.engine.lake import commits, compaction
from platform_defs.engine.lake import written_tables as lakes
from platform_defs.engine.lake.errors import LakeError, UnreadableLogError
from platform_defs.engine.lake.log_ends import LogEnd
from platform_defs.engine.lake.opened_tables import OpenedTable
from platform_defs.engine.lake.reads import Commit
from platform_defs.engine.lake.tables import Lake

ROWS = pa.table({"a": [1, 2]})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def _commit_of_another_program(lake: Lake, table: str, metadata: str | None) -> None:
    properties = None if metadata is None else CommitProperties(custom_metadata={"userMetadata": metadata})
    write_deltalake(lake.path(table), ROWS, mode="append", commit_properties=properties)


def test_a_missing_table_has_no_commit(lake: Lake) -> None:
    assert (lake.newest_commit("t", "key"), lake.version("t"), lake.delta("t")) == (None, None, None)


@pytest.mark.parametrize("others", [0, 1, 7, 8, 30])
def test_commits_of_other_programs_are_skipped(lake: Lake, others: int) -> None:
    lake.append_small(ROWS, "t", {"key": {"seq": 0}})
    lake.append_small(ROWS, "t", {"key": {"seq": 1}})
    for n in range(others):
        _commit_of_another_program(lake, "t", [None, "not JSON {", "[1]", '"key"', '{"other": 1}', "null"][n % 6])
    found = lake.newest_commit("t", "key")
    assert found is not None
    assert (found.version, found.value) == (1, {"seq": 1})
    assert lake.version("t") == 1 + others


def test_a_null_value_is_returned_as_a_value(lake: Lake) -> None:
    lake.append_small(ROWS, "t", {"key": {"seq": 1}})
    lake.append_small(ROWS, "t", {"key": None})
    assert lake.newest_commit("t", "key") == Commit(1, None, lake.newest_commit("t", "key").rows)  # pyright: ignore[reportOptionalMemberAccess]


def test_a_table_without_progress_is_named(lake: Lake) -> None:
    _commit_of_another_program(lake, "t", None)
    with pytest.raises(LakeError, match=re.escape("no commit of t records its progress")):
        lake.newest_commit("t", "progress")


def test_carried_metadata_is_the_newest_and_keeps_its_row_count(lake: Lake) -> None:
    lake.append_small(ROWS, "t", {"one": {"seq": 1}})
    lake.append_small(ROWS, "t", {"other": 2})
    known = {key: lake.newest_commit("t", key) for key in ("one", "other")}
    assert [c and c.version for c in known.values()] == [0, 1]
    carried = {key: replace(commit, rows=40 + n) for n, (key, commit) in enumerate(known.items()) if commit is not None}
    lake.carry_metadata(carried, DeltaTable(lake.path("t")))
    assert (lake.newest_commit("t", "one"), lake.newest_commit("t", "other")) == (Commit(2, {"seq": 1}, 40), Commit(2, 2, 41))
    lake.carry_metadata(
        {key: commit for key in carried if (commit := lake.newest_commit("t", key)) is not None}, DeltaTable(lake.path("t"))
    )
    assert (lake.newest_commit("t", "one"), lake.newest_commit("t", "other")) == (Commit(3, {"seq": 1}, 40), Commit(3, 2, 41))
    assert DeltaTable(lake.path("t")).to_pyarrow_table().num_rows == 4
    lake.append_small(ROWS, "t", {"one": {"seq": 2}})
    assert (lake.newest_commit("t", "one").value, lake.newest_commit("t", "other").version) == ({"seq": 2}, 3)  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(
    ("root", "canonical", "is_local"),
    [
        ("/data/lake", "/data/lake", True),
        ("lake", f"{Path.cwd()}/lake", True),
        ("file:///data/lake/", "/data/lake", True),
        ("s3a://b/lake", "s3a://b/lake", False),
        ("hdfs://h/lake/", "hdfs://h/lake", False),
    ],
)
def test_a_table_path_is_below_the_canonical_root(root: str, canonical: str, is_local: bool) -> None:
    assert Lake(root).path("events/l") == f"{canonical}/events/l"
    assert Lake(root).is_local is is_local


def test_a_commit_on_an_outdated_version_is_refused(lake: Lake) -> None:
    lake.append_small(ROWS, "t")
    seen = lake.delta("t")
    lake.append_small(ROWS, "t")
    with pytest.raises(LakeError, match="t has a newer version than this process started from"):
        lake.append_small(ROWS, "t", expected=seen)
    assert lake.version("t") == 1


def test_metadata_of_a_compaction_is_ignored(lake: Lake) -> None:
    """An automatic compaction gets its metadata from the session, which can contain that of another table."""
    lake.append_small(ROWS, "t", {"key": {"seq": 1}})
    lake.append_small(ROWS, "t", {"key": {"seq": 2}})
    metadata = CommitProperties(custom_metadata={"userMetadata": '{"key": {"seq": 9}}'})
    DeltaTable(lake.path("t")).optimize.compact(commit_properties=metadata)
    found = lake.newest_commit("t", "key")
    assert found is not None
    assert (found.version, found.value) == (1, {"seq": 2})


def test_an_append_that_leaves_many_small_files_compacts_them(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MANY_FILES", 4)
    counts = []
    for n in range(6):
        lake.append(spark.range(n, n + 1, 1, 1), "t", {"key": n}, pruned_by=["id"])
        counts.append(compaction.count_small_files(DeltaTable(lake.path("t"))))
        found = lake.newest_commit("t", "key")
        assert found is not None
        assert (found.value, found.rows) == (n, 1)
    assert counts == [1, 2, 3, 1, 2, 3]
    assert sorted(r.id for r in lake.read(spark, "t").collect()) == [*range(6)]


def test_deltalake_writes_the_checkpoints_of_a_log(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "CHECKPOINT_EVERY", 3)
    monkeypatch.setattr(compaction, "MANY_TINY_FILES", 100)
    for n in range(12):
        lake.append(spark.range(n, n + 1, 1, 1), "t", {"key": n})
    log = Path(lake.path("t"), "_delta_log")
    assert sorted(int(p.name.split(".")[0]) for p in log.glob("*.checkpoint*.parquet")) == [3, 4, 6, 7, 9, 10]
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 10
    assert spark.read.format("delta").load(lake.path("t")).count() == 12


@pytest.mark.parametrize(
    "error", [CommitFailedError("a concurrent transaction has committed"), OSError("the connection was reset")], ids=["conflict", "reset"]
)
def test_a_commit_whose_response_was_lost_is_recognized(lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The store makes the commit, its response is lost, and the retry finds the version taken."""
    lake.append_small(ROWS, "t")
    write = lakes.write_deltalake

    def lose(*args: Any, **more: Any) -> None:
        write(*args, **more)
        raise error

    seen = lake.delta("t")
    monkeypatch.setattr(lakes, "write_deltalake", lose)
    lake.append_small(ROWS, "t", {"key": 1}, expected=seen)
    assert (lake.version("t"), lake.newest_commit("t", "key").value) == (1, 1)  # pyright: ignore[reportOptionalMemberAccess]

    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(lakes, "write_deltalake", refuse)
    with pytest.raises(type(error), match=re.escape(str(error))):
        lake.append_small(ROWS, "t")
    assert lake.version("t") == 1


NO_SESSION: Any = None
SMALL_CHANGES: dict[str, tuple[str, Callable[[Lake, DeltaTable], object]]] = {
    "delete": ("delete", lambda lake, seen: lake.delete(NO_SESSION, "t", "a = 1", {"m": 1}, seen)),
    "delete no row": ("create_write_transaction", lambda lake, seen: lake.delete(NO_SESSION, "t", "a = 9", {"m": 1}, seen)),
    "remove": ("delete", lambda lake, seen: lake.remove(NO_SESSION, "t", "a = 1", 1, seen)),
    "update": ("update", lambda lake, seen: lake.update(NO_SESSION, "t", "a = 1", {"a": "3"}, {"m": 1}, seen)),
    "upsert": (
        "merge",
        lambda lake, seen: lake.upsert_fetched(
            NO_SESSION, OpenedTable(seen), "t", ROWS, ["a"], is_deleted="FALSE", metadata={"m": 1}, number=1
        ),
    ),
    "carry": ("create_write_transaction", lambda lake, seen: lake.carry_metadata({"m": Commit(0, 1, 2)}, seen)),
}
ANSWERS = {"conflict": CommitFailedError("a concurrent transaction has committed"), "reset": OSError("the connection was reset")}


def _losing(monkeypatch: pytest.MonkeyPatch, method: str, answer: Exception) -> None:
    """Let a method of deltalake commit, and then raise as if the store's answer were lost."""
    owner, name = (TableMerger, "execute") if method == "merge" else (DeltaTable, method)
    commit = getattr(owner, name)

    def lose(*args: Any, **more: Any) -> None:
        commit(*args, **more)
        raise answer

    monkeypatch.setattr(owner, name, lose)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("change", SMALL_CHANGES)
def test_a_small_change_whose_answer_was_lost_is_found(lake: Lake, monkeypatch: pytest.MonkeyPatch, change: str, answer: Exception) -> None:
    lake.append_small(ROWS, "t", {"m": 0})
    seen = DeltaTable(lake.path("t"))
    method, make = SMALL_CHANGES[change]
    _losing(monkeypatch, method, answer)
    make(lake, seen)
    assert (lake.version("t"), DeltaTable(lake.path("t")).version()) == (1, 1)
    assert change == "remove" or lake.newest_commit("t", "m") == Commit(1, 1, 2 if change == "carry" else ANY)


@pytest.mark.parametrize("change", SMALL_CHANGES)
def test_if_the_log_cannot_be_read_after_a_lost_answer_the_outcome_is_not_known(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    lake.append_small(ROWS, "t", {"m": 0})
    seen = DeltaTable(lake.path("t"))

    def fail(_: object) -> None:
        raise OSError("Generic S3 error: 503 Service Unavailable")

    method, make = SMALL_CHANGES[change]
    _losing(monkeypatch, method, OSError("the connection was reset"))
    monkeypatch.setattr(commits, "reopen", fail)
    with pytest.raises(
        LakeError, match=r"this process's commit to .*/t succeeded is not known: .*503 Service Unavailable\)\. Run the command again"
    ):
        make(lake, seen)


def test_if_the_log_cannot_be_read_after_a_commit_of_spark_the_outcome_is_not_known(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.append_small(ROWS, "t")

    def fail(*_: object) -> None:
        raise UnreadableLogError.of("t", "/lake/t", OSError("why"))

    monkeypatch.setattr(Lake, "delta", fail)
    with pytest.raises(LakeError, match="whether this process's commit to t succeeded is not known"):
        lake._check_commit_exists("t", 0, "an id")


def test_a_fault_of_the_maintenance_after_a_commit_is_only_logged(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise PySparkException("a row is quoted here", errorClass="UNKNOWN", messageParameters={})

    lake.append_small(ROWS, "t")
    monkeypatch.setattr(compaction, "MANY_FILES", 1)
    monkeypatch.setattr(Lake, "optimize", fail)
    lake.delete(NO_SESSION, "t", "a = 1", {"m": 1}, DeltaTable(lake.path("t")))
    assert lake.newest_commit("t", "m") == Commit(1, 1, ANY)
    assert "t has a new commit, but its maintenance failed: PySparkException" in caplog.text
    assert "quoted" not in caplog.text


def test_a_recreated_table_is_recognized_even_with_reused_inodes(lake: Lake) -> None:
    lake.append_small(ROWS, "t")
    before = lake.log_end("t", 0)
    commit = Path(lake.path("t"), "_delta_log", f"{0:020}.json")
    kept = commit.stat()
    assert lake.log_end("t", 0) == before
    os.utime(commit, ns=(kept.st_atime_ns, kept.st_mtime_ns + 1))
    assert lake.log_end("t", 0) != before
    commit.unlink()
    assert lake.log_end("t", 0) == LogEnd({}, None)


def test_an_update_of_an_outdated_version_fails(lake: Lake) -> None:
    """The search for the newest attempt skips the commits of updates. Quotes in values are escaped."""
    reasons = ["it's", "a\\", "\\'", "%_", "ü\n漢", "--", "{}$1?"]
    rows = pa.table({"seq": [1] * len(reasons), "reason": reasons, "raw": ["r"] * len(reasons), "path": reasons})
    lake.append_small(rows.append_column("released", pa.nulls(len(reasons), pa.string())), "t", {"attempt": {"seq": 1}})
    session: Any = None
    for n, reason in enumerate(reasons):
        seen, overtaken = lake.delta("t"), lake.delta("t")
        assert seen is not None
        assert overtaken is not None
        predicate = selected_rows_sql(1, [reason], [reason])
        lake.update(session, "t", predicate, {"released": "'it''s'"}, {"release": n}, seen)
        with pytest.raises(LakeError, match=r"t has a newer version than .* another writer has committed meanwhile"):
            lake.update(session, "t", predicate, {"released": "'x'"}, {"release": n}, overtaken)
        held = DeltaTable(lake.path("t")).to_pyarrow_table().to_pydict()
        assert {r for r, of in zip(held["reason"], held["released"], strict=True) if of == "it's"} == {*reasons[: n + 1]}
    assert lake.newest_commit("t", "attempt") == Commit(0, {"seq": 1}, lake.newest_commit("t", "attempt").rows)  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize("leases", [False, True], ids=["a path", "a URI"])
def test_folders_lists_the_subfolders_of_a_lake_or_a_folder(tmp_path: Path, leases: bool) -> None:
    lake = Lake(f"file://{tmp_path}/lake", leases=leases)
    assert lake.folders() == lake.folders("changelog") == []
    write_deltalake(lake.path("t"), ROWS)
    assert (lake.folders(), lake.folders("changelog"), lake.folders("t")) == (["t"], [], ["_delta_log"])
    write_deltalake(lake.path("changelog/top"), ROWS)
    assert (lake.folders(), lake.folders("changelog")) == (["changelog", "t"], ["top"])
    (tmp_path / "lake" / "file").write_text("no folder")
    assert lake.folders() == ["changelog", "t"]
