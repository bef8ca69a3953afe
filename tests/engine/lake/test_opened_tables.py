"""A table is opened once for all readers until it has a new version; a snapshot and a writer keep the version that they read."""

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Never, cast

import deltalake
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from pyspark.sql import SparkSession

from platform_defs.engine.lake import reads
from platform_defs.engine.lake.commits import commit_options, write_actions
from platform_defs.engine.lake.errors import LakeError, UnreadableLogError
from platform_defs.engine.lake.log_ends import LogEnd
from platform_defs.engine.lake.opened_tables import OpenedTable
from platform_defs.engine.lake.tables import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that were opened since the test began."""
    opened = list[str]()

    def open_table(path: str, **how: object) -> DeltaTable:
        opened.append(Path(path).name)
        return deltalake.DeltaTable(path, **how)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(reads, "DeltaTable", open_table)
    return opened


def _write(lake: Lake, *values: int) -> None:
    write_deltalake(lake.path("t"), pa.table({"v": pa.array(values, pa.int64())}), mode="append")


def test_an_earlier_version_is_missing_only_if_a_file_is(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (1, 2):
        _write(lake, value)
    assert lake.delta_at_version("t", 2) is None
    behind_uri, first = replace(lake, root=f"file://{lake.root}", leases=True), lake.delta_at_version("t", 0)
    assert first is not None
    with monkeypatch.context() as patch:
        patch.setattr(reads, "DeltaTable", _slow_down)
        with pytest.raises(LakeError, match=r"the lake .* cannot be used: its store refused, or cannot be reached .*503 Slow Down"):
            behind_uri.delta_at_version("t", 0)
        patch.setattr(reads, "DeltaTable", _io_error)
        with pytest.raises(LakeError, match=r"t cannot be read now .*Input/output error"):
            lake.delta_at_version("t", 0)
        patch.setattr(reads, "DeltaTable", _not_permitted)
        assert lake.delta_at_version("t", 0) is None
    Path(first.file_uris()[0]).unlink()
    assert behind_uri.delta_at_version("t", 0) is None


def _slow_down(*_: object, **__: object) -> None:
    raise OSError("Generic S3 error: Error performing GET https://s3/x: 503 Slow Down, SlowDown: Please reduce your request rate")


def _io_error(*_: object, **__: object) -> Never:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def _not_permitted(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _rows(delta: DeltaTable | None) -> int:
    assert delta is not None
    return sum(pa.table(delta.get_add_actions(flatten=True))["num_records"].to_pylist())


READS: list[Callable[[Lake], object]] = [
    lambda lake: lake.version("t"),
    lambda lake: lake.identity("t"),
    lambda lake: lake.schema("t"),
    lambda lake: lake.transaction("t", "application"),
    lambda lake: lake.snapshot().exists("t"),
]


def test_a_table_without_a_new_version_is_opened_once(lake: Lake, opens: list[str]) -> None:
    _write(lake, 1)
    for read in READS * 2:
        assert read(lake) == read(Lake(lake.root))
    assert opens == ["t"]


def test_a_commit_that_the_disk_cannot_show_does_not_count_as_missing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a fault of the disk is EIO, or ESTALE of NFS."""
    _write(lake, 1)
    assert lake.version("t") == 0
    _write(lake, 2)
    look = Path.stat

    def stat(path: Path, **how: bool) -> os.stat_result:
        return _io_error() if path.name == f"{1:020}.json" else look(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", stat)
        assert lake.log_end("t", 0) == LogEnd({}, None)
        assert lake.version("t") == 1
        shutil.rmtree(Path(lake.path("t")))
        for value in (3, 4, 5):
            _write(lake, value)
        files = cast(Any, lake.delta("t")).file_uris()
        assert [Path(file).exists() for file in files] == [True] * 3, "none of the deleted table"


def test_an_opened_table_is_brought_up_to_date_unless_somebody_reads_it(lake: Lake, opens: list[str]) -> None:
    _write(lake, 1)
    assert lake.version("t") == 0
    _write(lake, 2)
    assert (lake.version("t"), _rows(lake.delta_for_reading("t")), opens) == (1, 2, ["t"])
    snapshot = lake.snapshot()
    assert snapshot.version("t") == 1
    _write(lake, 3)
    assert (lake.version("t"), _rows(lake.delta_for_reading("t")), opens) == (2, 3, ["t", "t"])
    assert (snapshot.version("t"), _rows(snapshot.delta_for_reading("t"))) == (1, 2)
    del snapshot
    _write(lake, 4)
    assert (lake.version("t"), opens) == (3, ["t", "t"])


def _commit_number(lake: Lake, number: int) -> None:
    """A commit without rows, with an application's number and metadata."""
    table = DeltaTable(lake.path("t"))
    write_actions(table, [], "append", table.schema(), commit_options({"m": number}, number, "application"))


def test_a_log_is_asked_once_for_each_version(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ask = list[str](), DeltaTable.transaction_version

    def record(delta: DeltaTable, application: str) -> int | None:
        asked.append(application)
        return ask(delta, application)

    monkeypatch.setattr(deltalake.DeltaTable, "transaction_version", record)
    _write(lake, 1)
    for number in (3, 4):
        _commit_number(lake, number)
        snapshot = lake.snapshot()
        for reader in (lake, lake, snapshot, Lake(lake.root)):
            newest = reader.newest_commit("t", "m")
            assert (reader.transaction("t", "application"), newest and newest.value) == (number, number)
            assert reader.transaction("t", "other") is None
        assert asked == ["application", "other"]
        asked.clear()


def test_a_commit_through_the_table_of_a_snapshot_changes_what_the_snapshot_reads(lake: Lake) -> None:
    _write(lake, 1)
    _commit_number(lake, 3)
    snapshot = lake.snapshot()
    own = snapshot.delta("t")
    assert own is not None
    newest = snapshot.newest_commit("t", "m")
    assert (snapshot.transaction("t", "application"), newest and newest.value) == (3, 3)
    own.delete(**commit_options({"m": 4}, 4, "application"))
    newest = snapshot.newest_commit("t", "m")
    assert (own.version(), snapshot.transaction("t", "application"), newest and newest.value) == (2, 4, 4)


def test_a_damaged_commit_is_named_if_a_number_is_asked_for(lake: Lake) -> None:
    _write(lake, 1)
    _commit_number(lake, 3)
    assert lake.version("t") == 1
    Path(lake.path("t"), "_delta_log", f"{0:020}.json").write_text('{"add"')
    with pytest.raises(UnreadableLogError, match="t"):
        lake.transaction("t", "other")


def test_the_answers_of_a_log_that_was_restored_are_forgotten(lake: Lake) -> None:
    _write(lake, 1)
    _commit_number(lake, 3)
    newest = lake.newest_commit("t", "m")
    assert (lake.transaction("t", "application"), newest and newest.value) == (3, 3)
    Path(lake.path("t"), "_delta_log", f"{1:020}.json").unlink()
    _commit_number(lake, 5)
    newest = lake.newest_commit("t", "m")
    assert (lake.version("t"), lake.transaction("t", "application"), newest and newest.value) == (1, 5, 5)


CHANGES: dict[str, Callable[[DeltaTable], object]] = {
    "more columns": lambda table: table.alter.add_columns([Field("w", "string")]),
    "other properties": lambda table: table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"}),
    "other rows": lambda table: table.update({"v": "v + 1"}),
    "no rows": lambda table: table.delete(),
    "other columns": lambda table: write_deltalake(table, pa.table({"x": ["a"]}), mode="overwrite", schema_mode="overwrite"),
    "an application": lambda table: table.create_write_transaction(
        [], "append", table.schema(), commit_properties=CommitProperties(app_transactions=[Transaction("application", 7)])
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_that_is_brought_up_to_date_is_the_one_that_is_opened(lake: Lake, opens: list[str], change: str) -> None:
    _write(lake, 1, 2)
    assert lake.version("t") == 0
    CHANGES[change](DeltaTable(lake.path("t")))
    updated, opened = lake.delta_for_reading("t"), DeltaTable(lake.path("t"))
    assert updated is not None
    assert opens == ["t"]
    for look in (DeltaTable.schema, DeltaTable.version, lambda t: sorted(t.file_uris()), lambda t: t.transaction_version("application")):
        assert look(updated) == look(opened)
    assert updated.protocol() == opened.protocol()
    assert str(updated.metadata()) == str(opened.metadata())


def test_a_commit_through_a_snapshot_does_not_open_the_table_again(lake: Lake, opens: list[str], spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1L AS v")
    lake.append(frame, "t", {"step": 1})
    snapshot, opened = lake.snapshot(), [*opens]
    assert snapshot.newest_commit("t", "step") is not None
    snapshot.append(frame, "t", {"step": 2}, after=1)
    newest = lake.newest_commit("t", "step")
    assert newest is not None
    assert (newest.version, newest.value, snapshot.newest_commit("t", "step")) == (1, 2, newest)
    assert opens == [*opened, "t"]


def test_an_append_leaves_what_others_read(lake: Lake, spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1L AS v")
    lake.append(frame, "t", {"step": 1})
    reader = lake.delta_for_reading("t")
    lake.append(frame, "t", {"step": 2}, after=1)
    assert reader is not None
    assert (reader.version(), _rows(reader), lake.version("t"), _rows(lake.delta_for_reading("t"))) == (0, 1, 1, 2)


def test_a_table_that_is_deleted_or_created_again_is_not_read_from_memory(lake: Lake) -> None:
    assert lake.version("t") is None
    _write(lake, 1)
    first = lake.identity("t")
    shutil.rmtree(lake.path("t"))
    assert (lake.exists("t"), lake.identity("t")) == (False, None)
    _write(lake, 2, 3)
    assert lake.identity("t") not in (None, first)
    assert _rows(lake.delta_for_reading("t")) == 2


def test_a_table_is_opened_again_after_its_log_was_cleaned_up(lake: Lake) -> None:
    """deltalake looks for an application's number in older commits only when asked; they may be deleted by then."""
    for value in range(6):
        _write(lake, value)
    assert lake.transaction("t", "retention") is None
    for commit in Path(lake.path("t"), "_delta_log").glob("0*.json"):
        long_ago = commit.stat().st_mtime - 40 * 86_400
        os.utime(commit, (long_ago, long_ago))
    assert lake.transaction("t", "retention") is None
    maintained = DeltaTable(lake.path("t"))
    maintained.create_checkpoint()
    maintained.cleanup_metadata()
    assert (lake.transaction("t", "retention"), lake.snapshot().transaction("t", "retention")) == (None, None)
    assert lake.version("t") == 5


def test_a_commit_through_one_snapshot_changes_no_other_snapshot(lake: Lake) -> None:
    _write(lake, 1)
    snapshot, other = lake.snapshot(), lake.snapshot()
    assert (snapshot.version("t"), other.version("t")) == (0, 0)
    own = snapshot.delta("t")
    assert own is not None
    own.delete("v = 1")
    assert (snapshot.version("t"), other.version("t"), lake.version("t")) == (1, 0, 1), "the snapshot has the commit made through it"
    assert (_rows(other.delta_for_reading("t")), _rows(lake.delta_for_reading("t"))) == (1, 0)


def test_a_snapshot_of_a_table_that_was_created_again_cannot_be_written_to(lake: Lake) -> None:
    _write(lake, 1)
    snapshot = lake.snapshot()
    assert snapshot.exists("t")
    shutil.rmtree(lake.path("t"))
    with pytest.raises(LakeError, match="t has a newer log than this process started from"):
        snapshot.delta("t")
    _write(lake, 1)
    with pytest.raises(LakeError, match="t has a newer log than this process started from"):
        snapshot.delta("t")


def test_the_tables_that_were_used_last_stay_open(lake: Lake, opens: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform_defs.engine.lake.opened_tables._MOST_TABLES", 2)
    for name in ("a", "b", "c"):
        write_deltalake(lake.path(name), pa.table({"v": [1]}))
        lake.version(name)
    opens.clear()
    assert [lake.version(name) for name in ("c", "b", "a")] == [0, 0, 0]
    assert opens == ["a"]


def _merge(lake: Lake, number: int, *values: int) -> OpenedTable:
    """Merge values as a step does; returns the opened table through which it was done."""
    opened, no_session = lake.small_table("t", ["v"]), cast(Any, None)
    assert opened is not None
    rows = pa.table({"v": pa.array(values, pa.int64())})
    lake.upsert_fetched(no_session, opened, "t", rows, ["v"], is_deleted="FALSE", metadata={"step": number}, number=number)
    return opened


def _values(lake: Lake) -> list[int]:
    return sorted(pa.table(DeltaTable(lake.path("t")).to_pyarrow_table())["v"].to_pylist())


def test_merges_use_one_opened_table_until_another_table_has_its_name(lake: Lake, opens: list[str]) -> None:
    _write(lake, 1)
    first = _merge(lake, 1, 1, 2)
    opened = len(opens)
    _write(lake, 3)  # another writer
    assert _merge(lake, 2, 3, 4) is first
    assert (_values(lake), len(opens)) == ([1, 2, 3, 4], opened)
    DeltaTable(lake.path("t")).create_checkpoint()
    assert _merge(lake, 3, 5) is first
    shutil.rmtree(lake.path("t"))
    for value in (6, 7, 8, 9, 10, 11):
        _write(lake, value)
    _merge(lake, 4, 6, 12)
    assert _values(lake) == [6, 7, 8, 9, 10, 11, 12]


def test_no_two_writers_merge_through_one_opened_table(lake: Lake) -> None:
    _write(lake, 1)
    kept = _merge(lake, 1, 2)
    first, second = lake.small_table("t", ["v"]), lake.small_table("t", ["v"])
    assert first is kept
    assert second is not None
    assert second is not kept
    assert second.delta is not kept.delta


def test_the_table_of_a_refused_merge_is_not_used_again(lake: Lake) -> None:
    _write(lake, 1)
    kept = _merge(lake, 1, 2)
    newer = CommitProperties(app_transactions=[Transaction("tidemark", 5)])
    write_deltalake(lake.path("t"), pa.table({"v": pa.array([3], pa.int64())}), mode="append", commit_properties=newer)
    with pytest.raises(LakeError, match="t has a newer step"):
        _merge(lake, 2, 4)
    assert _values(lake) == [1, 2, 3]
    assert _merge(lake, 6, 4) is not kept
    assert _values(lake) == [1, 2, 3, 4]
