"""Descriptions of columns may be added to the sources and tables of an existing lake."""

from dataclasses import replace

from assets.contracts import DerivedAsset
from operators import Aggregate, Tumbling, WindowedAggregate
from tests.conftest import MakeEngine
from tests.support.small_sources import MINUTE, Event, join, land, law_violations, rows_of, source

COUNTS = {"by": "k", "aggregates": {"n": "count(*)"}}
TABLES = [
    join(),
    DerivedAsset(name="windows", inputs=("l",), operator=WindowedAggregate(window=Tumbling(size="1 minute"), **COUNTS)),
    DerivedAsset(name="total", inputs=("l",), operator=Aggregate(**COUNTS)),
]


def test_descriptions_may_be_added_to_an_existing_lake(make_engine: MakeEngine) -> None:
    described = "k STRING COMMENT 'the key', v INT COMMENT 'the value', ts TIMESTAMP COMMENT 'the time'"
    before = make_engine([source("l"), source("r")], TABLES)
    sources = [source(name, schema=described) for name in ("l", "r")]
    after = make_engine(sources, [replace(table, columns={"k": "the key"}) for table in TABLES])
    for part, engine in enumerate((before, after)):
        for name in engine.sources:
            land(engine, name, f"{part}.jsonl", [Event("a", part, part * 60 * MINUTE).line, "not JSON"])
        engine.ingest()
        if engine is after:
            engine.drain()
        for name in engine.assets:
            engine.advance(name)
    assert rows_of(after.views.table("pairs"), "left_v", "right_v") == [(0, 0), (1, 1)]
    assert rows_of(after.views.table("windows"), "k", "n") == [("a", 1), ("a", 1)]
    assert rows_of(after.views.table("total"), "k", "n") == [("a", 2)]
    assert [name for name in after.assets if law_violations(after, name)] == []
