"""Parquet files of any writer: metadata in the footer is never executed, and no column name confuses the reader."""

import json
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets.days import moment
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.small_sources import START, land, rows_of, source

UTC = pa.timestamp("us", tz="UTC")
MODULE = "tidemark_landed_module"
K, V, TS = ({"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("k", "string"), ("v", "integer"), ("ts", "timestamp")))


def _write(engine: Engine, name: str, file: str, keys: str, more: Mapping[str, Any], schema: object = None) -> None:
    """Write a file with a row for each key, further columns, and the schema that a Spark writer stores in the footer."""
    rows = {"k": list(keys), "v": pa.array([1] * len(keys), pa.int32()), "ts": pa.array([moment(START)] * len(keys), UTC), **more}
    table, path = pa.table(rows), Path(engine.folders[name]) / file
    if schema is not None:
        metadata = {"org.apache.spark.version": "4.1.0", "org.apache.spark.sql.parquet.row.metadata": json.dumps(schema)}
        table = table.replace_schema_metadata(metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def _struct(*fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [*fields]}


def _user_type(**names: str) -> dict[str, Any]:
    return {"name": "w", "nullable": True, "metadata": {}, "type": {"type": "udt", "serializedClass": "", "sqlType": "string", **names}}


FOOTER_SCHEMAS = {
    "p": _struct(K, V, TS, _user_type(pyClass=f"{MODULE}.Landed")),
    "j": _struct(K, V, TS, _user_type(**{"class": f"{MODULE}.Landed", "pyClass": f"{MODULE}.Landed"})),
    "t": _struct(K, {**V, "type": "string"}, TS, {**V, "name": "w", "type": "interval day to second"}),
    "f": _struct(K),
    "n": "no schema",
}
"""The Spark schema in the footer of a file, by the key of the file's row."""
MODES = {"ignore": "ignore", "add": "add", "reject": "quarantine"}


def test_a_schema_stored_in_a_parquet_footer_loads_no_class(
    make_engine: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine([source(name, new_columns=mode) for name, mode in MODES.items()], [])
    (tmp_path / "modules").mkdir()
    (tmp_path / f"modules/{MODULE}.py").write_text("class Landed: pass\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "modules")
    for mode in MODES:
        for key, schema in FOOTER_SCHEMAS.items():
            _write(engine, mode, f"{key}.parquet", key, {"w": ["x"]}, schema)
        _write(engine, mode, "good.parquet", "g", {})
    [batch] = engine.ingest()
    assert MODULE not in sys.modules
    assert {s.source: (s.accepted, s.quarantined) for s in batch} == {"ignore": (6, 0), "add": (6, 0), "reject": (1, 5)}
    assert rows_of(engine.views.table("events/ignore"), "k", "v") == [(k, 1) for k in sorted([*FOOTER_SCHEMAS, "g"])]
    assert rows_of(engine.views.table("events/add"), "k", "w") == [(k, None if k == "g" else "x") for k in sorted([*FOOTER_SCHEMAS, "g"])]
    assert {r for (r,) in rows_of(engine.views.table("quarantine/reject"), "reason")} == {
        "malformed: it has columns that the contract does not name: w"
    }


@pytest.mark.parametrize("key", [(), ("k",)], ids=["no key", "unique key"])
def test_any_column_name_keeps_arrival_numbers_unique(make_engine: MakeEngine, key: tuple[str, ...]) -> None:
    engine = make_engine([source("l", unique_key=key)], [])
    folder = Path(engine.folders["l"])

    def metadata(path: str) -> dict[str, Any]:
        return {"_metadata": pa.array([{"file_path": path, "file_name": "x", "row_index": 0, "file_block_start": 0}] * 2)}

    _write(engine, "l", "itself.parquet", "ab", metadata(f"file:{folder}/itself.parquet"))
    _write(engine, "l", "itself too.parquet", "cd", metadata(f"file:{folder}/itself.parquet"))
    _write(engine, "l", "another.parquet", "ef", metadata("s3://elsewhere/x.parquet"))
    _write(engine, "l", "number.parquet", "gh", {"_metadata": [1, 2]})
    _write(engine, "l", "upper.parquet", "ij", {"_METADATA": [1, 2]})
    _write(engine, "l", "backtick.parquet", "kl", {"a`b": [1, 2], "`": [1, 2], "a.b": [1, 2], "": [1, 2], "_metadata.row_index": [0, 0]})
    _write(engine, "l", "bad value.parquet", "m", {"v": ["x"], "a`b": [1], "_metadata": [7]})
    land(engine, "l", "good.jsonl", [json.dumps({"k": "n", "v": 1, "ts": moment(START).isoformat()})])
    [[ingested]] = engine.ingest()
    assert (ingested.accepted, ingested.duplicate, ingested.quarantined) == (13, 0, 1)
    found = rows_of(engine.views.table("events/l"), "arrival", "k")
    assert sorted(k for _, k in found) == list("abcdefghijkln")
    assert len({arrival for arrival, _ in found}) == len(found)
    [(reason, raw, path)] = rows_of(engine.views.table("quarantine/l"), "reason", "raw", "path")
    assert (reason, Path(path).name) == ("type: v is no int", "bad%20value.parquet")
    assert (json.loads(raw)["a`b"], json.loads(raw)["_metadata"]) == (1, 7)


UNREADABLE = {
    "nanoseconds": (pa.array([1], pa.timestamp("ns")), "PARQUET_TYPE_ILLEGAL"),
    "a half": (pa.array([1.5], pa.float16()), "PARQUET_TYPE_ILLEGAL"),
    "60 digits": (pa.array([Decimal(1)], pa.decimal256(60, 0)), "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION"),
    "names of one case": (pa.array([{"a": 1, "A": 2}]), "COLUMN_ALREADY_EXISTS"),
}
"""Columns of types that Spark does not read, with its error condition."""


def test_a_file_with_a_type_that_spark_does_not_read_is_quarantined_once(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [])
    for name, (column, _) in UNREADABLE.items():
        _write(engine, "l", f"{name}.parquet", "a", {"w": column})
    _write(engine, "l", "good.parquet", "g", {})
    [[ingested]] = engine.ingest()
    assert (ingested.accepted, ingested.quarantined) == (1, len(UNREADABLE))
    reasons = {Path(path).stem.replace("%20", " "): r for path, r in rows_of(engine.views.table("quarantine/l"), "path", "reason")}
    for name, (_, condition) in UNREADABLE.items():
        assert reasons[name].startswith(f"malformed: the file cannot be read: [{condition}]"), name
    assert engine.ingest() == []


def test_a_text_that_is_not_utf_8_keeps_its_bytes(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", unique_key=("k",))], [])
    for file in ("1.parquet", "2.parquet"):
        texts = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff", b"\xfe"]).buffers())
        _write(engine, "l", file, "ab", {"k": texts})
    [[ingested]] = engine.ingest()
    assert (ingested.accepted, ingested.duplicate) == (2, 2)
    assert rows_of(engine.views.table("events/l").selectExpr("hex(k) AS bytes")) == [("FE",), ("FF",)]
