"""Interval joins whose `result_time` is the time of one row, and windows over them, for each value of `late_rows` and `streams_as`.

Each key is a generated case, so that one stream compares many of them. Whenever a table is advanced, it equals a naive model: a join
has the results that are final at its watermark, and a table of windows over it has the windows that its own watermark has passed. That
watermark is behind the join's by the output watermark delay.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators import IntervalJoin, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.late_rows_model import Arrival, JoinModel
from tests.support.small_sources import MINUTE, START, Event, law_violations, replay, source

SIZE = 5 * MINUTE
NEWEST_MINUTES = [0, 5, 25]
"""For each batch, how many minutes its newest row is after the newest row of the first batch. The last one closes most earlier windows."""
BOUNDS: dict[str, Any] = {"on": "k", "lower": "-2 minutes", "upper": "8 minutes"}
JOINED, LATENESS = {"late_rows": "join"}, {"allowed_lateness": "12 minutes"}
LEFT, RIGHT = {"result_time": "left"}, {"result_time": "right"}
VARIANTS: dict[str, dict[str, Any]] = {
    "joined_left": {"how": "left", "time_buckets": True, **JOINED, **LEFT},
    "joined_right": {"how": "right", "residual": "left_v <= right_v", **JOINED, **LATENESS, **RIGHT},
    "joined_semi": {"how": "semi", "time_buckets": True, **JOINED, **LATENESS, **LEFT},
    "joined_anti": {"how": "anti", **JOINED, **LEFT},
    "late_semi": {"how": "semi", "residual": "left_v <= right_v", **LATENESS, **LEFT},
    "late_anti": {"how": "anti", "time_buckets": True, **LATENESS, **LEFT},
}
QUERIES: dict[str, dict[str, Any]] = {
    "query_left": {"how": "left", **LEFT},
    "query_inner": {"how": "inner", "residual": "left_v <= right_v", **RIGHT},
}
"""The joins that a stream computes by a query."""
READ = ["joined_left", "joined_right", "joined_semi", "late_anti", "query_left"]
"""The joins that have a reader."""
COUNTS = WindowedAggregate(by="k", window=Tumbling(size=SIZE), aggregates={"n": "count(*)"})
Rows = Counter[tuple[Any, ...]]
"""Of a join: key, values of both rows, result time and `final_at` in ms after `START`.
Of a window: key, start in ms after `START`, and number of results."""


def _tables() -> list[DerivedAsset]:
    joins = [
        DerivedAsset(name=name, inputs=("l", "r"), operator=IntervalJoin(**BOUNDS, **spec), streams_as=streams_as)
        for specs, streams_as in ((VARIANTS, "ranges"), (QUERIES, "query"))
        for name, spec in specs.items()
    ]
    return [*joins, *[DerivedAsset(name=f"{name}_counts", inputs=(name,), operator=COUNTS) for name in READ]]


@dataclass
class Model:
    """What a join and the windows over it contain, by their definitions.

    Args:
        operator: the join.
        arrivals: the rows of each key so far.
    """

    operator: IntervalJoin
    arrivals: dict[str, list[Arrival]] = field(default_factory=lambda: defaultdict(list))

    def add(self, batch: dict[str, list[Event]], watermark: int | None) -> None:
        """Add the rows of a batch, given the watermark before it."""
        for side, events in enumerate(batch.values()):
            for event in events:
                self.arrivals[str(event.k)].append(Arrival(side, (event.v, event.at), event.k, event.at, watermark, event.v))

    def results(self, watermark: int) -> Rows:
        """The results that are final at a watermark. The model returns each with the last time that decides it; it is final 1 ms later."""
        operator, found = self.operator, Rows()
        join = JoinModel(operator.interval, operator.how, operator.lateness.ms, operator.late_rows, operator.residual is not None)
        for key, rows in self.arrivals.items():
            for (left, right, later), count in join(rows).items():
                row = left if operator.result_time == "left" else right
                if later + 1 <= watermark:
                    found[key, left and left[0], right and right[0], row[1], later + 1] += count
        return found

    def counts(self, watermark: int) -> Rows:
        """The closed windows over the join.

        Their watermark is behind by the output watermark delay: the longest time from the row that gives the result time to the other row,
        and 1 ms.
        """
        watermark_delay = (8 if self.operator.result_time == "left" else 2) * MINUTE + 1
        found = Counter[tuple[str, int]]()
        for (key, _, _, at, _), count in self.results(watermark).items():
            start = at // SIZE * SIZE
            if start + SIZE - 1 <= watermark - watermark_delay:
                found[key, start] += count
        return Rows((*window, count) for window, count in found.items())


def _batches(seed: int, cases: int) -> Iterator[dict[str, list[Event]]]:
    """On each side one row at the newest time, and up to two rows of each case, at most 32 minutes older. The values of a case differ."""
    rng, newest, numbers = random.Random(seed), 0, Counter[str]()

    def event(case: str, behind: int) -> Event:
        numbers[case] += 1
        return Event(case, rng.choice([numbers[case], 100 - numbers[case]]), newest - behind)

    for minutes in NEWEST_MINUTES:
        newest = (40 + minutes) * MINUTE
        yield {
            side: [
                event("newest", 0),
                *[
                    event(case, rng.randrange(rng.choice([3, 12, 32])) * MINUTE + rng.randrange(2))
                    for case in map(str, range(cases))
                    for _ in range(rng.randrange(3))
                ],
            ]
            for side in "lr"
        }


def _stored(engine: Engine, names: Sequence[str]) -> dict[str, Rows]:
    """The rows of tables, read by one query."""
    frames, found = list[DataFrame](), {name: Rows() for name in names}
    for name in names:
        if not engine.lake.exists(name):
            continue
        table = engine.views.table(name)
        if name.endswith("_counts"):
            values = (F.unix_millis("window_start") - START, F.col("n"), F.lit(None), F.lit(None))
        else:
            values = [F.col(c) if c in table.columns else F.lit(None) for c in ("left_v", "right_v")]
            values = [F.col("v"), F.lit(None)] if "v" in table.columns else values
            values = (*values, F.unix_millis("result_time") - START, F.unix_millis("final_at") - START)
        frames.append(table.select(F.lit(name), "k", *[value.cast("bigint") for value in values]))
    for name, *row in reduce(DataFrame.union, frames).collect():
        found[name][tuple(row[:3] if name.endswith("_counts") else row)] += 1
    return found


@pytest.fixture
def engine(make_engine: MakeEngine) -> Iterator[Engine]:
    """An engine that advances tables as a stream does, so that `streams_as` has an effect."""
    engine = make_engine([source("l"), source("r")], _tables())
    engine.queries.are_enabled = True
    yield engine
    engine.queries.stop()


def _advance(engine: Engine, names: Sequence[str]) -> Counter[str]:
    """Advance tables; returns the number of corrections of each."""
    corrections = Counter[str]()
    for name in names:
        for step in engine.steps(name, purpose="stream"):
            corrections[name] += step.after.corrected != step.before.corrected
    return corrections


@pytest.mark.parametrize(
    ("cases", "only_queries"),
    [(250, {2}), pytest.param(1_000, set[int](), marks=pytest.mark.soak)],
    ids=["250 cases", "1,000 cases and all tables after each batch"],
)
def test_joins_whose_result_time_is_that_of_one_row_and_their_readers_equal_a_naive_model(
    engine: Engine, cases: int, only_queries: set[int]
) -> None:
    """After the batches `only_queries`, counted from 1, only the tables of queries are advanced. The next step of all others reads several
    batches.

    Each query computes two steps, and each of the other joins corrects its results and those of its reader.
    """
    models = {table.name: Model(table.operator) for table in _tables() if isinstance(table.operator, IntervalJoin)}
    corrections, found, watermark = Counter[str](), dict[str, Rows](), None
    for number, batch in enumerate(_batches(5, cases), 1):
        replay(engine, [batch])
        before, watermark = watermark, batch["l"][0].at - MINUTE - 1
        advanced = [name for name in engine.assets if number not in only_queries or name.startswith("query")]
        corrections += _advance(engine, advanced)
        found = _stored(engine, advanced)
        for name, model in models.items():
            model.add(batch, before)
            if name not in advanced:
                continue
            assert found[name] == model.results(watermark), (name, number)
            assert name not in READ or found[f"{name}_counts"] == model.counts(watermark), (name, number)
    assert {name for name, rows in found.items() if rows.total() < cases // 3} == set()
    assert {name for name in engine.assets if corrections[name]} == {name for name in engine.assets if not name.startswith("query")}
    for name in READ:
        assert law_violations(engine, f"{name}_counts") == set(), name
