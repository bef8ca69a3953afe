"""Values of another type than their column's: a value is converted if nothing is lost, otherwise the row is quarantined with the reason."""

import json
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.days import moment
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.small_sources import START, iso, land, rows_of, source

TIMESTAMP = pa.timestamp("us", tz="UTC")
LATER = "; the first file with this column had that type: send it as that type, or under another name"
HUGE = "contains a decimal with an exponent of five digits or more"
UNREAD = "malformed: the file cannot be read: [UNSUPPORTED_TIME_TYPE]"
INT, TEXT, BYTES = pa.array([5], pa.int32()), pa.array(["x"]), pa.array([b"\xff"])
A_INT = pa.array([{"a": 1}], pa.struct({"a": pa.int32()}))
A_TEXT = pa.array([{"a": "x"}], pa.struct({"a": pa.string()}))
AB = pa.array([{"b": 2, "a": 1}], pa.struct({"b": pa.int32(), "a": pa.int32()}))
B = pa.array([{"b": 2}], pa.struct({"b": pa.int32()}))
INTS, TEXTS = pa.array([[1, None]], pa.list_(pa.int32())), pa.array([["x"]])
MAP = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))
CENTS, FINE = pa.array([Decimal("1.25")]), pa.array([Decimal("1.2345")], pa.decimal128(12, 4))


def _parquet(engine: Engine, name: str, key: str, w: pa.Array) -> None:
    path = Path(engine.folders[name]) / f"{key}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    times = pa.array([moment(START)], TIMESTAMP)
    pq.write_table(pa.table({"k": [key], "v": pa.array([1], pa.int32()), "ts": times, "w": w}), path)


def _write(engine: Engine, name: str, key: str, w: pa.Array | str) -> None:
    """A file with one row: a Parquet file, or a line with this JSON text."""
    if isinstance(w, str):
        land(engine, name, f"{key}.jsonl", [f'{{"k": "{key}", "v": 1, "ts": "{iso(START)}", "w": {w}}}'])
    else:
        _parquet(engine, name, key, w)


def _outcomes(engine: Engine) -> dict[str, dict[str, Any]]:
    """The value of `w` by key, of each source; for a quarantined row its reason. One query reads all logs, one all quarantines."""
    found: dict[str, dict[str, Any]] = {name: {} for name in engine.sources}
    logs = [name for name in engine.sources if engine.lake.delta(f"events/{name}") is not None]
    frames = [engine.views.table(f"events/{name}").select(F.lit(name).alias("source"), "k", F.col("w").alias(name)) for name in logs]
    for row in reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames).collect():
        found[row["source"]][row["k"]] = row[row["source"]]
    quarantines = [name for name in engine.sources if engine.lake.delta(f"quarantine/{name}") is not None]
    rejected = [engine.views.table(f"quarantine/{name}").select(F.lit(name), "path", "reason") for name in quarantines]
    for name, path, reason in reduce(DataFrame.union, rejected).collect():
        found[name][Path(path).stem] = UNREAD if reason.startswith(UNREAD) else reason
    return found


@dataclass(frozen=True)
class Added:
    """A column that two files have: its value in each file, and the expected outcome for each."""

    id: str
    first: pa.Array | str
    second: pa.Array | str
    one: Any
    two: Any
    together: bool = False


ADDED = [
    Added("number and text", INT, TEXT, 5, f"type: w is no bigint but string{LATER}"),
    Added("number and JSON text", INT, '"x"', 5, f"type: w is no bigint{LATER}"),
    Added("numbers", INT, pa.array([2**60]), 5, 2**60),
    Added("decimals of another scale", CENTS, FINE, Decimal("1.25"), Decimal("1.23")),
    Added("text and number", TEXT, INT, "x", "5"),
    Added("text and bytes", TEXT, BYTES, "x", f"type: w is no string but binary{LATER}"),
    Added("text and UTF-8 bytes", TEXT, pa.array([b"y"]), "x", "y"),
    Added("number and bytes", INT, BYTES, 5, f"type: w is no bigint but binary{LATER}"),
    Added("text and struct", TEXT, A_INT, "x", '{"a":1}'),
    Added("struct and text", A_INT, TEXT, (1,), f"type: w is no struct<a:int> but string{LATER}"),
    Added("struct and number", A_INT, INT, (1,), f"type: w is no struct<a:int> but int{LATER}"),
    Added("struct and another", A_INT, A_TEXT, (1,), f"type: w is no struct<a:int> but struct<a:string>{LATER}"),
    Added("struct and wider", A_INT, AB, (1,), (1,)),
    Added("struct and other fields", A_INT, B, (1,), (None,)),
    Added("wider struct and struct", AB, A_INT, (2, 1), (None, 1)),
    Added("struct and JSON", A_INT, '{"a": 7}', (1,), (7,)),
    Added("struct and JSON of another type", A_INT, '{"a": "x"}', (1,), f"type: w is no struct<a:int>{LATER}"),
    Added("lists", INTS, TEXTS, [1, None], f"type: w is no array<int> but array<string>{LATER}"),
    Added("lists that convert", TEXTS, INTS, ["x"], ["1", None]),
    Added("list and map", INTS, MAP, [1, None], f"type: w is no array<int> but map<string,int>{LATER}"),
    Added("number and time of day", INT, pa.array([time(1)]), 5, UNREAD),
    Added("together: number and text", INT, TEXT, "5", "x", together=True),
    Added("together: number and JSON", INT, '"x"', "5", "x", together=True),
    Added("together: decimals", CENTS, FINE, "1.25", "1.2345", together=True),
    Added("together: structs", A_INT, A_TEXT, '{"a":1}', '{"a":"x"}', together=True),
    Added("together: struct and JSON", A_INT, '{"a":2}', '{"a":1}', '{"a":2}', together=True),
    Added("together: text and bytes", TEXT, BYTES, "x", f"type: w is no string but binary{LATER}", together=True),
    Added("together: time of day", INT, pa.array([time(1)]), 5, UNREAD, together=True),
]


