"""Assets derived from windowed assets: an append-only asset can be read by time range, but not by new rows."""

from dataclasses import replace

import pytest

from assets.contracts import DerivedAsset
from operators import CoGroup, Consecutive, Deduplicate, IntervalJoin, OperatorError, Session, TopK, Tumbling, WindowedAggregate, WindowJoin
from operators.contract import Operator
from tests.conftest import MakeEngine
from tests.support.small_sources import MINUTE, Event, replay, rows_of, source

WINDOW = Tumbling(size="3 minutes")
COUNT = WindowedAggregate(by="k", window=WINDOW, aggregates={"n": "count(*)"})


def test_every_windowed_result_can_be_an_input(make_engine: MakeEngine) -> None:
    operators = {
        "firsts": (Deduplicate(by="k", window=WINDOW), ("l",)),
        "best": (TopK(k=2, order_by="v DESC", window=WINDOW), ("l",)),
        "semi": (WindowJoin(on="k", window=WINDOW, how="semi"), ("l", "r")),
        "pairs": (WindowJoin(on="k", window=WINDOW), ("l", "r")),
        "groups": (CoGroup(on="k", window=WINDOW), ("l", "r")),
    }
    assets = [DerivedAsset(name=name, inputs=inputs, operator=operator) for name, (operator, inputs) in operators.items()]
    assets += [DerivedAsset(name=f"{name}_counted", inputs=(name,), operator=COUNT) for name in operators]
    engine = make_engine([source("l"), source("r")], assets)
    rows = [Event(k, v, minute * MINUTE) for minute in (0, 1, 4) for k in "ab" for v in (1, 2)]
    replay(engine, [{"l": rows, "r": [e for e in rows if e.k == "a"]}])
    engine.drain()
    counted = {}
    for asset in assets:
        engine.advance(asset.name)
    for name in operators:
        windows = engine.views.table(f"{name}_counted").selectExpr("k", "unix_millis(window_start)", "n").collect()
        assert {r[1] % (3 * MINUTE) for r in windows} == {0}
        counted[name] = sorted((r[0], r[2]) for r in windows)
    assert counted == {
        "firsts": [("a", 1), ("a", 1), ("b", 1), ("b", 1)],
        "best": [("a", 1), ("a", 1), ("b", 1), ("b", 1)],
        "semi": [("a", 2), ("a", 4)],
        "pairs": [("a", 4), ("a", 16)],
        "groups": [("a", 1), ("a", 1), ("b", 1), ("b", 1)],
    }


def test_sessions_over_tables_have_no_late_rows(make_engine: MakeEngine) -> None:
    sessions = Session(gap="3 minutes")
    assets = [
        DerivedAsset(name="counts", inputs=("l",), operator=COUNT),
        DerivedAsset(name="visits", inputs=("counts",), operator=WindowedAggregate(by="k", window=sessions, aggregates={"n": "sum(n)"})),
    ]
    engine = make_engine([source("l")], assets)
    replay(engine, [{"l": [Event("a", 1, minute * MINUTE) for minute in minutes]} for minutes in ((0, 2, 4, 30), (1, 31))])
    engine.drain()
    for name in ("counts", "visits"):
        engine.advance(name)
    assert rows_of(engine.views.table("visits"), "k", "n") == [("a", 2), ("a", 3)]


@pytest.mark.parametrize(
    ("operator", "time"),
    [
        (replace(COUNT, time="ts"), "time"),
        (TopK(k=1, order_by="v", window=WINDOW, time="ts"), "time"),
        (Deduplicate(by="k", window=WINDOW, time="ts"), "time"),
        (Consecutive(of=replace(COUNT, time="ts"), then=TopK(k=1, order_by="n")), "time"),
        (WindowJoin(on="k", window=WINDOW, left_time="ts"), "left_time"),
        (CoGroup(on="k", window=WINDOW, right_time="ts"), "right_time"),
        (IntervalJoin(on="k", lower=0, upper=1, right_time="ts"), "right_time"),
    ],
)
def test_an_asset_uses_the_event_time_of_the_engine(operator: Operator, time: str) -> None:
    with pytest.raises(OperatorError, match=f"`{time}` is 'ts'; legal: 'event_time', by which .*; set the source's"):
        DerivedAsset(name="x", inputs=("l", "r")[: len(operator.inputs)], operator=operator)
