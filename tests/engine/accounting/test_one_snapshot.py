"""An account, a status and a step read one snapshot, whatever is committed while they are computed."""

from collections.abc import Callable
from typing import Any

import pytest

from assets.contracts import DerivedAsset
from operators import Tumbling, WindowedAggregate
from platform_defs.cli import render
from platform_defs.engine import Engine
from platform_defs.engine.accounting import counted_rows as counting
from platform_defs.engine.accounting.account import RowBooks
from platform_defs.engine.accounting.upserted_rows import EntryBooks
from tests.conftest import CopyEngine, MakeEngine
from tests.support.example_operators import RunningTotal
from tests.support.shopkeeping import DAY, MINUTE, Event, broken, join, replay, rows_of, source, totals

COUNT = WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"}, allowed_lateness="2 minutes")
SOURCES = [source("l"), source("r")]
ASSETS = [
    join(),
    DerivedAsset(name="counts", inputs=("l",), operator=COUNT),
    DerivedAsset(name="total", inputs=("l",), operator=RunningTotal()),
]


@pytest.fixture(scope="module")
def grown(make_module_engine: MakeEngine) -> Engine:
    engine = make_module_engine(SOURCES, ASSETS)
    replay(engine, [{"l": [Event("a", n, n * MINUTE) for n in range(10)], "r": [Event("a", 1, 9 * MINUTE)]}])
    for name in engine.assets:
        engine.advance(name)
    return engine


@pytest.fixture
def engine(grown: Engine, copy_engine: CopyEngine) -> Engine:
    return copy_engine(grown)


def meanwhile(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, act: Callable[[], object]) -> None:
    """Run an action before each call of a method of the account."""
    original = getattr(owner, method)

    def replaced(self: Any, *args: Any, **named: Any) -> Any:
        act()
        return original(self, *args, **named)

    monkeypatch.setattr(owner, method, replaced)


PLACES = [
    pytest.param("counts", counting.CountBooks, "_settled", id="windows"),
    pytest.param("pairs", RowBooks, "_results", id="a join"),
    pytest.param("total", EntryBooks, "_handled", id="a table that upserts"),
]


@pytest.mark.parametrize(("asset", "owner", "method"), PLACES)
def test_an_account_reads_one_snapshot_during_ingests_and_steps(
    engine: Engine, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, asset: str, owner: type, method: str
) -> None:
    other = make_engine(SOURCES, ASSETS)
    landed: list[int] = []

    def act() -> None:
        landed.append(len(landed))
        replay(other, [{"l": [Event("b", len(landed), 11 * MINUTE), Event("a", 1, 8 * MINUTE)], "r": [Event("b", 1, 11 * MINUTE)]}])
        other.advance(asset)

    before = totals(engine, asset)
    meanwhile(monkeypatch, owner, method, act)
    assert broken(engine, asset) == set()
    assert landed
    assert totals(engine, asset)["l", "accepted"] > before["l", "accepted"]
    monkeypatch.undo()
    assert broken(engine, asset) == set()


def test_a_status_reads_one_snapshot_of_the_ledger(engine: Engine, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    other = make_engine(SOURCES, ASSETS)

    def act() -> None:
        replay(other, [{"l": [Event("b", 1, DAY)], "r": [Event("b", 1, DAY)]}])
        for name in other.assets:
            other.advance(name)

    meanwhile(monkeypatch, RowBooks, "_results", act)
    seen = render.status(engine, engine.assets)
    assert seen["ledger_head"] == 2
    assert all(asset["law"]["holds"] for asset in seen["assets"].values())
    assert seen["assets"]["pairs"]["accepted"] == {side: seen["sources"][side]["accepted"] for side in "lr"} == {"l": 10, "r": 1}
    assert rows_of(engine.views.table("total"), "n") == [(10,), (2,)]
