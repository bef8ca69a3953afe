"""Windows that purge, in several steps: the tables equal the simulated operator and a backfill of the log, and their increments add up."""

import random
from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators import Aggregate, EveryInterval, EveryRows, Sliding, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.purging_model import Row, WindowOperator
from tests.support.small_sources import MINUTE, START, Event, law_violations, replay, source

LATENESS = 2 * MINUTE
OPERATORS = {
    "by_rows": WindowedAggregate(
        by="k",
        window=Tumbling(size="6 minutes"),
        aggregates={"n": "count(*)", "ids": "sort_array(collect_list(v))"},
        allowed_lateness=LATENESS,
        purging=EveryRows(2),
    ),
    "by_interval": WindowedAggregate(
        by="k",
        window=Sliding(size="6 minutes", slide="4 minutes"),
        aggregates={"n": "count(*)", "ids": "sort_array(collect_list(v))"},
        allowed_lateness=LATENESS,
        purging=EveryInterval("1 minute"),
    ),
}


def _batches(rng: random.Random) -> list[Mapping[str, list[Event]]]:
    """Rows up to nine minutes behind the newest; each has its own value. The watermark is one minute behind the newest."""
    batches, newest, value = list[Mapping[str, list[Event]]](), 0, iter(range(1_000))
    for _ in range(3):
        newest += rng.randrange(3 * MINUTE)
        behind = [rng.choice([0, 1, 20, 60, 61, 200, 300, 540]) * 1_000 for _ in range(13)]
        batches.append({"l": [Event(rng.choice(["a", "b", None]), next(value), newest - b) for b in behind]})
    return batches


def _wanted(engine: Engine, name: str) -> list[tuple[Any, ...]]:
    """The firings of the simulated operator, for each key, from the log and the watermark before each batch."""
    operator, marks = OPERATORS[name], engine.reading.operator_timeline(engine.assets[name]).after
    log = engine.reading.log("l", engine.ledger.head).select("k", F.unix_millis("event_time"), "v", "seq", "arrival").collect()
    rows = sorted(log, key=lambda row: (row.seq, row.arrival))
    found = list[tuple[Any, ...]]()
    for key in ("a", "b", None):
        of_key = [Row(v, t, marks[seq - 1]) for k, t, v, seq, _ in rows if k == key]
        firings = WindowOperator(operator.window, operator.purging, LATENESS).firings(of_key)  # pyright: ignore[reportArgumentType]
        found += [(key, *of.window, of.number, of.at, of.ids) for of in firings]
    return sorted(found, key=repr)


def _results(engine: Engine, table: str) -> list[tuple[Any, ...]]:
    times = [F.unix_millis(c) for c in ("window_start", "window_end")]
    rows = engine.views.table(table).select("k", *times, "firing", F.unix_millis("final_at"), "ids").collect()
    return sorted(((*row[:5], tuple(row[5])) for row in rows), key=repr)


def test_firings_in_steps_equal_the_model_and_a_backfill_and_add_up(make_engine: MakeEngine) -> None:
    tables = [DerivedAsset(name=name, inputs=("l",), operator=of) for name, of in OPERATORS.items()]
    tables += [DerivedAsset(name=f"{name}_again", inputs=("l",), operator=of) for name, of in OPERATORS.items()]
    tables.append(DerivedAsset(name="so_far", inputs=("by_rows",), operator=Aggregate(by="window_start", aggregates={"n": "sum(n)"})))
    engine = make_engine([source("l")], tables)
    seen = list[int]()
    for batch in _batches(random.Random(8)):
        replay(engine, [batch])
        for name in (*OPERATORS, "so_far"):
            engine.advance(name)
            assert law_violations(engine, name) == set()
        seen.append(engine.views.table("by_rows").count())
    open_windows = engine.views.table("by_rows").where(F.unix_millis("window_end") > START + 5 * MINUTE)
    assert not open_windows.isEmpty()
    engine.drain()
    for name in engine.assets:
        engine.advance(name)
        assert law_violations(engine, name) == set()
    for name in OPERATORS:
        wanted = _wanted(engine, name)
        assert _results(engine, name) == wanted
        assert _results(engine, f"{name}_again") == wanted
        assert any(at > end - 1 for _, _, end, _, at, _ in wanted), "a late row fires after its window's end"
        assert max(number for _, _, _, number, *_ in wanted) > 2
        assert engine.rebuild(name).missing == engine.rebuild(name).extra == 0
    assert seen == sorted({*seen}), "each batch adds firings, and no step takes one back"
    found = {(r.window_start, r.n) for r in engine.views.table("so_far").collect()}
    added = engine.views.table("by_rows").groupBy("window_start").agg(F.sum("n").alias("n"))
    assert found == {(r.window_start, r.n) for r in added.collect()}