def test_an_added_column_with_another_type_is_converted_or_quarantined(make_engine: MakeEngine) -> None:
    """Cases with the same first value share a source, except those whose two files are in one batch."""
    firsts: list[pa.Array | str] = []
    names: list[str] = []
    for n, case in enumerate(ADDED):
        known = [i for i, first in enumerate(firsts) if first is case.first]
        if not known:
            firsts.append(case.first)
        names.append(f"together{n}" if case.together else f"first{known[0] if known else len(firsts) - 1}")
    engine = make_engine([source(name, new_columns="add") for name in dict.fromkeys(names)], [])
    for n, (name, case) in enumerate(zip(names, ADDED, strict=True)):
        _write(engine, name, "one", case.first)
        if case.together:
            _write(engine, name, f"two{n}", case.second)
    engine.ingest()
    for n, (name, case) in enumerate(zip(names, ADDED, strict=True)):
        if not case.together:
            _write(engine, name, f"two{n}", case.second)
    engine.ingest()
    outcomes = _outcomes(engine)
    found = {
        case.id: (outcomes[name].get("one"), outcomes[name].get(f"two{n}")) for n, (name, case) in enumerate(zip(names, ADDED, strict=True))
    }
    assert found == {case.id: (case.one, case.two) for case in ADDED}
    assert sum(map(len, outcomes.values())) == len(ADDED) + len(outcomes)
    assert engine.ingest() == []


@dataclass(frozen=True)
class Nested:
    """A declared nested column, its value in a file, and the expected outcome."""

    id: str
    type: str
    given: pa.Array | str
    result: Any


STRUCT, LIST = "struct<a:int,b:int>", "array<struct<a:int>>"
NESTED = [
    Nested("fields in another order", STRUCT, AB, (1, 2)),
    Nested("a field is missing", STRUCT, B, (None, 2)),
    Nested("names of another case", STRUCT, pa.array([{"B": 2, "A": 1}]), (1, 2)),
    Nested("a null", STRUCT, pa.array([None], pa.struct({"a": pa.string()})), None),
    Nested("a null field", STRUCT, pa.array([{"a": None}], pa.struct({"a": pa.string()})), (None, None)),
    Nested("text that is a number", STRUCT, pa.array([{"a": "7"}]), (7, None)),
    Nested("text", STRUCT, TEXT, f"type: w is no {STRUCT} but string"),
    Nested("a field of another type", STRUCT, A_TEXT, f"type: w is no {STRUCT} but struct<a:string>"),
    Nested("a number that is too large", STRUCT, pa.array([{"a": 2**40}]), f"type: w is no {STRUCT} but struct<a:bigint>"),
    Nested("list of structs", LIST, pa.array([[{"b": 2, "a": 1}, None]]), [(1,), None]),
    Nested("list of other structs", LIST, pa.array([[{"a": 1.5}]]), f"type: w is no {LIST} but array<struct<a:double>>"),
    Nested("map", "map<string,bigint>", MAP, {"k": 1}),
    Nested("map to another", "map<string,date>", MAP, "type: w is no map<string,date> but map<string,int>"),
    Nested("map that converts", "map<string,string>", MAP, {"k": "1"}),
    Nested("map of other keys", "map<int,int>", MAP, "type: w is no map<int,int> but map<string,int>"),
    Nested("huge exponent", "array<decimal(10,2)>", pa.array([["1e-600000000"]]), "type: w is no array<decimal(10,2)> but array<string>"),
    Nested("not null", "struct<a:int not null>", A_INT, (1,)),
    Nested("not null, JSON", "struct<a:int not null>", '{"a": 1}', (1,)),
    Nested("null in place of not null", "struct<a:int not null>", pa.array([{"a": None}], A_INT.type), (None,)),
    Nested("null in place of not null, JSON", "struct<a:int not null>", '{"a": null}', (None,)),
    Nested("JSON", STRUCT, '{"b": 2, "a": 1, "c": 3}', (1, 2)),
    Nested("JSON null", STRUCT, "null", None),
    Nested("JSON text", STRUCT, '"x"', f"type: w is no {STRUCT}"),
    Nested("JSON number", LIST, "1", f"type: w is no {LIST}"),
    Nested("JSON field of another type", STRUCT, '{"a": "x"}', f"type: w is no {STRUCT}"),
    Nested("JSON number that is too large", STRUCT, '{"a": 2147483648}', f"type: w is no {STRUCT}"),
    Nested("JSON in a list", LIST, '[{"a": 1}, {"a": []}]', f"type: w is no {LIST}"),
    Nested("JSON huge exponent", "array<decimal(10,2)>", "[1e-600000000]", f"type: w {HUGE}"),
    Nested("JSON cut", STRUCT, '{"a": "x"', "malformed: not a JSON object"),
    Nested("JSON twice", STRUCT, '1} {"w": 1', "malformed: not a JSON object"),
]


