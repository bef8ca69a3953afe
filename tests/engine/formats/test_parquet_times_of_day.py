"""Parquet columns of type time of day, which Delta tables cannot store and Spark does not read."""

from datetime import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from platform_defs.engine.inputs.stored_rows import read_log
from tests.conftest import MakeEngine
from tests.support.small_sources import START, iso, rows_of, source


def test_a_time_of_day_that_the_contract_does_not_name_is_ignored(make_engine: MakeEngine) -> None:
    declared = "k string, v int, ts timestamp, at string"
    sources = [source("l"), source("added", new_columns="add"), source("out", new_columns="quarantine"), source("named", schema=declared)]
    engine = make_engine(sources, [])
    for name in engine.folders:
        rows = {"k": ["a"], "v": pa.array([1], pa.int32()), "ts": [iso(START)], "at": pa.array([time(1, 2, 3)], pa.time64("us"))}
        path = Path(engine.folders[name])
        path.mkdir(parents=True)
        pq.write_table(pa.table(rows), path / "1.parquet")
    [batch] = engine.ingest()
    assert {s.source: (s.accepted, s.quarantined) for s in batch} == {"l": (1, 0), "added": (0, 1), "out": (0, 1), "named": (0, 1)}
    assert rows_of(read_log(engine.workspace, "l", 1), "k", "v") == [("a", 1)]
    reasons = {name: rows_of(engine.views.table(f"quarantine/{name}"), "reason")[0][0] for name in ("added", "out", "named")}
    has_new_columns = "malformed: it has columns that the contract does not name: at"
    assert (reasons["added"], reasons["out"]) == (has_new_columns, has_new_columns)
    assert reasons["named"].startswith("malformed: the file cannot be read: [UNSUPPORTED_TIME_TYPE]")
    assert engine.ingest() == []
