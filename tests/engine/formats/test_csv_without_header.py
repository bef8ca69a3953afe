"""CSV files without a header: their fields are the schema's columns, in its order."""

import gzip
from pathlib import Path
from typing import Any, get_args

import pytest

from assets.contracts import ContractError, NewColumns, RowRule
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.file_walk import landed_files
from tests.support.small_sources import START, iso, land, rows_of, source

TIME = iso(START)
NO_HEADER = {"header": False, "sep": ";"}


def _ingest(engine: Engine) -> None:
    engine.ingestion.batches.files([f for name, folder in engine.folders.items() for f in landed_files(folder, name)])


def _log(engine: Engine, *columns: str, name: str = "l") -> list[tuple[Any, ...]]:
    return rows_of(engine.lake.read(engine.spark, f"events/{name}"), *columns)


def _quarantined(engine: Engine, name: str = "l") -> list[tuple[Any, ...]]:
    return rows_of(engine.lake.read(engine.spark, f"quarantine/{name}"), "raw", "reason")


def test_each_line_is_a_row_and_fields_have_the_schemas_order(make_engine: MakeEngine) -> None:
    engine = make_engine([source(f"new_{new}", options=NO_HEADER, new_columns=new) for new in get_args(NewColumns)], [])
    for name, folder in engine.folders.items():
        land(engine, name, "plain.csv", [f"a;1;{TIME}", "", f'"b;c";2;{TIME}'])
        land(engine, name, "mark.csv", [f"\ufeffd;3;{TIME}"])
        land(engine, name, "faults.csv", ["k;v;ts", f"e;4;{TIME};5", "f;6", f"g;seven;{TIME}"])
        Path(folder, "packed.csv.gz").write_bytes(gzip.compress(f"h;8;{TIME}\n".encode()))
    _ingest(engine)
    count = "malformed: not 3 fields, as the source's schema has"
    rejected = [
        (f"e;4;{TIME};5", count),
        ("f;6", count),
        (f"g;seven;{TIME}", "type: v is no int"),
        ("k;v;ts", "type: v is no int"),
    ]
    assert {*engine.sources} == {"new_ignore", "new_quarantine", "new_refuse", "new_add"}
    for name in engine.sources:
        assert (name, _log(engine, "k", "v", name=name)) == (name, [("a", 1), ("b;c", 2), ("d", 3), ("h", 8)])
        assert (name, _quarantined(engine, name)) == (name, rejected)


def test_released_rows_are_a_file_without_a_header(make_engine: MakeEngine) -> None:
    small = source("l", options=NO_HEADER, rules=(RowRule("small", "v < 10"),))
    engine = make_engine([small], [])
    land(engine, "l", "rows.csv", [f"a;1;{TIME}", f"b;20;{TIME}", f"c;30;{TIME}"])
    _ingest(engine)
    mended = make_engine([source("l", options=NO_HEADER)], [])
    [released] = mended.ingestion.quarantine.release("l")
    assert (Path(mended.folders["l"]) / released.name).read_text() == f"b;20;{TIME}\nc;30;{TIME}\n"
    _ingest(mended)
    assert _log(mended, "k", "v") == [("a", 1), ("b", 20), ("c", 30)]


def test_lines_are_quarantined_if_no_field_can_hold_a_column(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", schema="k string, v int, ts timestamp, w array<int>", options=NO_HEADER)], [])
    land(engine, "l", "rows.csv", [f"a;1;{TIME};2"])
    _ingest(engine)
    assert _quarantined(engine) == [(f"a;1;{TIME};2", "malformed: no field of a CSV file can contain w")]


def test_another_value_of_the_option_is_refused():
    with pytest.raises(ContractError, match=r"`options` is \{'header': 'no'\}; legal: for 'header', 'true', or 'false' for CSV files"):
        source("l", options={"header": "no"})
