"""Laws of advance: a table does not depend on the steps that compute it."""

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from platform_defs.engine import Engine
from platform_defs.engine.inputs.reader import read_input
from platform_defs.engine.lake.tables import Lake
from tests.conftest import CopyEngine, MakeEngine
from tests.support.clock import Clock
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import (
    DAY,
    HOUR,
    MINUTE,
    START,
    Event,
    correct_totals,
    join,
    law_violations,
    replay,
    source,
    totals,
)


def stream(seed: int, batches: int = 4, rows: int = 80, jitter: int = MINUTE // 2, late: float = 0.05) -> list[dict[str, list[Event]]]:
    """Batches of two hours each, across midnight. Rows on time are less than `jitter` ms before the start of their batch."""
    rng = random.Random(seed)
    keys = [None, *"abcdefgh"]
    batches_made: list[dict[str, list[Event]]] = []
    for batch in range(batches):
        start = 18 * HOUR + batch * 2 * HOUR

        def event(start: int = start) -> Event:
            behind = rng.randrange(4 * HOUR) if rng.random() < late else 0
            return Event(rng.choice(keys), rng.randrange(100), start + rng.randrange(2 * HOUR) - behind - rng.randrange(jitter))

        batches_made.append({name: [event() for _ in range(rows)] for name in ("l", "r")})
    return batches_made


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("how", ["full", pytest.param("inner", marks=pytest.mark.soak)])
def test_a_table_does_not_depend_on_its_steps(make_engine: MakeEngine, seed: int, how: str) -> None:
    names = ["stepwise", "at_once", "in_small_steps"]
    engine = make_engine([source("l"), source("r")], [join(n, how=how) for n in names])
    for batch in stream(seed):
        replay(engine, [batch])
        engine.advance("stepwise")
    engine.advance("at_once")
    small = make_engine([source("l"), source("r")], [join(n, how=how) for n in names], max_step=450)
    steps = small.advance("in_small_steps")
    found = json_rows_of({name: engine.views.table(name) for name in names})
    assert len(steps) > 1
    assert len(found["stepwise"]) > 100
    assert found["stepwise"] == found["at_once"] == found["in_small_steps"]
    counts = correct_totals(engine, "stepwise")
    assert counts["l", "late"] > 0
    assert counts["r", "late"] > 0


EVENT = st.builds(Event, st.sampled_from([None, "a", "b", "c"]), st.integers(0, 99), st.integers(20 * HOUR, 28 * HOUR))
BATCH = st.fixed_dictionaries({name: st.lists(EVENT, max_size=25) for name in ("l", "r")})


@given(batches=st.lists(BATCH, min_size=2, max_size=4), max_step=st.integers(80, 200))
@settings(max_examples=2, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_table_does_not_depend_on_its_steps_for_any_arrival_order(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, batches: list[dict[str, list[Event]]], max_step: int
) -> None:
    """Rows in any order, most of them late, and small steps."""
    sources = {name: source(name) for name in ("l", "r")}
    assets = {name: join(name) for name in ("stepwise", "in_small_steps")}
    engine = Engine(Lake(str(tmp_path_factory.mktemp("any") / "lake")), sources, assets, lambda: spark, Clock())
    for batch in batches:
        replay(engine, [batch])
        engine.advance("stepwise")
    engine.drain()
    engine.advance("stepwise")
    replace(engine, max_step=max_step).advance("in_small_steps")
    if engine.pending.progress("stepwise").step:
        found = json_rows_of({name: engine.views.table(name) for name in assets})
        assert found["stepwise"] == found["in_small_steps"]
        assert law_violations(engine, "stepwise") == set()
    else:
        assert not any(events for batch in batches for events in batch.values())


def test_the_batches_do_not_matter_if_no_row_is_late(make_engine: MakeEngine) -> None:
    batches = stream(3, late=0)
    merged = [{f"{n}3": [e for b in batches[i : i + 2] for e in b[n]] for n in ("l", "r")} for i in range(0, 4, 2)]
    names = [("l", "r"), ("l3", "r3")]
    engine = make_engine([source(n) for pair in names for n in pair], [join("fine", names[0]), join("coarse", names[1])])
    replay(engine, [batches[0], batches[1] | merged[0], batches[2], batches[3] | merged[1]])
    for name in engine.assets:
        engine.advance(name)
    content = ["k", "left_v", "right_v", "left_ts", "right_ts", "result_time", "final_at"]
    found = json_rows_of({name: engine.views.table(name).select(*content) for name in engine.assets})
    assert len(found["fine"]) > 100
    assert found["fine"] == found["coarse"]


@pytest.fixture(scope="module")
def advanced(make_module_engine: MakeEngine) -> Engine:
    """A lake whose table was advanced once."""
    engine = make_module_engine([source("l"), source("r")], [join()])
    replay(engine, stream(4, batches=2))
    assert len(engine.advance("pairs")) == 1
    return engine


def test_a_second_advance_changes_nothing(advanced: Engine, make_module_engine: MakeEngine) -> None:
    version = advanced.lake.version("pairs")
    assert advanced.advance("pairs") == []
    assert make_module_engine([source("l"), source("r")], [join()]).advance("pairs") == []
    assert advanced.lake.version("pairs") == version


def test_a_drained_stream_leaves_nothing_pending(advanced: Engine, copy_engine: CopyEngine) -> None:
    engine = copy_engine(advanced)
    assert totals(engine)["l", "pending"] > 0
    engine.drain()
    engine.advance("pairs")
    assert {(a.side, a.pending, a.holds) for a in engine.accounts.days("pairs")} == {("l", 0, True), ("r", 0, True)}


def test_an_advance_stops_at_until_and_resumes_from_there(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l"), source("r")], [join("cut"), join("whole")])
    replay(engine, stream(5))
    midnight = START + DAY - 1
    assert engine.advance("cut", midnight)[-1].after.closed_to == midnight
    assert engine.views.table("cut").where(f"unix_millis(final_at) > {midnight}").isEmpty()
    engine.advance("cut")
    engine.advance("whole")
    found = json_rows_of({name: engine.views.table(name) for name in engine.assets})
    assert found["cut"] == found["whole"] != []


def test_a_table_derived_from_a_derived_table_equals_a_backfill(make_engine: MakeEngine) -> None:
    """(l join r) join r: the second join reads the results of the first, and its watermark depends on the first table."""
    first = join("first", how="inner")
    second = join("second", ("first", "r"), how="left", lower=0, upper="10 minutes", left_prefix="pair_", right_prefix="again_")
    engine: Engine = make_engine([source("l"), source("r")], [first, second])
    for batch in stream(7, batches=3):
        replay(engine, [batch])
        engine.advance("first")
        engine.advance("second")
    whole = second.operator(
        engine.views.table("first").withColumnRenamed("result_time", "event_time").drop("final_at"),
        read_input(engine.workspace, second, 1, engine.ledger.head),
    )
    closed_to = engine.pending.progress("second").closed_to
    found = json_rows_of({"stepwise": engine.views.table("second"), "whole": whole.where(f"unix_millis(final_at) <= {closed_to}")})
    assert len(found["stepwise"]) > 50
    assert found["stepwise"] == found["whole"]
