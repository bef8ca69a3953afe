"""The metrics of a leaderboard count its partitions, rows, changes and invalid rank ends."""

from assets.contracts import DerivedAsset
from operators import Aggregate, TopN, Tumbling, WindowedAggregate
from tests.conftest import MakeEngine
from tests.support.small_sources import HOUR, Event, replay, rows_of, source


def test_partitions_with_an_invalid_rank_end_are_counted(make_engine: MakeEngine) -> None:
    top = TopN(by="k", order_by="v", rank_end="v")
    engine = make_engine([source("l")], [DerivedAsset(name="top", inputs=("l",), operator=top)])
    replay(engine, [{"l": [Event("a", 0, 0), Event("b", 2, 1), Event(None, -1, 2)]}, {"l": [Event("a", 5, 3), Event("b", 1, 4)]}])
    engine.advance("top")
    assert rows_of(engine.views.table("top"), "k", "v", "rank") == [("b", 1, 1), ("b", 2, 2)]
    found = engine.views.metrics("top")
    assert (found["partitions"], found["rows"], found["rows_in"], found["changes_out"], found["invalid_rank_ends"]) == (1, 2, 5, 2, 2)
    assert found["rows_with_other_rank_end"] == 2


def test_state_is_the_table_and_what_a_step_reads_again(make_engine: MakeEngine) -> None:
    counts = DerivedAsset(name="counts", inputs=("l",), operator=Aggregate(by=("k", "v"), aggregates={"n": "count(*)"}))
    means = DerivedAsset(name="means", inputs=("l",), operator=Aggregate(by="k", aggregates={"mean": "avg(v)"}))
    keyed = {"by": "k", "unique_key": ("k", "v"), "change": "change", "rank_end": 1}
    rising = DerivedAsset(name="rising", inputs=("counts",), operator=TopN(order_by="n DESC", **keyed))
    falling = DerivedAsset(name="falling", inputs=("counts",), operator=TopN(order_by="n", **keyed))
    engine = make_engine([source("l")], [counts, means, rising, falling])
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 1, 1), Event("a", 2, 2), Event("b", 1, 3)]}])
    for name in engine.assets:
        engine.advance(name)
    held = {name: engine.views.metrics(name)["state_rows"] for name in engine.assets}
    assert held == {"counts": 3, "means": 2 + 4, "rising": 2, "falling": 2 + 3}


def test_a_leaderboard_of_final_results_counts_them(make_engine: MakeEngine) -> None:
    per_minute = WindowedAggregate(by="k", window=Tumbling(size="1 minute"), aggregates={"n": "count(*)"})
    tables = [
        DerivedAsset(name="per_minute", inputs=("l",), operator=per_minute),
        DerivedAsset(name="best", inputs=("per_minute",), operator=TopN(order_by="n DESC", rank_end=1)),
        DerivedAsset(name="mean", inputs=("per_minute",), operator=Aggregate(by="k", aggregates={"mean": "avg(n)"})),
    ]
    engine = make_engine([source("l")], tables)
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 1, 1), Event("b", 2, 2), Event("b", 1, HOUR)]}])
    for name in engine.assets:
        engine.advance(name)
    found = {name: engine.views.metrics(name) for name in ("best", "mean")}
    assert {name: (of["rows_in"], of["state_rows"]) for name, of in found.items()} == {"best": (2, 1), "mean": (2, 2 + 2)}
