"""Late rows that are found without a session equal those that Spark finds; if only Spark can find them, the caller learns so."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import QueryBuilder

from assets.contracts import DerivedAsset
from assets.preparation import Preparation
from operators import Aggregate, Deduplicate, Session, Sliding, Tumbling, WindowedAggregate
from platform_defs.cli import render
from platform_defs.engine import Engine
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.operations.late_rows import bounds_in_sql
from tests.conftest import MakeEngine
from tests.support.no_session import without_session
from tests.support.small_sources import DAY, HOUR, MINUTE, Event, join, land, replay, source

COUNT = WindowedAggregate(by="k", window=Tumbling(size="2 minutes"), aggregates={"n": "count(*)"}, allowed_lateness="1 minute")
PAIRS = join()


def _of_l(name: str, operator: Any, **changes: Any) -> DerivedAsset:
    return DerivedAsset(name=name, inputs=("l",), operator=operator, **changes)


ASSETS = [
    PAIRS,
    _of_l("counts", COUNT),
    _of_l("firsts", Deduplicate(by="k")),
    _of_l("visits", replace(COUNT, window=Session(gap="1 minute"), allowed_lateness=0)),
    _of_l("totals", Aggregate(by="k", aggregates={"n": "count(*)"})),
]
ONLY_BY_SPARK = [
    replace(PAIRS, name="prepared", prepare={"l": Preparation(where="v > 1")}),
    _of_l("in_gaps", replace(COUNT, window=Sliding(size="1 minute", slide="3 minutes"))),
]
LATE = {("pairs", "l"): 5, ("pairs", "r"): 1, ("counts", "l"): 5, ("firsts", "l"): 6, ("visits", "l"): 5, ("totals", "l"): 0}


@pytest.fixture(scope="module")
def engine(make_module_engine: MakeEngine) -> Engine:
    engine = make_module_engine([source("l"), source("r")], [*ASSETS, *ONLY_BY_SPARK])
    late = [Event("a", n, at) for n, at in enumerate((0, 5 * MINUTE, 55 * MINUTE, 57 * MINUTE, HOUR - MINUTE - 1, HOUR - MINUTE))]
    replay(
        engine,
        [
            {"l": [Event("a", 1, 0), Event(None, 2, HOUR)], "r": [Event("a", 3, HOUR)]},
            {"l": [*late, Event("b", 9, 2 * HOUR)], "r": [Event("c", 4, 0), Event("b", 9, 2 * HOUR)]},
            {"l": [Event("d", 8, HOUR), Event("e", 7, DAY)]},
        ],
    )
    for name in engine.assets:
        engine.advance(name)
    return engine


def _by_spark(engine: Engine, asset: str, source: str, limit: int) -> tuple[int, list[dict[str, Any]]]:
    found = render.head_of(engine.views.late(asset, source).orderBy("seq", "arrival"), limit)
    return found["total"], found["rows"]


@pytest.mark.parametrize(("asset", "of"), LATE)
def test_late_rows_equal_those_of_spark(engine: Engine, asset: str, of: str) -> None:
    without = without_session(engine)
    found = without.late_rows(asset, of, 1_000)
    assert found == _by_spark(engine, asset, of, 1_000)
    assert found is not None
    assert found[0] == LATE[asset, of] == len(found[1])
    assert without.late_rows(asset, of, 2) == (found[0], found[1][:2])


WIDE = """k STRING, ts TIMESTAMP, local TIMESTAMP_NTZ, day DATE, exact DECIMAL(38,18), whole DECIMAL(20,0), single FLOAT, number DOUBLE,
bytes BINARY, prices MAP<STRING, DECIMAL(9,2)>, times MAP<STRING, ARRAY<TIMESTAMP>>,
item STRUCT<id: INT, at: TIMESTAMP, tags: MAP<STRING, STRUCT<d: DATE, x: DOUBLE>>>, items ARRAY<STRUCT<n: DECIMAL(6,3), flag: BOOLEAN>>"""
LATE_LINES = [
    '{"k": "1969", "ts": "1969-07-20T20:17:40.123456Z", "local": "1969-12-31T23:59:59.9999", "day": "1969-12-31"}',
    '{"k": "first", "ts": "0001-01-01T00:00:00Z", "local": "1582-10-04T00:00:00", "day": "1582-10-04", "exact": -0.000000000000000001}',
    '{"k": "numbers", "ts": "1969-12-31T23:59:59.999Z", "exact": 12345678901234567890.5, "whole": 12345678901234567890, "single": 0.1, '
    '"number": 1e-300, "bytes": "AP8="}',
    '{"k": "nested", "ts": "1969-01-01T00:00:00Z", "prices": {"a": 1.10, "b": null}, "times": {"7": ["1969-07-20T20:17:40.5Z", null]}, '
    '"item": {"id": 1, "at": "1969-07-20T20:17:40Z", "tags": {"x": {"d": "1969-07-20", "x": -0.0}, "y": null}}, '
    '"items": [{"n": 1.5, "flag": true}, null, {}]}',
    '{"k": "empty", "ts": "1969-01-01T00:00:00Z", "prices": {}, "item": {}, "items": []}',
]


def test_late_rows_of_every_type_equal_those_of_spark(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l", schema=WIDE)], [_of_l("firsts", Deduplicate(by="k"))])
    land(engine, "l", "1.jsonl", ['{"k": "new", "ts": "1970-01-02T00:00:00Z"}'])
    engine.ingest()
    land(engine, "l", "2.jsonl", LATE_LINES)
    engine.ingest()
    found = without_session(engine).late_rows("firsts", "l", 1_000)
    assert repr(found) == repr(_by_spark(engine, "firsts", "l", 1_000))
    assert found is not None
    assert found[0] == len(LATE_LINES)
    rows = {row["k"]: row for row in found[1]}
    assert (rows["1969"]["ts"], rows["1969"]["local"]) == ("1969-07-20T20:17:40.123Z", "1969-12-31T23:59:59.999")
    assert rows["nested"]["prices"] == {"a": 1.1, "b": None}
    assert rows["nested"]["item"]["tags"] == {"x": {"d": "1969-07-20", "x": -0.0}, "y": None}


def test_a_float_that_only_spark_writes_is_left_to_it(make_engine: MakeEngine) -> None:
    values, schema = {"large": "1.5e8", "nan": '"NaN"'}, "k STRING, ts TIMESTAMP, f FLOAT"
    tables = [DerivedAsset(name=f"firsts_{name}", inputs=(name,), operator=Deduplicate(by="k")) for name in values]
    engine = make_engine([source(name, schema=schema) for name in values], tables)
    for name in values:
        land(engine, name, "1.jsonl", ['{"k": "new", "ts": "1970-01-02T00:00:00Z"}'])
    engine.ingest()
    for name, value in values.items():
        land(engine, name, "2.jsonl", [f'{{"k": "late", "ts": "1969-01-01T00:00:00Z", "f": {value}}}'])
    engine.ingest()
    without = without_session(engine)
    assert without.late_rows("firsts_large", "large", 9) is None
    assert without.late_rows("firsts_nan", "nan", 9) == _by_spark(engine, "firsts_nan", "nan", 9)


@pytest.mark.parametrize("asset", [a.name for a in ONLY_BY_SPARK])
def test_only_spark_finds_the_late_rows_of_a_prepared_source_or_of_windows_with_gaps(engine: Engine, asset: str) -> None:
    assert without_session(engine).late_rows(asset, "l", 1_000) is None
    report = render.late_rows(engine, "l", asset, 1_000)
    assert (report["total"], report["rows"]) == _by_spark(engine, asset, "l", 1_000)
    assert report["total"] > 0


def test_a_source_without_late_rows_needs_no_session(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l"), source("r")], [*ASSETS, *ONLY_BY_SPARK])
    replay(engine, [{"l": [Event("a", 1, 0)]}, {"l": [Event("b", 1, HOUR)]}])
    found = {(name, of): without_session(engine).late_rows(name, of, 9) for name, a in engine.assets.items() for of in a.inputs}
    assert {*map(str, found.values())} == {"(0, [])"}


def test_a_lost_data_file_is_named(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [_of_l("firsts", Deduplicate(by="k"))])
    replay(engine, [{"l": [Event("a", 1, HOUR)]}, {"l": [Event("a", 1, 0)]}])
    for file in Path(engine.lake.path("events/l")).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(LakeError, match=r"events/l lacks a data file: .*\.parquet"):
        without_session(engine).late_rows("firsts", "l", 9)


@pytest.mark.parametrize("bounds", [{3: -5}, {1: 10, 2: 10, 4: 10, 7: 25, 8: 30, 9: 30}], ids=["one", "several"])
def test_bounds_in_sql_are_those_of_each_batch_and_of_those_between(bounds: dict[int, int]) -> None:
    rows = pa.RecordBatchReader.from_stream(QueryBuilder().execute(bounds_in_sql(bounds))).read_all().to_pylist()
    found = {row["batch"]: row["late_before"] for row in rows}
    expected = {seq: datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=bound) for seq, bound in bounds.items()}
    assert found == expected | ({3: expected[4]} if 4 in bounds else {})


def test_the_bounds_of_a_long_ledger_are_short() -> None:
    assert len(bounds_in_sql({seq: seq // 10_000 for seq in range(100_000)})) < 1_000
    assert bounds_in_sql({seq: seq for seq in range(100_000)}).count("(") < 30, "no literal for each batch"
