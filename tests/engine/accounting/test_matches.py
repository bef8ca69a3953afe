"""The completeness of every kind of join in a lake: matched, unmatched and late rows by side and day."""

from datetime import date

import pytest

from assets.contracts import DerivedAsset
from operators import AsOfJoin, CoGroup, IntervalJoin, OperatorError, Tumbling, WindowedAggregate, WindowJoin
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.small_sources import DAY, HOUR, MINUTE, Event, join, replay, source

WINDOW = Tumbling(size="10 minutes")
COUNT = WindowedAggregate(by="k", window=WINDOW, aggregates={"n": "count(*)"})
FIRST, SECOND = date(2026, 3, 1), date(2026, 3, 2)
TABLES = [
    join("pairs"),
    DerivedAsset(name="windows", inputs=("l", "r"), operator=WindowJoin(on="k", window=WINDOW, how="anti")),
    DerivedAsset(name="groups", inputs=("l", "r"), operator=CoGroup(on="k", window=WINDOW)),
    DerivedAsset(name="counts", inputs=("r",), operator=COUNT),
    DerivedAsset(name="of_counts", inputs=("l", "counts"), operator=IntervalJoin(on="k", lower=0, upper="20 minutes")),
    DerivedAsset(name="as_of_counts", inputs=("l", "counts"), operator=AsOfJoin(on="k")),
]


def _matches(engine: Engine, name: str) -> dict[tuple[str, date], tuple[int, int, int]]:
    return {(m.side, m.day): (m.matched, m.unmatched, m.late) for m in engine.accounts.matches(name)}


def test_each_join_counts_its_matched_unmatched_and_late_rows(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l"), source("r")], TABLES)
    day = DAY + 5 * MINUTE
    batches = [
        {
            "l": [Event("a", 1, 0), Event("b", 2, MINUTE), Event(None, 3, MINUTE), Event("a", 4, day)],
            "r": [Event("a", 5, 2 * MINUTE), Event("a", 6, 3 * MINUTE), Event("c", 7, MINUTE), Event("b", 8, day)],
        },
        {"l": [Event("b", 9, 2 * MINUTE)], "r": [Event("x", 10, DAY + HOUR)]},
        {"l": [Event("x", 11, DAY + 2 * HOUR)], "r": []},
    ]
    replay(engine, batches)
    engine.ingestion.control_batches.drain(DAY)
    for name in engine.assets:
        engine.advance(name)
    of_sources = {
        ("l", FIRST): (1, 2, 1),  # `a`; `b` and null are unmatched, a second `b` is late
        ("r", FIRST): (2, 1, 0),
        ("l", SECOND): (0, 2, 0),
        ("r", SECOND): (0, 2, 0),
    }
    for name in ("pairs", "windows", "groups"):
        assert _matches(engine, name) == of_sources, name
    assert _matches(engine, "of_counts") == {
        ("l", FIRST): (1, 2, 1),
        ("counts", FIRST): (1, 1, 0),
        ("l", SECOND): (0, 2, 0),
        ("counts", SECOND): (0, 2, 0),
    }
    # on the first day no count is older than a row; `a` of the second day finds the count of the first
    assert _matches(engine, "as_of_counts") == {("l", FIRST): (0, 3, 1), ("l", SECOND): (2, 0, 0)}
    assert [m.matched for m in engine.accounts.matches("as_of_counts", (SECOND, SECOND))] == [2]
    [first] = [found for found in engine.accounts.matches("windows", (FIRST, FIRST)) if found.side == "l"]
    assert (first.matched, first.completeness) == (1, 0.25)
    with pytest.raises(OperatorError, match="WindowedAggregate does not report which rows match"):
        engine.accounts.matches("counts")


def test_rows_that_may_still_be_matched_do_not_count(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l"), source("r")], TABLES[1:3])
    assert [engine.accounts.matches(name) for name in engine.assets] == [[], []]
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 2, 11 * MINUTE)], "r": [Event("a", 3, 12 * MINUTE)]}])
    for name in engine.assets:
        engine.advance(name)
        assert _matches(engine, name) == {("l", FIRST): (0, 1, 0)}
