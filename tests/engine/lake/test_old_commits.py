"""After a commit that records no metadata, no commit of the log is deleted: an old one may have the metadata that is still needed."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from platform_defs.engine.lake import compaction
from platform_defs.engine.lake.tables import Lake
from tests.support.small_sources import DAY

NO_SESSION = cast("SparkSession", None)
Change = Callable[[Lake, DeltaTable], None]
CHANGES: dict[str, Change] = {
    "removed by retention": lambda lake, table: lake.remove(NO_SESSION, "t", "id < 5", 1, table),
    "marked as released": lambda lake, table: lake.update(NO_SESSION, "t", "id < 5", {"id": "id + 100"}, {"release": "r"}, table),
    "deleted": lambda lake, table: lake.delete(NO_SESSION, "t", "id < 5", {"other": 1}, table),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_newest_metadata_stays_although_its_commit_is_older_than_the_log_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    monkeypatch.setattr(compaction, "MANY_TINY_FILES", 1 << 30)  # the checkpoint would be of a later version, and delete no commit
    lake = Lake(str(tmp_path / "lake"))
    for n in range(compaction.CHECKPOINT_EVERY):
        lake.append_small(pa.table({"id": [n]}), "t", {"attempt": n})
    long_ago = time.time() - 91 * DAY / 1_000
    for commit in Path(lake.path("t"), "_delta_log").glob("*.json"):
        commit.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{int(long_ago * 1_000)}', commit.read_text()))
        os.utime(commit, (long_ago, long_ago))
    table = DeltaTable(lake.path("t"))
    assert table.version() == compaction.CHECKPOINT_EVERY - 1
    change(lake, table)
    assert [*Path(lake.path("t"), "_delta_log").glob("*.checkpoint.parquet")] != []
    newest = lake.newest_commit("t", "attempt")
    assert newest is not None
    assert newest.value == compaction.CHECKPOINT_EVERY - 1
