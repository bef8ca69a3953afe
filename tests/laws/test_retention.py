"""Retention changes no result and no account: a run whose logs and ledger lose old rows equals one that keeps them.

Each key has the number of a generated case, and no result has rows of two cases, so that two runs compare many cases.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset
from assets.preparation import Preparation
from operators import AsOfJoin, Session, TopK, Tumbling, WindowedAggregate, WindowJoin
from platform_defs.engine import Engine, MaintenanceError
from platform_defs.engine.inputs.retained import removed_rows_of
from platform_defs.engine.inputs.stored_rows import read_log
from platform_defs.engine.operations.retention import LakeRetention
from tests.conftest import engine_maker
from tests.support.clock import Clock
from tests.support.example_operators import RunningTotal
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import DAY, HOUR, MINUTE, Event, join, replay, source

COUNTS = WindowedAggregate(by="k", window=Tumbling(size="6 hours"), aggregates={"n": "count(*)"}, allowed_lateness="2 hours")
ASSETS = [
    join(),
    join("semi_pairs", how="semi", allowed_lateness="1 hour"),
    DerivedAsset(name="both", inputs=("l", "r"), operator=WindowJoin(on="k", window=Tumbling(size="8 hours"), how="full")),
    DerivedAsset(name="counts", inputs=("l",), operator=COUNTS),
    DerivedAsset(
        name="top",
        inputs=("counts",),
        operator=TopK(k=1, by="of_case", order_by=["n DESC", "k"]),
        prepare={"counts": Preparation(select="*, split_part(k, '-', 1) AS of_case")},
    ),
    DerivedAsset(
        name="visits",
        inputs=("l",),
        operator=WindowedAggregate(by="k", window=Session(gap="1 hour", longest="4 hours"), aggregates={"n": "count(*)"}),
    ),
    DerivedAsset(name="rates", inputs=("l", "r"), operator=AsOfJoin(on="k", max_age="5 hours", how="left")),
    DerivedAsset(name="total", inputs=("l",), operator=RunningTotal()),
]
SOURCES = [source("l", retention="1 day"), source("r", retention="1 day")]


def batches(seed: int, cases: int) -> list[Mapping[str, Sequence[Event]]]:
    """Four batches with rows of two days each, some late within a few hours; the last two also have rows of the first day."""
    rng, found = random.Random(seed), list[Mapping[str, Sequence[Event]]]()
    for part in range(4):
        newest = 2 * DAY * (part + 1)
        rows = {name: [Event("newest", 1, newest)] for name in ("l", "r")}
        for case in range(cases):
            around = newest - rng.randrange(0, 2 * DAY, 10 * MINUTE)
            for events in rows.values():
                events.extend(_rows(rng, case, around, with_first_day=part > 1))
        found.append(rows)
    return found


def _rows(rng: random.Random, case: int, around: int, *, with_first_day: bool) -> list[Event]:
    """Up to two rows of a case at about one time, and now and then one of the first day."""
    times = [max(0, around - rng.choice([0, 1, 5, 10, 60, 8 * 60]) * MINUTE) for _ in range(rng.randrange(3))]
    times += [5 * HOUR] if with_first_day and rng.random() < 0.2 else []
    return [Event(f"{case}-{rng.choice('ab')}", rng.randrange(9), at) for at in times]


def advanced(engine: Engine) -> Engine:
    for name in engine.assets:
        engine.advance(name)
    return engine


MANY = 1_000


@pytest.fixture(scope="module", params=[250, pytest.param(MANY, marks=pytest.mark.soak)])
def cases(request: pytest.FixtureRequest) -> int:
    """The number of cases."""
    return request.param


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, cases: int) -> tuple[Engine, Engine]:
    """A lake with maintenance after the third and after the fourth batch, and one without retention that was advanced once.

    The first maintenance removes rows of the logs and summarizes the ledger; the second one removes more rows, and adds to the summary.
    With `MANY` cases, there is also one after the second batch, which only removes rows of the logs.
    """
    clock = Clock()
    make_engine = engine_maker(spark, tmp_path_factory.mktemp("kept"), clock)
    kept = replace(make_engine(SOURCES, ASSETS), lake_retention=LakeRetention(ledger=DAY))
    first, second, third, fourth = batches(3, cases)
    parts = [[first, second, third], [fourth]] if cases < MANY else [[first, second], [third], [fourth]]
    summaries = list[int]()
    for part in parts:
        replay(kept, part)
        clock.pass_ms(2 * DAY)
        MaintenanceError.check(advanced(kept).maintain())
        summaries.append(kept.ledger.history.summarized)
    assert summaries[-2:] == [2, 4]
    lake = replace(kept.lake, root=str(tmp_path_factory.mktemp("whole")))
    whole = replace(kept, lake=lake, sources={n: replace(s, retention=None) for n, s in kept.sources.items()}, folders={})
    for part in parts:  # as above, so that the rows have the same `arrival`
        replay(whole, part)
    return kept, advanced(whole)


def test_results_equal_those_of_a_run_without_retention(both: tuple[Engine, Engine], cases: int) -> None:
    kept, _ = both
    removed = {m.table: m for m in kept.maintain()}
    assert [m.rows_removed for m in removed.values() if m.rows_removed] == [], "earlier maintenance has removed the rows"
    assert removed["events/l"].kept_from == "2026-03-07"
    removed = removed_rows_of(kept.lake, kept.sources["l"])
    assert removed is not None
    assert removed.rows > cases
    logs = [read_log(of.workspace, "l", of.ledger.head).count() for of in both]
    assert logs[0] == logs[1] - removed.rows
    found, expected = (json_rows_of({name: of.views.table(name) for name in of.assets}) for of in both)
    assert found == expected
    assert [name for name, rows in found.items() if len(rows) < cases // 2] == []


def test_lateness_decisions_are_removed_with_their_rows(both: tuple[Engine, Engine]) -> None:
    kept, whole = ({row.seq for row in of.lake.read(of.spark, "verdicts/visits").collect()} for of in both)
    assert kept == {seq for seq in whole if seq > 4}
    assert kept < whole


@pytest.fixture(scope="module")
def reopened(both: tuple[Engine, Engine]) -> tuple[Engine, Engine]:
    """The same lakes; the first one is opened once for the accounts of all tables, by an engine that has read nothing before."""
    return replace(both[0], earlier=None), both[1]


@pytest.mark.parametrize("name", [a.name for a in ASSETS])
def test_accounts_equal_those_of_a_run_without_retention(reopened: tuple[Engine, Engine], name: str) -> None:
    kept, whole = reopened
    found = kept.accounts.days(name)
    assert [a for a in found if not a.holds] == []
    assert kept.accounts.count_differences(name) == {}
    assert [a for a in found if a.accepted] == [a for a in whole.accounts.days(name) if a.accepted]


def test_the_state_equals_that_of_a_run_without_retention(both: tuple[Engine, Engine]) -> None:
    kept, whole = replace(both[0], earlier=None), both[1]
    assert (kept.ledger.history.summarized, kept.ledger.head) == (4, whole.ledger.head)
    for name in kept.assets:
        described = [
            {k: v for k, v in of.pending.describe_progress(name).items() if k not in ("steps", "kept_from")} for of in (kept, whole)
        ]
        assert described[0] == described[1]
        assert len({str(of.freshness.waiting(name)) for of in (kept, whole)}) == 1
    assert kept.views.metrics("total")["rows_in"] == whole.views.metrics("total")["rows_in"]
    for name in kept.sources:
        assert kept.ledger.totals(name) == whole.ledger.totals(name)
        assert state_of(kept, name) == state_of(whole, name)


def state_of(engine: Engine, source: str) -> list[Any]:
    row = engine.ledger.newest_rows()[source]
    return [row.watermark, row.max_event_time, row.idle, engine.ledger.source(source).oldest]
