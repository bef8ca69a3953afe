"""Commits by deltalake that fail, or whose answer is lost. No test starts Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.table import TableAlterer
from pyspark.sql.types import LongType, StringType, StructType

from platform_defs.engine.lake import commits
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake

ROWS = pa.table({"a": [1, 2]})
NO_SESSION: Any = None
CHANGES: dict[str, Callable[[Lake, DeltaTable], object]] = {
    "delete": lambda lake, seen: lake.delete(NO_SESSION, "t", "a = 1", {"m": 1}, seen),
    "update": lambda lake, seen: lake.update(NO_SESSION, "t", "a = 1", {"a": "3"}, {"m": 1}, seen),
}
ANSWERS = {"conflict": CommitFailedError("a conflict"), "reset": OSError("the connection was reset"), "other": DeltaError("no answer")}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path))


@pytest.mark.parametrize("change", CHANGES)
def test_a_failed_commit_is_not_called_another_writer(lake: Lake, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    lake.append_small(ROWS, "t", {"m": 0})
    seen = DeltaTable(lake.path("t"))

    def fail(*_: object, **__: object) -> None:
        raise CommitFailedError("the store failed")

    monkeypatch.setattr(DeltaTable, change, fail)
    with pytest.raises(LakeError, match=r"nothing was committed to t: .*the store failed"):
        CHANGES[change](lake, seen)


def _create(lake: Lake) -> DeltaTable | None:
    return commits.create(lake.path("t"), StructType().add("a", LongType()), [], {"id": "own"}, {})


def _fail(*_: object, **__: object) -> None:
    raise OSError("Generic S3 error: 503 Service Unavailable")


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("reading", ["is_deltatable", "the log", None])
def test_a_creation_whose_answer_was_lost_is_found_if_the_log_can_be_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, answer: Exception, reading: str | None
) -> None:
    create = commits.create_table_with_add_actions

    def lose(*args: Any, **more: Any) -> None:
        create(*args, **more)
        raise answer

    with monkeypatch.context() as patch:
        patch.setattr(commits, "create_table_with_add_actions", lose)
        if reading == "is_deltatable":
            patch.setattr(DeltaTable, "is_deltatable", _fail)
        elif reading == "the log":
            patch.setattr(commits, "is_committed", _fail)
        if reading is None:
            assert _create(lake) is None
        else:
            with pytest.raises(LakeError, match=r"this process's commit to .*/t succeeded is not known: .*503 Service Unavailable\)"):
                _create(lake)
    assert lake.version("t") == 0


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_creation_that_failed_is_not_called_unknown_or_another_writer(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, answer: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise answer

    monkeypatch.setattr(commits, "create_table_with_add_actions", fail)
    with pytest.raises(type(answer), match=str(answer)):
        _create(lake)
    lake.append_small(ROWS, "t", {"m": 0})
    other = _create(lake)
    assert other is not None
    assert other.version() == 0


def test_a_table_that_another_writer_creates_after_a_snapshot_is_called_another_writer(lake: Lake) -> None:
    snapshot = lake.snapshot()
    assert not snapshot.exists("t")
    lake.append_small(ROWS, "t")
    with pytest.raises(LakeError, match="t has a newer version than this process started from: another writer has committed"):
        snapshot.append_small(ROWS, "t", expected=None)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_properties_whose_answer_was_lost_are_found(lake: Lake, monkeypatch: pytest.MonkeyPatch, answer: Exception) -> None:
    lake.append_small(ROWS, "t")
    seen, set_properties = DeltaTable(lake.path("t")), TableAlterer.set_table_properties

    def lose(*args: Any, **more: Any) -> None:
        set_properties(*args, **more)
        raise answer

    monkeypatch.setattr(TableAlterer, "set_table_properties", lose)
    assert commits.set_properties(seen, {"delta.enableChangeDataFeed": "true"}) is None
    assert seen.version() == 1


def test_a_column_is_added_after_another_writers_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.append_small(ROWS, "t", {"m": 0})
    seen, add_columns = DeltaTable(lake.path("t")), TableAlterer.add_columns

    def add_late(*args: Any, **more: Any) -> None:
        monkeypatch.undo()
        lake.append_small(ROWS, "t", {"m": 1})
        add_columns(*args, **more)

    monkeypatch.setattr(TableAlterer, "add_columns", add_late)
    wide = commits.widen(seen, StructType().add("a", LongType()).add("b", StringType()))
    assert (wide.version(), [field.name for field in wide.schema().fields], seen.version()) == (2, ["a", "b"], 0)
