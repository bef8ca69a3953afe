"""An account and a status read one snapshot, whatever is committed while they are computed."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from assets.contracts import DerivedAsset
from operators import Tumbling, WindowedAggregate
from platform_defs.cli import status as status_report
from platform_defs.engine import Engine
from platform_defs.engine.accounting import counted_rows, traced_rows, upserted_rows
from tests.conftest import CopyEngine, MakeEngine
from tests.support.example_operators import RunningTotal
from tests.support.small_sources import DAY, MINUTE, Event, join, law_violations, replay, rows_of, source

COUNT = WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"}, allowed_lateness="2 minutes")
SOURCES = [source("l"), source("r")]
ASSETS = [
    join(),
    DerivedAsset(name="counts", inputs=("l",), operator=COUNT),
    DerivedAsset(name="total", inputs=("l",), operator=RunningTotal()),
]


@pytest.fixture(scope="module")
def prepared_engine(make_module_engine: MakeEngine) -> Engine:
    engine = make_module_engine(SOURCES, ASSETS)
    replay(engine, [{"l": [Event("a", n, n * MINUTE) for n in range(10)], "r": [Event("a", 1, 9 * MINUTE)]}])
    for name in engine.assets:
        engine.advance(name)
    return engine


@pytest.fixture
def engine(prepared_engine: Engine, copy_engine: CopyEngine) -> Engine:
    return copy_engine(prepared_engine)


def run_before_calls(monkeypatch: pytest.MonkeyPatch, owner: ModuleType, name: str, act: Callable[[], object]) -> None:
    """Run an action before each call of a function of the account."""
    original = getattr(owner, name)

    def replaced(*args: Any) -> Any:
        act()
        return original(*args)

    monkeypatch.setattr(owner, name, replaced)


FUNCTIONS = [
    pytest.param("counts", counted_rows, "_logged_rows", id="windows"),
    pytest.param("pairs", traced_rows, "_rows_in_results", id="a join"),
    pytest.param("total", upserted_rows, "_rows_of_source", id="an upserted table"),
]


@pytest.mark.parametrize(("asset", "owner", "name"), FUNCTIONS)
def test_an_account_reads_one_snapshot_during_ingests_and_steps(
    engine: Engine, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, asset: str, owner: ModuleType, name: str
) -> None:
    other = make_engine(SOURCES, ASSETS)
    landed: list[int] = []

    def act() -> None:
        landed.append(len(landed))
        replay(other, [{"l": [Event("b", len(landed), 11 * MINUTE), Event("a", 1, 8 * MINUTE)], "r": [Event("b", 1, 11 * MINUTE)]}])
        other.advance(asset)

    before = engine.ledger.totals("l")["accepted"]
    run_before_calls(monkeypatch, owner, name, act)
    assert law_violations(engine, asset) == set()
    assert landed
    assert engine.ledger.totals("l")["accepted"] > before


def test_a_status_reads_one_snapshot_of_the_ledger(engine: Engine, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    other = make_engine(SOURCES, ASSETS)

    def act() -> None:
        replay(other, [{"l": [Event("b", 1, DAY)], "r": [Event("b", 1, DAY)]}])
        for name in other.assets:
            other.advance(name)

    run_before_calls(monkeypatch, traced_rows, "_logged_rows", act)  # for each of the two sides
    status = status_report.recounted_status(engine, engine.assets)
    assert status["ledger_head"] == 2
    assert all(asset["law"]["holds"] for asset in status["assets"].values())
    assert status["assets"]["pairs"]["accepted"] == {side: status["sources"][side]["accepted"] for side in "lr"} == {"l": 10, "r": 1}
    assert rows_of(engine.views.table("total"), "n") == [(10,), (2,)]
