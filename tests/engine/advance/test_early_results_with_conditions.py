"""Early results of tables with a condition on their results, for each kind of window and each kind of trigger."""

from functools import reduce
from itertools import product
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset, Shape
from operators import EveryInterval, EveryRows, EveryStep, ProcessWindow, Session, Tumbling, WindowedAggregate
from operators.windows import AnyWindow
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.json_rows import json_rows_of
from tests.support.small_sources import MINUTE, Event, replay, source

WINDOWS: dict[str, AnyWindow] = {
    "tumbling": Tumbling(size="5 minutes"),
    "session": Session(gap="2 minutes", longest="5 minutes"),
}
TRIGGERS = {"step": EveryStep(), "rows": EveryRows(2), "interval": EveryInterval("1 hour")}
SOME = [("tumbling", "step"), ("session", "rows"), ("session", "interval")]
"""A kind of window for each trigger."""
BATCHES = [[0, 1], [2], [3], [4, 9 * MINUTE]]
"""The times of the rows of each batch. With the last one the watermark passes an hour, and the windows that the others fill are final."""


def _shown(engine: Engine, names: list[str]) -> dict[str, list[int]]:
    """The number of rows of each early result, by table."""
    frames = [engine.views.table(f"early/{name}").select(F.lit(name).alias("name"), "n", "window_end") for name in names]
    rows = reduce(DataFrame.unionByName, frames).orderBy("window_end").collect()
    return {name: [row.n for row in rows if row.name == name] for name in names}


def _without_three_and_four(rows: DataFrame) -> DataFrame:
    return rows.where("n % 5 < 3")


@pytest.mark.parametrize(
    "kinds",
    [pytest.param(SOME, id="some"), pytest.param([*product(WINDOWS, TRIGGERS)], id="all", marks=pytest.mark.soak)],
)
def test_a_result_that_no_longer_matches_is_removed_when_the_trigger_fires(make_engine: MakeEngine, kinds: list[tuple[str, str]]) -> None:
    """The condition holds for the first two rows, not for three or four, and again for five. For tumbling windows it is a function."""
    assert ({kind for kind, _ in kinds}, {how for _, how in kinds}) == ({*WINDOWS}, {*TRIGGERS})
    shapes = {"session": Shape(where="n % 5 < 3"), "tumbling": _without_three_and_four}
    counted: dict[str, Any] = {"by": "k", "aggregates": {"n": "count(*)"}}
    tables = [
        DerivedAsset(
            name=f"{kind}_{how}",
            inputs=("l",),
            operator=WindowedAggregate(window=WINDOWS[kind], early=TRIGGERS[how], **counted),
            shape=shapes[kind],
        )
        for kind, how in kinds
    ]
    engine = make_engine([source("l")], tables)
    shown: dict[str, list[list[int]]] = {table.name: [] for table in tables}
    for batch in BATCHES:
        replay(engine, [{"l": [Event("a", 1, at) for at in batch]}])
        for name in shown:
            engine.advance(name)
        for name, counts in _shown(engine, [*shown]).items():
            shown[name].append(counts)
    wanted = {
        "step": [[2], [], [], [1]],  # the window with the last row
        "rows": [[2], [2], [], []],
        "interval": [[2], [2], [2], [1]],
    }
    assert shown == {f"{kind}_{how}": wanted[how] for kind, how in kinds}
    final = json_rows_of({name: engine.views.table(name).select("n") for name in shown})
    assert final == {name: ['{"n":5}'] for name in shown}


def test_a_window_without_results_stays_shown_until_an_interval_passes(make_engine: MakeEngine) -> None:
    """The function of a window returns its rows while there are two; the window itself stays open."""
    rows = "if(size(elements) < 3, array(named_struct('n', size(elements))), array())"
    tables = [
        DerivedAsset(name=kind, inputs=("l",), operator=ProcessWindow(by="k", window=of, rows=rows, early=TRIGGERS["interval"]))
        for kind, of in WINDOWS.items()
    ]
    engine, shown = make_engine([source("l")], tables), list[dict[str, list[int]]]()
    for batch in (BATCHES[0], BATCHES[1], BATCHES[-1]):
        replay(engine, [{"l": [Event("a", 1, at) for at in batch]}])
        for name in WINDOWS:
            engine.advance(name)
        shown.append(_shown(engine, [*WINDOWS]))
    assert shown == [dict.fromkeys(WINDOWS, counts) for counts in ([2], [2], [1])]
