"""Tables with `streams_as="query"`: each step gives the closed ranges up to the table's watermark, also after its query failed or ended."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from assets.contracts import DerivedAsset
from operators import Cumulative, IntervalJoin, Sliding, Tumbling, WindowedAggregate
from operators.timing import ClosedRange
from platform_defs.engine import Engine, faults
from platform_defs.engine.advance.closed_ranges import ClosedRanges
from platform_defs.engine.advance.running_queries import FOLDER, RunningQuery, RunningQueryError
from tests.conftest import MakeEngine
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import MINUTE, Event, law_violations, replay, source

EDGE = 30
"""How far each batch moves the watermark, in ms."""
VALUES = {"n": "count(*)", "mean": "avg(v / 10D)", "top": "max_by(v, struct(event_time, seq, arrival))"}
JOIN = IntervalJoin(on="k", lower=-20, upper=10, how="full")
BEFORE = IntervalJoin(on="k", lower=-60, upper=-20, upper_exclusive=True, how="left", residual="left_v <= right_v")
SLIDING = WindowedAggregate(by="k", window=Sliding(size=30, slide=10), aggregates=VALUES)
MORE = {
    "after": IntervalJoin(on="k", lower=15, upper=40, how="right"),
    "empty": IntervalJoin(on="k", lower=20, upper=-20, how="full"),
    "inner": IntervalJoin(on="k", lower=0, upper=0),
    "tumbling": WindowedAggregate(by="k", window=Tumbling(size=20), aggregates={"sum": "sum(v / 10D)", "spread": "stddev(v)"}),
    "panes": WindowedAggregate(by="k", window=Sliding(size=30, slide=10), aggregates={"n": "count(*)", "most": "max(v)"}),
    "cumulative": WindowedAggregate(window=Cumulative(size=40, step=10), aggregates={"n": "count(*)", "sum": "sum(v / 10D) + 0"}),
}


def _table(name: str, operator: Any) -> DerivedAsset:
    inputs = ("l", "r") if isinstance(operator, IntervalJoin) else ("l",)
    return DerivedAsset(name=name, inputs=inputs, operator=operator, streams_as="query")


def _batches(seed: int, count: int) -> Iterator[dict[str, list[Event]]]:
    """Batches with rows at, just before and just after the watermark; null keys, equal rows and late rows."""
    choose = random.Random(seed)

    def rows(batch: int) -> list[Event]:
        mark = batch * EDGE - MINUTE - 1
        times = [batch * EDGE, *[mark + choose.randrange(-EDGE - 5, 2 * EDGE) for _ in range(25)], *[mark - EDGE + d for d in (-1, 0, 1)]]
        return [Event(choose.choice(("a", "a", "b", None)), choose.randrange(9), at) for at in times]

    return ({side: rows(batch) for side in ("l", "r")} for batch in range(count))


@pytest.fixture
def make(make_engine: MakeEngine) -> Iterator[Any]:
    """Makes an engine whose tables are computed by queries. The queries end after the test."""
    made = list[Engine]()

    def make(tables: list[DerivedAsset]) -> Engine:
        made.append(make_engine([source("l"), source("r")], tables))
        made[-1].queries.are_enabled = True
        return made[-1]

    yield make
    for engine in made:
        engine.queries.stop()
        assert not engine.lake.folders(f"{FOLDER}/join"), "nothing is left of a query"


def _step(engine: Engine, *, checked: bool = False) -> None:
    """Advance all tables as a stream does; each equals the closed ranges up to its watermark. If `checked`, the law of the step holds."""
    wanted = dict[str, DataFrame]()
    for name, table in engine.assets.items():
        [step] = engine.steps(name, checked=checked, purpose="stream")
        final = ClosedRange(None, step.after.closed_to or 0)
        wanted[f"{name} of closed ranges"] = ClosedRanges(engine.workspace, table).final_results(final, step.after.seq)
    found = json_rows_of({name: engine.views.table(name) for name in engine.assets} | wanted)
    for name in engine.assets:
        assert found[name] == found[f"{name} of closed ranges"], name


def _running(engine: Engine) -> dict[str, RunningQuery]:
    """The queries that run and fit the tables."""
    found = {name: engine.queries.query_at_step(name, engine.pending.progress(name).id) for name in engine.assets}
    return {name: query for name, query in found.items() if query is not None}


def _kill(engine: Engine, names: Sequence[str]) -> None:
    """A step of each table fails after its query has read the rows, and before the commit."""

    def handler(point: str) -> None:
        if point == "advance.before_commit":
            raise InterruptedError("a kill")

    faults.install(handler)
    for name in names:
        with pytest.raises(InterruptedError, match="a kill"):
            list(engine.steps(name, purpose="stream"))
    faults.install(None)


@pytest.mark.parametrize(
    ("batches", "failing"),
    [(3, ["join"]), pytest.param(4, ["join", "sliding"], marks=pytest.mark.soak)],
    ids=["3 batches", "4 batches"],
)
def test_a_table_equals_closed_ranges_at_each_step_also_after_its_query_failed(make: Any, batches: int, failing: list[str]) -> None:
    """The third step of the tables `failing` fails and is repeated. A step after the drain follows the last batch."""
    engine, used = make([_table("join", JOIN), _table("sliding", SLIDING)]), list[dict[str, RunningQuery]]()
    for n, batch in enumerate(_batches(1, batches)):
        replay(engine, [batch])
        if n == 2:
            _kill(engine, failing)
        _step(engine, checked=True)
        used.append(_running(engine))
    first, second, *later = used
    assert first == {}, "the first step of a table is a closed range"
    assert second.keys() == engine.assets.keys()
    for queries in later:
        assert [name for name in engine.assets if queries[name] != second[name]] == failing, "these are started again, the others go on"
    engine.drain()
    _step(engine)
    assert [_running(engine), *later] == [later[0]] * (len(later) + 1), "queries that were started again go on"
    files_of_state = [*Path(engine.lake.root, FOLDER).rglob("[!.]*.delta*")]
    assert {file.suffix for file in files_of_state} == {".delta"}, "Spark writes no checksum files of its own"
    assert [law_violations(engine, name) for name in engine.assets] == [set()] * 2


def test_a_query_that_has_ended_or_was_not_fed_a_step_is_started_again(make: Any) -> None:
    engine: Engine = make([_table("join", BEFORE)])
    batches = _batches(2, 5)
    for batch in (next(batches), next(batches)):
        replay(engine, [batch])
        _step(engine)
    query: Any = engine.queries.query_at_step("join", engine.pending.progress("join").id)
    query._query.stop()
    replay(engine, [next(batches)])
    with pytest.raises(
        RunningQueryError, match=r"has the watermark none instead of .*; nothing was committed, and the next step starts the query"
    ):
        _step(engine)
    _step(engine)
    replay(engine, [next(batches)])
    assert len(replace(engine).advance("join")) == 1, "a step of another process"
    replay(engine, [next(batches)])
    _step(engine)
    assert law_violations(engine, "join") == set()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_tables_of_other_operators_equal_closed_ranges_at_each_step(make: Any, seed: int) -> None:
    engine = make([_table(name, operator) for name, operator in MORE.items()])
    for batch in _batches(seed, 6):
        replay(engine, [batch])
        _step(engine)
    engine.drain()
    _step(engine)
    assert [name for name in engine.assets if law_violations(engine, name)] == []
