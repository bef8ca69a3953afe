"""Window results do not depend on batches, on the order of arrival within the watermark's bound, or on kills."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from assets.contracts import DerivedAsset
from operators import (
    CoGroup,
    Consecutive,
    CountEvictor,
    Deduplicate,
    DeltaEvictor,
    ProcessWindow,
    Session,
    Sliding,
    TimeEvictor,
    TopK,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)
from operators.contract import Operator
from platform_defs.engine import Engine
from tests.conftest import MakeEngine, engine_maker
from tests.support.clock import Clock
from tests.support.json_rows import json_rows_of
from tests.support.kills import run_and_die
from tests.support.small_sources import MINUTE, Event, replay, source

SLIDING, TUMBLING = Sliding(size="4 minutes", slide="2 minutes"), Tumbling(size="3 minutes", offset="1 minute")
COUNT = WindowedAggregate(by="k", window=SLIDING, aggregates={"n": "count(*)", "total": "sum(v)"})
SESSION = Session(gap="1 minute", longest="10 minutes")
NEAR = DeltaEvictor("abs(row.v - last.v)", 3)
OPERATORS: dict[str, Operator] = {
    "counts": COUNT,
    "ranks": Consecutive(of=COUNT, then=TopK(k=2, order_by=["total DESC", "k"])),
    "best": TopK(k=2, order_by=["v DESC", "ts"], window=TUMBLING),
    "firsts": Deduplicate(by="k", window=SLIDING),
    "pairs": WindowJoin(on="k", how="full", window=TUMBLING),
    "groups": CoGroup(on="k", window=TUMBLING),
    "sessions": WindowedAggregate(by="k", window=SESSION, aggregates={"n": "count(*)"}),
    "session_starts": Deduplicate(by="k", window=SESSION),
    "session_best": TopK(k=2, by="k", order_by=["v DESC", "ts"], window=SESSION),
    "last_pairs": WindowJoin(on="k", how="full", window=TUMBLING, evictor=CountEvictor(4)),
    "last_groups": CoGroup(on="k", window=SESSION, evictor=TimeEvictor("2 minutes")),
    "steps": ProcessWindow(by="k", window=SLIDING, rows="transform(elements, (e, i) -> struct(e.v, i AS at))", evictor=NEAR),
}
WITH_MODEL = {"counts", "pairs", "sessions", "session_best"}
"""Other laws compare these operators, in batches and with late rows, with a model or with the operator over all rows of the log."""
ARRIVAL_COLUMNS = ("seq", "arrival", "event_time_raw")


def _rows(seed: int) -> dict[str, list[Event]]:
    """Rows of both sides with distinct times, ordered by time."""
    rng = random.Random(seed)
    times = sorted(rng.sample(range(12 * MINUTE), 60))
    rows = [Event(rng.choice(["a", "b", None]), rng.randrange(5), at) for at in times]
    return {"l": rows[::2], "r": rows[1::2]}


def _batches(rows: Mapping[str, list[Event]], parts: int, seed: int) -> list[Mapping[str, list[Event]]]:
    """The rows in batches. They arrive less than a minute out of order."""
    rng = random.Random(seed)
    arrivals = {side: sorted(events, key=lambda e: e.at + rng.randrange(MINUTE - 1)) for side, events in rows.items()}
    return [{side: events[part * 30 // parts : (part + 1) * 30 // parts] for side, events in arrivals.items()} for part in range(parts)]


def _tables(engine: Engine) -> dict[str, list[str]]:
    """The rows of every table, without the columns that depend on the arrival of rows."""
    return json_rows_of({name: _without_arrival(engine.views.table(name)) for name in engine.assets})


def _without_arrival(table: DataFrame) -> DataFrame:
    if "left" in table.columns:
        sides = [f"sort_array(transform({side}, r -> struct(r.event_time, r.v))) AS {side}" for side in ("left", "right")]
        return table.selectExpr("k", "window_start", "window_end", *sides)
    return table.drop(*ARRIVAL_COLUMNS, *(f"{side}_{c}" for side in ("left", "right") for c in ARRIVAL_COLUMNS))


@pytest.mark.parametrize(
    "names",
    [[name for name in OPERATORS if name not in WITH_MODEL], pytest.param([*OPERATORS], marks=pytest.mark.soak)],
    ids=["without model", "all"],
)
def test_any_batching_order_or_kill_gives_the_same_result(
    make_engine: MakeEngine, tmp_path: Path, spark: SparkSession, names: list[str]
) -> None:
    assets = [DerivedAsset(name=n, inputs=("l", "r")[: len(o.inputs)], operator=o) for n, o in OPERATORS.items() if n in names]
    rows = _rows(8)
    makers = engine_maker(spark, tmp_path / "at_once", Clock()), make_engine
    at_once, in_parts = (make([source("l"), source("r")], assets) for make in makers)
    replay(at_once, _batches(rows, 1, 1))
    first, second = _batches(rows, 2, 2)
    replay(in_parts, [first])
    for name in in_parts.assets:
        run_and_die(lambda name=name: in_parts.advance(name), "advance.after_commit")
    replay(in_parts, [second])
    for engine in (at_once, in_parts):
        engine.drain()
        for name in engine.assets:
            engine.advance(name)
    wanted, found = _tables(at_once), _tables(in_parts)
    assert found == wanted
    assert all(wanted.values())
    late = {f"{name} {side}": in_parts.views.late(name, side) for name, asset in in_parts.assets.items() for side in asset.inputs}
    assert [side for side, rows in json_rows_of(late).items() if rows] == []
