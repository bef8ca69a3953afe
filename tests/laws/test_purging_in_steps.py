"""Windows that purge, in several steps: the tables equal the simulated operator and a backfill of the log, and their increments add up."""

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators import Aggregate, CoGroup, EveryInterval, EveryRows, Sliding, Tumbling, WindowedAggregate, WindowJoin
from platform_defs.engine import Engine
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.inputs.timelines import operator_timeline
from tests.conftest import MakeEngine
from tests.support.json_rows import values_of
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


def _batches(seed: int, count: int) -> list[Mapping[str, list[Event]]]:
    """About 40 rows up to nine minutes behind the newest; each has its own value. The watermark is one minute behind the newest."""
    rng, batches, newest, value = random.Random(seed), list[Mapping[str, list[Event]]](), 6 * MINUTE, iter(range(1_000))
    for _ in range(count):
        newest += rng.randrange(3 * MINUTE)
        behind = [rng.choice([0, 1, 20, 60, 61, 200, 300, 540]) * 1_000 for _ in range(40 // count)]
        batches.append({"l": [Event(rng.choice(["a", "b", None]), next(value), newest - b) for b in behind]})
    return batches


def _log(engine: Engine, name: str) -> DataFrame:
    return read_log(engine.workspace, name, engine.ledger.head).select("seq", "arrival", "k", F.unix_millis("event_time").alias("t"), "v")


def _wanted(engine: Engine, name: str, log: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The firings of the simulated operator, for each key, from the log and the watermark before each batch."""
    operator, marks = OPERATORS[name], operator_timeline(engine.workspace, engine.assets[name]).after
    found = list[tuple[Any, ...]]()
    for key in ("a", "b", None):
        of_key = [Row(v, t, marks[seq - 1]) for seq, _, k, t, v in sorted(log, key=lambda row: row[:2]) if k == key]
        firings = WindowOperator(operator.window, operator.purging, LATENESS).firings(of_key)  # pyright: ignore[reportArgumentType]
        found += [(key, *of.window, of.number, of.at, of.ids) for of in firings]
    return sorted(found, key=repr)


def _firings(engine: Engine, table: str, *columns: str) -> DataFrame:
    """The key, window, number and time of each firing, and some columns."""
    times = ["unix_millis(window_start) AS start", "unix_millis(window_end) AS end", "firing", "unix_millis(final_at) AS at"]
    return engine.views.table(table).selectExpr("k", *times, *columns)


def _with_tuples(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows with tuples in place of lists, sorted for comparison."""
    return sorted((tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in rows), key=repr)


@pytest.mark.parametrize(("seed", "count"), [(4, 2), pytest.param(8, 3, marks=pytest.mark.soak)], ids=["2 batches", "3 batches"])
def test_firings_in_steps_equal_the_model_and_a_backfill_and_add_up(make_engine: MakeEngine, seed: int, count: int) -> None:
    tables = [DerivedAsset(name=name, inputs=("l",), operator=of) for name, of in OPERATORS.items()]
    tables += [DerivedAsset(name=f"{name}_again", inputs=("l",), operator=of) for name, of in OPERATORS.items()]
    tables.append(DerivedAsset(name="so_far", inputs=("by_rows",), operator=Aggregate(by="window_start", aggregates={"n": "sum(n)"})))
    engine = make_engine([source("l")], tables)
    seen = list[int]()
    for batch in _batches(seed, count):
        replay(engine, [batch])
        for name in (*OPERATORS, "so_far"):
            engine.advance(name)
        seen.append(DeltaTable(engine.lake.path("by_rows")).count())
    assert [name for name in (*OPERATORS, "so_far") if law_violations(engine, name)] == [], "with pending rows"
    open_windows = engine.views.table("by_rows").where(F.unix_millis("window_end") > START + 11 * MINUTE)
    assert not open_windows.isEmpty()
    engine.drain()
    for name in engine.assets:
        engine.advance(name)
    assert [name for name in (*OPERATORS, "so_far") if law_violations(engine, name)] == []
    tables = {name: _firings(engine, name, "ids", "n") for name in engine.assets if name != "so_far"}
    so_far = engine.views.table("so_far").selectExpr("unix_millis(window_start) AS start", "n")
    found = values_of({**tables, "so_far": so_far, "l": _log(engine, "l")})
    for name in OPERATORS:
        wanted = _wanted(engine, name, found["l"])
        assert _with_tuples([row[:-1] for row in found[name]]) == wanted
        assert _with_tuples([row[:-1] for row in found[f"{name}_again"]]) == wanted
        assert any(at > end - 1 for _, _, end, _, at, _ in wanted), "a late row fires after its window's end"
        assert max(number for _, _, _, number, *_ in wanted) > 2
        assert (rebuilt := engine.rebuild_days(name)).missing == rebuilt.extra == 0
    assert seen == sorted({*seen}), "each batch adds firings, and no step takes one back"
    added = Counter[int]()
    for _, start, *_, n in found["by_rows"]:
        added[start] += n
    assert found["so_far"] == sorted(added.items(), key=repr)


OF_TWO_INPUTS: dict[str, CoGroup | WindowJoin] = {
    "groups": CoGroup(on="k", window=Tumbling(size="6 minutes"), allowed_lateness=LATENESS, purging=EveryRows(3)),
    "joined": WindowJoin(
        on="k",
        how="full",
        window=Sliding(size="6 minutes", slide="4 minutes"),
        allowed_lateness=LATENESS,
        purging=EveryInterval("1 minute"),
    ),
}


def _firings_of_two_inputs(engine: Engine, name: str, logs: Mapping[str, list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """The key, window, number, time, left and right values of each simulated firing. On each side, a null key is a separate key."""
    operator, marks = OF_TWO_INPUTS[name], operator_timeline(engine.workspace, engine.assets[name]).after
    arrived = list[tuple[int, int, int, str | None, Row]]()
    for side, log in enumerate("lr"):
        arrived += [(seq, arrival, side, k, Row(v, t, marks[seq - 1])) for seq, arrival, k, t, v in logs[log]]
    side_of, found = {row.id: side for _, _, side, _, row in arrived}, list[tuple[Any, ...]]()
    for group in [("a", None), ("b", None), (None, 0), (None, 1)]:
        rows = [row for *_, side, k, row in sorted(arrived, key=lambda of: of[:3]) if (k, side if k is None else None) == group]
        for of in WindowOperator(operator.window, operator.purging, LATENESS).firings(rows):  # pyright: ignore[reportArgumentType]
            sides = [tuple(v for v in of.ids if side_of[v] == side) for side in (0, 1)]
            found.append((group[0], *of.window, of.number, of.at, *sides))
    return sorted(found, key=repr)


def _pairs_of(firings: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The results of a full join of the rows of each firing."""
    pairs = list[tuple[Any, ...]]()
    for k, *bounds, left, right in firings:
        matches = [(a, b) for a in left for b in right] if k else []
        alone = [] if matches else [*((a, None) for a in left), *((None, b) for b in right)]
        pairs += [(k, *bounds, a, b) for a, b in [*matches, *alone]]
    return sorted(pairs, key=repr)


@pytest.mark.parametrize(("seed", "count"), [(10, 2), pytest.param(7, 3, marks=pytest.mark.soak)], ids=["2 batches", "3 batches"])
def test_firings_of_two_inputs_in_steps_equal_the_model_and_a_backfill(make_engine: MakeEngine, seed: int, count: int) -> None:
    """The trigger counts the rows of both inputs, in the order in which they reach the window."""
    names = {name: of for operator in OF_TWO_INPUTS for name, of in ((operator, operator), (f"{operator}_again", operator))}
    tables = [DerivedAsset(name=name, inputs=("l", "r"), operator=OF_TWO_INPUTS[of]) for name, of in names.items()]
    engine = make_engine([source("l"), source("r")], tables)
    seen = list[int]()
    *_, last = batches = _batches(seed, count)
    for batch in batches:
        replay(engine, [{"l": batch["l"][::2], "r": batch["l"][1::2]}])
        if batch is last:
            engine.drain()
        for name in names if batch is last else OF_TWO_INPUTS:
            engine.advance(name)
        seen.append(DeltaTable(engine.lake.path("groups")).count())
    assert [name for name in OF_TWO_INPUTS if law_violations(engine, name)] == []
    columns = {"groups": ("sort_array(left.v) AS left", "sort_array(right.v) AS right"), "joined": ("left_v", "right_v")}
    tables = {name: _firings(engine, name, *columns[of]) for name, of in names.items()}
    found = values_of({**tables, **{side: _log(engine, side) for side in "lr"}})
    groups, of_joined = (_firings_of_two_inputs(engine, name, found) for name in ("groups", "joined"))
    assert _with_tuples(found["groups"]) == _with_tuples(found["groups_again"]) == groups
    assert found["joined"] == found["joined_again"] == _pairs_of(of_joined)
    assert any(left and right for *_, left, right in groups)
    assert max(number for _, _, _, number, *_ in groups) > 2
    assert any(at > end - 1 for _, _, end, _, at, *_ in of_joined), "a late row fires after its window's end"
    assert seen == sorted({*seen}), "each batch adds firings, and no step takes one back"
    for name, firings in (("groups", groups), ("joined", of_joined)):
        matched = {
            (side, v) for _, _, _, _, _, *sides in firings if all(sides) for side, values in zip("lr", sides, strict=True) for v in values
        }
        counted = Counter(side for side, _ in matched)
        matches = engine.accounts.matches(name)
        assert {side: sum(m.matched for m in matches if m.side == side) for side in "lr"} == counted
        assert (rebuilt := engine.rebuild_days(name)).missing == rebuilt.extra == 0


def test_a_purging_join_of_a_source_and_a_table_accounts_for_both(make_engine: MakeEngine) -> None:
    """Only the rows of the source have the watermark of their batch."""
    counts = DerivedAsset(
        name="counts", inputs=("r",), operator=WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"})
    )
    join = WindowJoin(on="k", window=Tumbling(size="10 minutes"), how="full", purging=EveryRows(2))
    tables = [DerivedAsset(name=f"joined{n}", inputs=inputs, operator=join) for n, inputs in enumerate([("l", "counts"), ("counts", "l")])]
    engine = make_engine([source("l"), source("r")], [counts, *tables])
    for first in (0, 6):
        events = [Event("a", minute, minute * MINUTE) for minute in range(first, first + 6)]
        replay(engine, [{"l": events, "r": events}])
        if first == 6:
            engine.drain()
        for name in ("counts", "joined0", "joined1"):
            engine.advance(name)
    for name in ("joined0", "joined1"):
        assert law_violations(engine, name) == set(), name
        assert engine.views.table(name).count() > 4, name
