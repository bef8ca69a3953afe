"""Early results of the operators over windows other than the aggregate: their rows, and the number of rows of their windows."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from assets.contracts import DerivedAsset
from operators import (
    CoGroup,
    CountEvictor,
    Deduplicate,
    EveryRows,
    EveryStep,
    OperatorError,
    ProcessWindow,
    TopK,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)
from operators.contract import Operator
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import Event, replay, rows_of, source


def _early(engine: Engine, columns: Mapping[str, Sequence[str]]) -> dict[str, list[tuple[Any, ...]]]:
    """Some columns of the early results of tables, and the number of rows that they have seen; no result may be final."""
    frames = {name: engine.views.table(f"early/{name}").select(*mine, "rows_seen", "is_final") for name, mine in columns.items()}
    found = {name: [tuple(json.loads(row).values()) for row in rows] for name, rows in json_rows_of(frames).items()}
    assert not any(is_final for rows in found.values() for *_, is_final in rows)
    return {name: sorted((row[:-1] for row in rows), key=repr) for name, rows in found.items()}


@pytest.mark.parametrize(
    "finalized",
    [["full", "best"], pytest.param(["full", "anti", "groups", "best", "firsts", "elements"], marks=pytest.mark.soak)],
    ids=["some final", "all final"],
)
def test_every_operator_over_windows_shows_early_results(make_engine: MakeEngine, finalized: list[str]) -> None:
    """A row that is unmatched so far is replaced by its pair; `rows_seen` counts the rows of both sides.

    At the end, the tables `finalized`, in `make test` one of two inputs and one of one, have final results and no early ones.
    """
    window: dict[str, Any] = {"window": Tumbling(size="5 minutes"), "early": EveryStep()}
    operators: dict[str, Operator] = {
        "full": WindowJoin(on="k", how="full", **window),
        "anti": WindowJoin(on="k", how="anti", evictor=CountEvictor(2), **window),
        "groups": CoGroup(on="k", rows="transform(left, l -> struct(l.v AS lv, size(right) AS matches))", **window),
        "best": TopK(k=1, by="k", order_by="v DESC", **window),
        "firsts": Deduplicate(by="k", **window),
        "elements": ProcessWindow(by="k", rows="transform(elements, (e, i) -> struct(e.v, i))", **window),
    }
    assets = [DerivedAsset(name=n, inputs=("l", "r")[: len(o.inputs)], operator=o) for n, o in operators.items()]
    engine = make_engine([source("l"), source("r")], assets)
    columns = {
        "full": ["left_v", "right_v"],
        "anti": ["v"],
        "groups": ["lv", "matches"],
        "best": ["v", "rank"],
        "firsts": ["v"],
        "elements": ["v", "i"],
    }
    shown: dict[str, list[Any]] = {name: [] for name in operators}
    for batch in [{"l": [Event("a", 1, 0)], "r": [Event("b", 2, 0)]}, {"l": [Event("a", 3, 1)], "r": [Event("a", 4, 2)]}]:
        replay(engine, [batch])
        for name in operators:
            engine.advance(name)
        for name, rows in _early(engine, columns).items():
            shown[name].append(rows)
    assert shown == {
        "full": [[(1, None, 1), (None, 2, 1)], [(1, 4, 3), (3, 4, 3), (None, 2, 1)]],
        "anti": [[(1, 1)], []],
        "groups": [[(1, 0, 1)], [(1, 1, 3), (3, 1, 3)]],
        "best": [[(1, 1, 1)], [(3, 1, 2)]],
        "firsts": [[(1, 1)], [(1, 2)]],
        "elements": [[(1, 0, 1)], [(1, 0, 2), (3, 1, 2)]],
    }
    engine.drain()
    for name in finalized:
        engine.advance(name)
    assert _early(engine, {name: columns[name] for name in finalized}) == {name: [] for name in finalized}
    assert rows_of(engine.views.table("full"), "left_v", "right_v") == [(1, 4), (3, 4), (None, 2)]


def test_a_trigger_by_rows_counts_the_rows_of_both_sides_and_evicted_rows(make_engine: MakeEngine) -> None:
    given: dict[str, Any] = {"window": Tumbling(size="5 minutes"), "early": EveryRows(3), "evictor": CountEvictor(2)}
    operators: dict[str, Operator] = {
        "pairs": WindowJoin(on="k", how="full", **given),
        "sums": WindowedAggregate(by="k", aggregates={"v": "sum(v)"}, **given),
    }
    assets = [DerivedAsset(name=n, inputs=("l", "r")[: len(o.inputs)], operator=o) for n, o in operators.items()]
    engine = make_engine([source("l"), source("r")], assets)
    columns, shown = {"pairs": ["left_v", "right_v"], "sums": ["v"]}, {"pairs": list[Any](), "sums": list[Any]()}
    for side, numbers in [("l", (0, 1)), ("r", (2,)), ("l", (3,)), ("l", (4, 5))]:
        replay(engine, [{side: [Event("a", n, n) for n in numbers]}])
        for asset in assets:
            if side in asset.inputs:
                engine.advance(asset.name)
        for name, rows in _early(engine, columns).items():
            shown[name].append(rows)
    assert shown["pairs"] == [[], [(1, 2, 3)], [(1, 2, 3)], [(4, None, 6), (5, None, 6)]]
    assert shown["sums"] == [[], [], [(4, 3)], [(4, 3)]]


def test_a_trigger_without_a_window_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"`early` is EveryStep\(\); legal: None without a `window`: the windows that the rows"):
        TopK(k=1, order_by="v", early=EveryStep())
    with pytest.raises(OperatorError, match=r"`early` is EveryStep\(\); legal: None without a `window`: the table itself has the current"):
        Deduplicate(by="k", early=EveryStep())