def test_a_nested_value_of_another_type_is_converted_or_quarantined(make_engine: MakeEngine) -> None:
    """Cases with the same type share a source, with a file for each case."""
    types = [*dict.fromkeys(case.type for case in NESTED)]
    fields = "k string, v int, ts timestamp, w"
    engine = make_engine([source(f"s{n}", schema=f"{fields} {type_}, d decimal(10,2)") for n, type_ in enumerate(types)], [])
    for n, case in enumerate(NESTED):
        _write(engine, f"s{types.index(case.type)}", f"case{n}", case.given)
    engine.ingest()
    outcomes = _outcomes(engine)
    found = {case.id: outcomes[f"s{types.index(case.type)}"].get(f"case{n}") for n, case in enumerate(NESTED)}
    assert found == {case.id: case.result for case in NESTED}
    assert sum(map(len, outcomes.values())) == len(NESTED)
    assert engine.ingest() == []


def test_of_two_nested_columns_the_wrong_one_is_named(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", schema="k string, v int, ts timestamp, w struct<a:int>, x array<int>, y map<string,int>")], [])
    row = {"k": "a", "v": 1, "ts": iso(START), "w": {"a": 1}, "x": [1], "y": {"z": 1}}
    land(engine, "l", "1.jsonl", [json.dumps(row | more) for more in ({}, {"x": ["b"]}, {"y": 1}, {"w": 1, "y": 1})])
    engine.ingest()
    reasons = [r for (r,) in rows_of(engine.views.table("quarantine/l"), "reason")]
    assert reasons == ["type: w is no struct<a:int>", "type: x is no array<int>", "type: y is no map<string,int>"]


def test_maps_whose_keys_are_not_text_are_read_from_parquet_and_quarantined_in_json(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", schema="k string, v int, ts timestamp, w map<int,decimal(5,2)>, x array<map<date,int>>")], [])
    _parquet(engine, "l", "parquet", pa.array([[(1, Decimal("1.25"))]], pa.map_(pa.int32(), pa.decimal128(5, 2))))
    row = {"v": 1, "ts": iso(START)}
    values = {"w": {"w": {"1": 1.25}}, "x": {"x": [{"2026-03-01": 1}]}, "null": {"w": None}, "none": {}}
    land(engine, "l", "1.jsonl", [json.dumps({"k": k} | row | more) for k, more in values.items()])
    engine.ingest()
    assert rows_of(engine.views.table("events/l"), "k", "w") == [("none", None), ("null", None), ("parquet", {1: Decimal("1.25")})]
    reason = "type: {} is no {}: all keys of a JSON object are text"
    wanted = [(reason.format("w", "map<int,decimal(5,2)>"),), (reason.format("x", "array<map<date,int>>"),)]
    assert rows_of(engine.views.table("quarantine/l"), "reason") == wanted
    assert engine.ingest() == []


def test_a_date_is_followed_only_by_a_time(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", schema="k string, v int, ts timestamp, w date")], [])
    good = ["2026-03-01", " 2026-03-01 ", "2026-3-1", "2026-03-01T23:00:00-05:00", "2026-03-01 12:00:00", "2026-03-01T12:00Z"]
    bad = ["2026-03-01 x", "2026-03-01Tx", "2026-03-01 25:00:00", "2026-03-01x", "12:00:00"]
    for n, w in enumerate([*good, *bad]):
        _write(engine, "l", f"{n:02}", json.dumps(w))
    engine.ingest()
    found = _outcomes(engine)["l"]
    assert {k: v for k, v in found.items() if int(k) < len(good)} == {f"{n:02}": date(2026, 3, 1) for n in range(len(good))}
    assert [v for k, v in sorted(found.items()) if int(k) >= len(good)] == ["type: w is no date"] * len(bad)
