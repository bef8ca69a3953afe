"""The bounds of event times in a changelog: from the log's statistics, or if a table of an earlier version has none, from the files."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from platform_defs.engine.lake.data_skipping import time_extent

SCHEMA = pa.schema({"step": pa.int64(), "event_time": pa.timestamp("us", "UTC")})


def _table(path: Path, statistics: str, *steps: list[int | None]) -> DeltaTable:
    for step, times in enumerate(steps, 1):
        rows = pa.table({"step": [step] * len(times), "event_time": pa.array(times, SCHEMA.field(1).type)}, SCHEMA)
        write_deltalake(str(path), rows, mode="append", configuration={"delta.dataSkippingStatsColumns": statistics})
    return DeltaTable(str(path))


@pytest.mark.parametrize("statistics", ["step", "step,event_time"])
def test_the_times_of_steps_are_known_without_statistics_in_the_log(tmp_path: Path, statistics: str) -> None:
    delta = _table(tmp_path / "t", statistics, [1_000, 9_000], [5_000, None], [None], [-1_500])
    assert time_extent(delta, "event_time", {"step": (1, 1)}) == (1, 10)
    assert time_extent(delta, "event_time", {"step": (2, 3)}) == (5, 6)
    assert time_extent(delta, "event_time", {"step": (3, 3)}) is None
    assert time_extent(delta, "event_time", {"step": (1, 4)}) == (-2, 10)
    assert time_extent(delta, "event_time", {"step": (5, None)}) is None


def test_the_times_are_not_known_if_a_file_has_no_such_column_or_cannot_be_read(tmp_path: Path) -> None:
    delta = _table(tmp_path / "t", "step", [1_000])
    assert time_extent(delta, "other", {"step": (1, 1)}) == (None, None)
    for file in delta.file_uris():
        Path(file.removeprefix("file://")).unlink()
    assert time_extent(delta, "event_time", {"step": (1, 1)}) == (None, None)
