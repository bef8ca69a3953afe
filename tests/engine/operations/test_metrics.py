"""The metrics of a leaderboard count its partitions, rows, changes and invalid rank ends."""

from assets.contracts import DerivedAsset
from operators import TopN
from tests.conftest import MakeEngine
from tests.support.small_sources import Event, replay, rows_of, source


def test_partitions_with_an_invalid_rank_end_are_counted(make_engine: MakeEngine) -> None:
    top = TopN(by="k", order_by="v", rank_end="v")
    engine = make_engine([source("l")], [DerivedAsset(name="top", inputs=("l",), operator=top)])
    replay(engine, [{"l": [Event("a", 0, 0), Event("b", 2, 1), Event(None, -1, 2)]}, {"l": [Event("a", 5, 3), Event("b", 1, 4)]}])
    engine.advance("top")
    assert rows_of(engine.views.table("top"), "k", "v", "rank") == [("b", 1, 1), ("b", 2, 2)]
    found = engine.views.metrics("top")
    assert (found["partitions"], found["rows"], found["rows_in"], found["changes_out"], found["invalid_rank_ends"]) == (1, 2, 5, 2, 2)
