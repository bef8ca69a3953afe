"""Columns with the engine's internal names, maps, many columns and names in another case lose no row and stop no table."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from assets.contracts import BoundedOutOfOrderness, DerivedAsset, RowRule
from assets.days import moment
from operators import Aggregate, Deduplicate, Session, TopK, TopN, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.small_sources import MINUTE, ROW, START, Event, iso, join, land, law_violations, rows_of, source

INTERNAL = (
    *("run", "t", "place", "count", "copies", "change", "step", "side", "day", "print", "said", "source", "value", "row", "c", "session"),
    *("which", "taken", "key", "kind", "time", "o", "n", "f", "k", "s", "r", "name", "path", "late", "accepted", "seqs"),
    "row_hash",
)
UNUSUAL = ("order-id", "@timestamp", "$type", "a:b", "1st", "größe", "कीमत", "select", "Mixed")
"""Legal names that SQL accepts only in backticks."""
MAPS = "by_name map<string,int>, deep map<string,map<string,int>>, inside struct<x:array<map<string,int>>,y:int>"
DAY = moment(START).date()


def _schema(*columns: str) -> StructType:
    return StructType([StructField(c, ROW["k"].dataType) for c in columns]).add("v", "integer").add("ts", "timestamp")


def _line(columns: tuple[str, ...], key: str, v: int, at: int, **more: Any) -> str:
    return json.dumps({**dict.fromkeys(columns, key), "v": v, "ts": iso(START + at), **more})


def _windows(columns: tuple[str, ...], **changes: Any) -> DerivedAsset:
    aggregates = {"total": "sum(v)", "rows": "count(*)"}
    operator = WindowedAggregate(**{"by": columns, "window": Tumbling(size="5 minutes"), "aggregates": aggregates, **changes})
    return DerivedAsset(name="windows", inputs=("l",), operator=operator)


def _law_holds(engine: Engine) -> bool:
    return all(a.holds for name in engine.assets for a in engine.accounts.days(name)) and not engine.accounts.count_differences("pairs")


def test_column_names_do_not_collide_with_internal_names(make_engine: MakeEngine) -> None:
    """A source of an upserted table has no column with a name that its changelog adds, such as `change`.

    The first batch has a duplicate, and closes windows. The second one has a duplicate of the first, and a late row.
    """
    columns, first = (*INTERNAL, *UNUSUAL), (INTERNAL[0], UNUSUAL[0])
    key, others = {"unique_key": (*columns, "v"), "schema": _schema(*columns)}, tuple(c for c in columns if c not in first)
    sessions = WindowedAggregate(by=others, window=Session(gap="2 minutes"), aggregates={"how_many": "count(*)"}, allowed_lateness="1 hour")
    assets = [
        join(on=first),
        _windows(columns, allowed_lateness="1 hour"),
        DerivedAsset(name="sessions", inputs=("l",), operator=sessions),
        DerivedAsset(name="sums", inputs=("l",), operator=Aggregate(by=first, aggregates={"total": "sum(v)"})),
        DerivedAsset(name="newest", inputs=("u",), operator=Deduplicate(by=UNUSUAL, keep="last")),
        DerivedAsset(name="best", inputs=("u",), operator=TopN(by=UNUSUAL[1:], order_by="v DESC", rank_end=2)),
    ]
    unusual = source("u", unique_key=(*UNUSUAL, "v"), schema=_schema(*UNUSUAL))
    engine = make_engine([source("l", **key), source("r", **key), unusual], assets)
    for part, rows in enumerate([[("a", 1, 0), ("b", 1, 0), ("a", 1, 0), ("a", 2, 30 * MINUTE)], [("b", 1, 0), ("a", 3, MINUTE)]]):
        for name, names in {"l": columns, "r": columns, "u": UNUSUAL}.items():
            land(engine, name, f"{part}.jsonl", [_line(names, *row) for row in rows])
        [batch, *_] = engine.ingest()
        assert {(s.accepted, s.duplicate, s.quarantined) for s in batch} == {[(3, 1, 0), (1, 1, 0)][part]}
        if part == 1:
            engine.drain()
        for name in engine.assets:
            engine.advance(name)
    assert ("a", "a", 4, 2) in rows_of(
        engine.views.table("windows"), *[f"`{c}`" for c in first], "total", "rows"
    )  # corrected by a late row
    for name in engine.assets:
        rebuilt = engine.rebuild_days(name, DAY, DAY)
        assert (rebuilt.missing, rebuilt.extra) == (0, 0)
    engine.maintain(small_files=2, retention_hours=0)
    assert _law_holds(engine)


def test_maps_are_joined_corrected_accounted_for_and_rebuilt(make_engine: MakeEngine) -> None:
    schema = f"k string, v int, ts timestamp, {MAPS}"
    newest = WindowedAggregate(
        by="k",
        window=Tumbling(size="5 minutes"),
        aggregates={f"last_{c}": f"max_by({c}, struct(event_time, seq, arrival))" for c in ("by_name", "deep", "inside")},
        allowed_lateness="1 hour",
    )
    top = TopN(by="k", order_by="v DESC", rank_end=2, unique_key=("k", "v"))
    by_operator = {"newest": newest, "top": top, "best": TopK(k=2, order_by="v DESC", by="k", window=Tumbling(size="5 minutes"))}
    assets = [join(), *(DerivedAsset(name=name, inputs=("l",), operator=operator) for name, operator in by_operator.items())]
    assets.append(DerivedAsset(name="first", inputs=("newest",), operator=TopK(k=1, order_by="k")))
    engine = make_engine([source("l", schema=schema), source("r", schema=schema)], assets)
    for part, rows in enumerate([[("a", 1, 0), ("b", 1, 0), ("a", 2, 30 * MINUTE)], [("a", 3, MINUTE)]]):
        maps = {"by_name": {"x": part, "y": None}, "deep": {"x": {"z": 1, "a": part}}, "inside": {"x": [{"b": 1, "a": 2}], "y": None}}
        for name in ("l", "r"):
            land(engine, name, f"{part}.jsonl", [_line(("k",), *row, **(maps if row[0] == "a" else {})) for row in rows])
        engine.ingest()
        if part == 1:
            engine.drain()
        for name in engine.assets:
            engine.advance(name)
    assert _law_holds(engine)
    held = {r["k"]: r["last_deep"] for r in engine.views.table("newest").where("window_start < timestamp'2026-03-01 00:05:00'").collect()}
    assert held == {"a": {"x": {"z": 1, "a": 1}}, "b": None}
    ranked = rows_of(engine.views.table("best"), "k", "v", "rank")
    assert sorted(ranked) == [("a", 1, 1), ("a", 2, 1), ("b", 1, 1)]
    assert {(k, rank) for k, rank in rows_of(engine.views.table("first"), "k", "rank")} == {("a", 1)}
    wrong = engine.views.table("newest").where("k = 'a'").selectExpr("* except (last_by_name)", "map('wrong', 1) AS last_by_name")
    wrong.select(*engine.views.table("newest").columns).write.format("delta").mode("append").save(engine.lake.path("newest"))
    assert law_violations(engine, "newest") == {("l", str(DAY))}
    assert engine.rebuild_days("newest", DAY, DAY).extra == 2
    assert law_violations(engine, "newest") == set()


def test_every_valid_contract_ingests(make_engine: MakeEngine) -> None:
    """Extreme legal values, each in a separate source."""
    forever = f"{3_652_059} days"
    given: dict[str, dict[str, Any]] = {
        "durations": dict.fromkeys(("duplicate_horizon", "idle_timeout", "future_skew"), forever),
        "zeros": {**dict.fromkeys(("duplicate_horizon", "idle_timeout"), 0), "watermark": BoundedOutOfOrderness(forever)},
        "Upper_9": {
            "rules": (RowRule("k.`k` 'is' {0} %s \\ é", "k != 'x'", "warn"), RowRule("$1", "k != 'y'"), RowRule("-", "true", "fail"))
        },
        "t" * 128: {"schema": "k string, v int, ts timestamp, c char(3), vc varchar(5), d decimal(38,18), n timestamp_ntz, b binary"},
        "nested": {"schema": "k string, v int, ts timestamp, s struct<_a:struct<`b-c`:int>>, l array<map<string,struct<x:date>>>"},
        "variants": {"schema": "k string, v int, ts timestamp, x variant"},
        "options": {"options": {"nullValue": "NA", "mode": "PERMISSIVE", "sep": "\t"}},
    }
    engine = make_engine([source(name, unique_key=("k",), **fields) for name, fields in given.items()], [])
    for name in given:
        land(engine, name, "1.jsonl", [Event("a", 1, 0).line, Event("x", 1, 1).line, Event("a", 1, 0).line])
    [batch, *_] = engine.ingest()  # a source with a tiny idle timeout is idle in the next batch
    assert {s.source: (s.accepted, s.duplicate, s.quarantined) for s in batch} == dict.fromkeys(given, (2, 1, 0))
    assert {s.warned for s in batch if s.source == "Upper_9"} == {1}


def test_a_thousand_columns_of_json_are_read(make_engine: MakeEngine) -> None:
    columns = tuple(f"c{n}" for n in range(998))
    engine = make_engine([source("l", schema=_schema(*columns), unique_key=("c0", "v"))], [])
    land(engine, "l", "1.jsonl", [_line(columns, "a", 1, 0), _line(columns, "b", 2, 1), _line(("C1",), "c", 3, 2), "{cut"])
    [batch] = engine.ingest()
    assert (batch[0].accepted, batch[0].quarantined) == (2, 2)
    assert rows_of(engine.views.table("events/l"), "c0", "c997", "v") == [("a", "a", 1), ("b", "b", 2)]
    reasons = sorted(r for (r,) in rows_of(engine.views.table("quarantine/l"), "reason"))
    assert "names in another case" in reasons[0]
    assert "not a JSON object" in reasons[1]


def test_a_column_that_files_added_may_be_declared_in_another_case(make_engine: MakeEngine) -> None:
    """A file adds `W`; the contract that declares `w` later reads it."""
    before = make_engine([source("l", new_columns="add", unique_key=("k",))], [])
    land(before, "l", "1.jsonl", ['{"k": "a", "v": 1, "ts": "2026-03-01T00:00:00Z", "W": "x"}'])
    before.ingest()
    assert before.views.table("events/l").columns[-1] == "W"
    schema = StructType([*ROW.fields]).add("w", "string")
    counts = DerivedAsset(name="counts", inputs=("l",), operator=Aggregate(by="w", aggregates={"n": "count(*)"}))
    after = make_engine([source("l", schema=schema, unique_key=("k", "w"))], [counts])
    land(after, "l", "2.jsonl", [json.dumps({"k": k, "v": 1, "ts": "2026-03-01T00:00:00Z", "w": "x"}) for k in ("a", "b")])
    [batch] = after.ingest()
    assert (batch[0].accepted, batch[0].duplicate) == (1, 1)
    after.advance("counts")
    assert rows_of(after.views.table("counts"), "w", "n") == [("x", 2)]
    assert all(a.holds for a in after.accounts.days("counts"))


def test_a_corrupted_file_is_an_error_under_any_session_defaults(make_engine: MakeEngine, spark: SparkSession) -> None:
    engine = make_engine([source("l")], [])
    land(engine, "l", "1.jsonl", [Event("a", 1, 0).line])
    engine.ingest()
    lenient = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    [file] = Path(engine.lake.path("events/l")).rglob("part-*.parquet")
    whole = file.read_bytes()
    for key in lenient:
        spark.conf.set(key, "true")
    try:
        for content in (b"PAR1" + b"x" * 100 + b"PAR1", None):
            file.write_bytes(content) if content else file.unlink()
            with pytest.raises(Exception, match="parquet"):
                engine.reading.log("l", 1).collect()
            file.write_bytes(whole)
    finally:
        for key in lenient:
            spark.conf.set(key, "false")
    Path(file.parent, f".{file.name}.crc").unlink(missing_ok=True)
    assert engine.reading.log("l", 1).count() == 1
