"""The record of what retention has removed from a log. No test starts Spark."""

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from assets.contracts import DerivedAsset
from platform_defs.engine.inputs import retained
from platform_defs.engine.inputs.progress import Progress
from platform_defs.engine.inputs.retained import (
    RemovedRows,
    RetainedDay,
    RetainedTable,
    delete_old_totals,
    has_lost_rows,
    removed_rows_of,
    write_totals,
)
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake, LakeSnapshot
from tests.support.example_operators import RunningTotal
from tests.support.small_sources import DAY, MINUTE, join, source

NO_SESSION = cast(Any, None)
L = source("l", retention="1 day")
TABLES = {"pairs": RetainedTable("id", 86_400_000, 7, (RetainedDay("l", "1970-01-01", {"accepted": 3, "late": 3}),))}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(str(tmp_path / "lake"))
    write_deltalake(made.path(L.log), pa.table({"seq": [1, 2, 3]}))
    return made


def _remove_rows(lake: Lake, number: int, condition: str) -> None:
    delta = lake.delta(L.log)
    assert delta is not None
    lake.remove(NO_SESSION, L.log, condition, number, delta)


@pytest.mark.parametrize(
    ("seq", "newest", "remaining"),
    [(3, 99, 0), (3, 100, 8), (4, 100, 10), (3, None, 8), (7, 99, 0), (8, 99, 10)],
    ids=["all removed", "some removed", "none removed", "an unknown newest row", "the last batch", "a later batch"],
)
def test_the_remaining_rows_of_a_batch_follow_from_its_newest_row_and_the_removed_part(
    seq: int, newest: int | None, remaining: int
) -> None:
    assert RemovedRows(1, 100, 7, batches={3: 2}).remaining_rows(seq, 10, newest) == remaining


def test_totals_count_only_once_the_rows_are_removed(lake: Lake) -> None:
    write_totals(lake, L, RemovedRows(1, 5, 1, 9))
    assert removed_rows_of(lake, L) is None
    write_totals(lake, L, RemovedRows(1, 6, 2, 1, {2: 4}, TABLES))
    before = LakeSnapshot.of(lake)
    assert before.delta(L.log) is not None
    _remove_rows(lake, 1, "seq = 1")
    assert removed_rows_of(lake, L) == RemovedRows(1, 6, 2, 1, {2: 4}, TABLES)
    assert removed_rows_of(before, L) is None, "a reader of the earlier version has all rows"


def test_a_checkpoint_and_a_truncated_log_keep_the_number(lake: Lake) -> None:
    write_totals(lake, L, RemovedRows(1, 5, 1, 1))
    _remove_rows(lake, 1, "seq = 1")
    write_deltalake(lake.path(L.log), pa.table({"seq": [4]}), mode="append")
    DeltaTable(lake.path(L.log)).create_checkpoint()
    log = Path(lake.path(L.log), "_delta_log")
    for commit in (0, 1):
        (log / f"{commit:020}.json").unlink()
    assert removed_rows_of(lake, L) == RemovedRows(1, 5, 1, 1)


def test_a_lost_file_and_one_of_another_log_are_reported(lake: Lake, tmp_path: Path) -> None:
    _remove_rows(lake, 1, "seq = 1")
    with pytest.raises(LakeError, match=r"events/l, and the file with their totals cannot be read: .*_retained/l/1\.json.*Restore it"):
        removed_rows_of(lake, L)
    other = Lake(str(tmp_path / "other"))
    write_deltalake(other.path(L.log), pa.table({"seq": [1]}))
    write_totals(other, L, RemovedRows(1, 5, 1, 1))
    Path(lake.root, "_retained", "l").mkdir(parents=True)
    Path(other.root, "_retained", "l", "1.json").rename(Path(lake.root, "_retained", "l", "1.json"))
    with pytest.raises(LakeError, match="it is of another log"):
        removed_rows_of(lake, L)


def _io_error(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_fault_of_the_store_is_not_called_a_lost_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("Generic S3 error: Error performing GET https://s3/x: 503 Slow Down, SlowDown: Please reduce your request rate")

    write_totals(lake, L, RemovedRows(1, 5, 1, 1))
    _remove_rows(lake, 1, "seq = 1")
    behind_uri = replace(lake, root=f"file://{lake.root}", leases=True)
    with monkeypatch.context() as patch:
        patch.setattr(retained, "filesystem", fail)
        with pytest.raises(LakeError, match=r"the lake .* cannot be used: its store refused, or cannot be reached .*503 Slow Down"):
            removed_rows_of(behind_uri, L)
        with pytest.raises(LakeError, match=r"the file with their totals cannot be read: .*_retained/l/1\.json .*503 Slow Down"):
            removed_rows_of(lake, L)
        patch.setattr(retained, "filesystem", _io_error)
        with pytest.raises(LakeError, match=r"events/l cannot be read now .*Input/output error"):
            removed_rows_of(lake, L)
    assert removed_rows_of(behind_uri, L) == RemovedRows(1, 5, 1, 1), "the error is not cached"


@pytest.mark.parametrize(
    ("now", "lost"),
    [
        (Progress(step=9, seq=7), False),
        (Progress(step=9, seq=6), True),
        (Progress(step=1, seq=6, complete_from=DAY), False),
        (Progress(step=1, seq=6, complete_from=DAY - 1), True),
    ],
    ids=["all batches", "not the last one", "a table that began after the removal", "a table that began after an earlier one"],
)
def test_a_table_has_lost_rows_of_batches_that_it_has_not_handled(now: Progress, lost: bool) -> None:
    total = DerivedAsset(name="total", inputs=("l",), operator=RunningTotal())
    assert has_lost_rows(RemovedRows(1, DAY, 7), total, now) == lost


@pytest.mark.parametrize(("closed_to", "lost"), [(DAY + 16 * MINUTE, False), (DAY + 14 * MINUTE, True)])
def test_a_join_has_lost_rows_that_it_may_still_read(closed_to: int, lost: bool) -> None:
    assert has_lost_rows(RemovedRows(1, DAY, 7), join(), Progress(step=9, seq=7, closed_to=closed_to)) == lost


def test_old_files_are_deleted(lake: Lake) -> None:
    for number in range(1, 11):
        write_totals(lake, L, RemovedRows(number, 5, 1, 1))
        delete_old_totals(lake, L, number)
    delete_old_totals(lake, L, 10)
    assert sorted(int(file.stem) for file in Path(lake.root, "_retained", "l").iterdir()) == [*range(3, 11)]
