"""Parquet rows with binary values are not released as JSON, because ingestion would read the base64 text of the bytes as the value."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets.contracts import RowRule
from platform_defs.engine.ingest.quarantine_error import QuarantineError
from tests.conftest import MakeEngine
from tests.support.small_sources import START, iso, land, rows_of, source

SCHEMA = "k string, v int, ts timestamp, b binary, many array<binary>"


def test_parquet_rows_with_binary_values_are_not_released(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", schema=SCHEMA, new_columns="add", rules=(RowRule("small", "v < 90"),))], [])
    land(engine, "l", "1.jsonl", [f'{{"k": "text", "v": 99, "ts": "{iso(START)}", "b": "hello"}}'])
    for file, values in (("bytes", [b"hello", b"\xff"]), ("none", [None, None])):
        rows = {"k": [file, file], "v": pa.array([99, 1], pa.int32()), "ts": [iso(START)] * 2, "b": pa.array(values, pa.binary())}
        added = {"more": pa.array(values, pa.binary())}
        pq.write_table(pa.table(rows | added | {"many": [[b"x"], None]}), Path(engine.folders["l"]) / f"{file}.parquet")
    engine.ingest()
    fixed = make_engine([source("l", schema=SCHEMA, new_columns="add")], [])
    with pytest.raises(QuarantineError, match=r"bytes\.parquet contain bytes \(b, more\), and a row of Parquet is released as JSON"):
        fixed.ingestion.quarantine.release("l")
    assert [r.rows for r in fixed.ingestion.quarantine.release("l", names=["1.jsonl", "none.parquet"])] == [2]
    fixed.ingest()
    rows = rows_of(fixed.views.table("events/l").where("v = 99").selectExpr("k", "cast(b AS string)", "cast(many[0] AS string)"))
    assert rows == [("none", None, "x"), ("text", "hello", None)]
