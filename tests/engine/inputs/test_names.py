"""Sources with unusual columns (internal names, maps, a thousand columns, another case) are ingested and processed without a lost row."""

import json
from typing import Any

import pytest
from pyspark.sql.types import StructField, StructType

from assets.contracts import DerivedAsset
from assets.days import moment
from operators import Aggregate, Deduplicate, Session, TopK, TopN, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.json_rows import values_of
from tests.support.small_sources import MINUTE, ROW, START, iso, join, land, law_violations, rows_of, source

INTERNAL = (
    *("run", "t", "place", "count", "copies", "change", "step", "side", "day", "print", "said", "source", "value", "row", "c", "session"),
    *("which", "taken", "key", "kind", "time", "o", "n", "f", "k", "s", "r", "name", "path", "late", "accepted", "seqs"),
    "row_hash",
)
"""Names that the engine uses or once used for its own columns."""
UNUSUAL = ("order-id", "@timestamp", "$type", "a:b", "1st", "größe", "कीमत", "select", "Mixed")
"""Legal names that SQL accepts only in backticks."""
MAPS = "by_name map<string,int>, deep map<string,map<string,int>>, inside struct<x:array<map<string,int>>,y:int>, any variant"
FIRST_DAY = moment(START).date()


def _schema(*columns: str) -> StructType:
    return StructType([StructField(c, ROW["k"].dataType) for c in columns]).add("v", "integer").add("ts", "timestamp")


def _line(columns: tuple[str, ...], key: str, v: int, at: int, **more: Any) -> str:
    return json.dumps({**dict.fromkeys(columns, key), "v": v, "ts": iso(START + at), **more})


def _law_holds(engine: Engine) -> bool:
    has_differences = any(engine.accounts.count_differences(name) for name in engine.assets)
    return not has_differences and all(a.holds for name in engine.assets for a in engine.accounts.days(name))


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.soak)], ids=["half of the names each", "all names each"])
def test_column_names_do_not_collide_with_internal_names(make_engine: MakeEngine, every: int) -> None:
    """The sources and `pairs` have all names. In `make test`, the windows are grouped by every second name, and the sessions by the others:
    the time of a step grows with the square of the columns of its key.

    An upserted table cannot have a column that its changelog adds, such as `change`, so `newest` and `best` read a source without them.

    The first batch has a duplicate, and closes windows. The second one has a duplicate of the first, and a row that is late for `pairs`,
    and within the allowed lateness of `windows`.
    """
    columns, first = (*INTERNAL, *UNUSUAL), (INTERNAL[0], UNUSUAL[0])
    key, others = {"unique_key": (*columns, "v"), "schema": _schema(*columns)}, tuple(c for c in columns if c not in first)
    totals = {"total": "sum(v)", "rows": "count(*)"}
    lenient: dict[str, Any] = {"allowed_lateness": "1 hour"}
    windows = WindowedAggregate(by=(*first, *others[::every]), window=Tumbling(size="5 minutes"), aggregates=totals, **lenient)
    sessions = WindowedAggregate(
        by=others[every - 1 :: every], window=Session(gap="2 minutes"), aggregates={"how_many": "count(*)"}, **lenient
    )
    assert {*windows.by, *sessions.by} == {*columns}
    assets = [
        join(on=first),
        DerivedAsset(name="windows", inputs=("l",), operator=windows),
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
            if name != "pairs" or part == 1:  # one step has all pairs
                engine.advance(name)
    results = rows_of(engine.views.table("windows"), *[f"`{c}`" for c in first], "total", "rows")
    assert ("a", "a", 4, 2) in results, "corrected by a row within the allowed lateness"
    for name in engine.assets:
        rebuilt = engine.rebuild_days(name, FIRST_DAY, FIRST_DAY)
        assert (rebuilt.missing, rebuilt.extra) == (0, 0)
    engine.maintain(small_files=2, retention_hours=0)
    assert _law_holds(engine)


def test_maps_and_variants_are_joined_corrected_accounted_for_and_rebuilt(make_engine: MakeEngine) -> None:
    schema = f"k string, v int, ts timestamp, {MAPS}"
    newest = WindowedAggregate(
        by="k",
        window=Tumbling(size="5 minutes"),
        aggregates={f"last_{c}": f"max_by({c}, struct(event_time, seq, arrival))" for c in ("by_name", "deep", "inside", "any")},
        allowed_lateness="1 hour",
    )
    top = TopN(by="k", order_by="v DESC", rank_end=2, unique_key=("k", "v"))
    by_operator = {"newest": newest, "top": top, "best": TopK(k=2, order_by="v DESC", by="k", window=Tumbling(size="5 minutes"))}
    assets = [join(), *(DerivedAsset(name=name, inputs=("l",), operator=operator) for name, operator in by_operator.items())]
    assets.append(DerivedAsset(name="first", inputs=("newest",), operator=TopK(k=1, order_by="k")))
    engine = make_engine([source("l", schema=schema), source("r", schema=schema)], assets)
    for part, rows in enumerate([[("a", 1, 0), ("b", 1, 0), ("a", 2, 30 * MINUTE)], [("a", 3, MINUTE)]]):
        maps = {
            "by_name": {"x": part, "y": None},
            "deep": {"x": {"z": 1, "a": part}},
            "inside": {"x": [{"b": 1, "a": 2}], "y": None},
            "any": {"b": [part], "a": None},
        }
        for name in ("l", "r"):
            land(engine, name, f"{part}.jsonl", [_line(("k",), *row, **(maps if row[0] == "a" else {})) for row in rows])
        engine.ingest()
        if part == 1:
            engine.drain()
        for name in engine.assets:
            if name in ("newest", "top", "first") or part == 1:  # the others are not corrected
                engine.advance(name)
    assert _law_holds(engine)
    first_window = engine.views.table("newest").where("window_start < timestamp'2026-03-01 00:05:00'").select("k", "last_deep")
    columns = {"best": ("k", "v", "rank"), "first": ("k", "rank")}
    rows = values_of({"newest": first_window} | {name: engine.views.table(name).select(*of_table) for name, of_table in columns.items()})
    assert rows["newest"] == [("a", {"x": {"z": 1, "a": 1}}), ("b", None)]
    assert rows["best"] == [("a", 1, 1), ("a", 2, 1), ("b", 1, 1)]
    assert {*rows["first"]} == {("a", 1)}
    wrong = engine.views.table("newest").where("k = 'a'").selectExpr("* except (last_by_name)", "map('wrong', 1) AS last_by_name")
    wrong.select(*engine.views.table("newest").columns).write.format("delta").mode("append").save(engine.lake.path("newest"))
    assert law_violations(engine, "newest") == {("l", str(FIRST_DAY))}
    assert engine.rebuild_days("newest", FIRST_DAY, FIRST_DAY).extra == 2
    assert law_violations(engine, "newest") == set()


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
