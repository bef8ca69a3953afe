"""Steps that are killed between any two of their writes: each table equals its twin, which was advanced in the same steps without a kill.

The tables are those whose steps write more than results: corrections, firings of purging windows, keys with a time to live and their kept
rows; and those of a pipeline in SQL. The kills of other tables are in `test_kills.py` and, for a whole pipeline, in `tests/chaos`.
"""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from assets.contracts import DerivedAsset
from operators import EveryInterval, IntervalJoin, TopN, Tumbling, WindowedAggregate
from platform_defs.declared.sql_pipeline import read_sql
from platform_defs.engine import Engine, faults
from tests.conftest import MakeEngine
from tests.support.json_rows import json_rows_of
from tests.support.kills import Killed, kill_at
from tests.support.small_sources import HOUR, MINUTE, Event, law_violations, replay

SQL = """
CREATE TABLE l (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)
WITH ('connector' = 'filesystem', 'format' = 'json');
CREATE TABLE r (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE)
WITH ('connector' = 'filesystem', 'format' = 'json');
INSERT INTO sql_windows
  SELECT k, window_start, window_end, SUM(v) AS total
  FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(ts), INTERVAL '5' MINUTE)) GROUP BY k, window_start, window_end;
INSERT INTO sql_totals SELECT k, COUNT(*) AS n, MAX(v) AS most FROM r GROUP BY k;
"""
TTL = 6 * MINUTE
SUMS = {"n": "count(*)", "total": "sum(v)"}
PURGING = WindowedAggregate(by="k", window=Tumbling(size="6 minutes"), aggregates=SUMS, purging=EveryInterval("2 minutes"))
TABLES = [
    DerivedAsset(
        name="corrected",
        inputs=("l", "r"),
        operator=IntervalJoin(on="k", lower="-4 minutes", upper="6 minutes", how="full", allowed_lateness="10 minutes"),
    ),
    DerivedAsset(name="purging", inputs=("l",), operator=PURGING),
    DerivedAsset(name="best", inputs=("r",), operator=TopN(by="k", order_by="v DESC", unique_key=("k", "v"), rank_end=2, ttl=TTL)),
]
RESULTS, CREATED, APPLIED, KEPT = (
    {"advance.before_commit", "advance.after_commit"},
    {"advance.before_changelog", "advance.after_changelog", "advance.before_create", "advance.after_create"},
    {"advance.before_apply", "advance.after_apply"},
    {"kept.before_commit", "kept.after_commit"},
)
POINTS = {
    "corrected": RESULTS,
    "purging": RESULTS,
    "best": CREATED | APPLIED | KEPT,
    "sql_windows": RESULTS,
    "sql_totals": CREATED | APPLIED,
}
"""The points between the writes of each table's steps."""
OF_STEPS = [CREATED, APPLIED | RESULTS, *({point} for point in sorted(KEPT))]
OF_STEPS_IN_SOAK = [points | RESULTS for points in OF_STEPS]
"""The points at which the steps of a batch are killed, by its number, counted from 0, modulo 4.

The attempt after a kill only finishes the step, and passes none.
"""


def _batches(number: int) -> list[Mapping[str, list[Event]]]:
    """Rows up to half an hour behind the newest: on time, within the allowed lateness, and late. The watermark is one minute behind."""
    rng, batches, newest = random.Random(2), list[Mapping[str, list[Event]]](), HOUR
    for _ in range(number):
        newest += rng.randrange(MINUTE, 8 * MINUTE)
        batches.append({side: [_event(rng, newest) for _ in range(7)] for side in "lr"})
    return batches


def _event(rng: random.Random, newest: int) -> Event:
    behind = rng.choice([0, 20, 60, 130, 300, 600, 800, 1_800]) * 1_000
    return Event(rng.choice(["a", "b", None]), rng.randrange(9), newest - behind)


def _advance_with_kills(engine: Engine, name: str, points: set[str]) -> set[str]:
    """Advance a table. Before that, try to advance it with a kill at each point, in the order of the writes; returns the passed points."""
    passed = set[str]()
    for point in [point for point in faults.POINTS if point in points]:
        kill_at(point)
        try:
            engine.advance(name)
        except Killed:
            passed.add(point)
        finally:
            faults.install(None)
    engine.advance(name)
    return passed


@pytest.mark.parametrize(
    ("batches", "of_steps", "only_killed"),
    [(4, OF_STEPS, {3}), pytest.param(12, OF_STEPS_IN_SOAK, set[int](), marks=pytest.mark.soak)],
    ids=["4 batches", "12 batches"],
)
def test_tables_whose_steps_are_killed_equal_their_twins(
    make_engine: MakeEngine, batches: int, of_steps: Sequence[set[str]], only_killed: set[int]
) -> None:
    """After the batches `only_killed`, counted from 1, only tables whose steps are killed are advanced, each with its twin."""
    pipeline = read_sql(SQL)
    sources = [replace(declared, future_skew=None) for declared in pipeline.sources]
    tables = [*TABLES, *pipeline.tables]
    twins = [replace(table, name=f"{table.name}_twin") for table in tables]
    killed, is_corrected_after_kills = defaultdict[str, set[str]](set), False
    for number, batch in enumerate(_batches(batches), 1):
        engine = make_engine(sources, [*tables, *twins])
        replay(engine, [batch])
        for table, twin in zip(tables, twins, strict=True):
            points = POINTS[table.name] & of_steps[(number - 1) % 4]
            if points or number not in only_killed:
                before = engine.pending.progress(table.name).corrected
                killed[table.name] |= _advance_with_kills(engine, table.name, points)
                is_corrected_after_kills |= bool(points) and engine.pending.progress(table.name).corrected != before
                engine.advance(twin.name)
        found = json_rows_of({name: engine.views.table(name) for name in engine.assets})
        for table, twin in zip(tables, twins, strict=True):
            assert found[table.name] == found[twin.name], (table.name, number)
    assert killed == POINTS
    assert [table.name for table in tables if law_violations(engine, table.name)] == []
    upserted = [pair for pair in zip(tables, twins, strict=True) if pair[0].operator.emits.upserts]
    changes = json_rows_of({table.name: engine.views.table(table.changelog).drop("changed_at") for pair in upserted for table in pair})
    for table, twin in upserted:
        assert changes[table.name] == changes[twin.name] != [], table.name
    assert is_corrected_after_kills, "a killed step had rows that were late within the allowed lateness"
