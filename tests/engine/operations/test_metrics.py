"""The metrics of a leaderboard."""

from assets.contracts import DerivedAsset
from operators import TopN
from tests.conftest import MakeEngine
from tests.support.shopkeeping import Event, replay, rows_of, source


def test_partitions_whose_rank_end_keeps_nothing_are_counted(make_engine: MakeEngine) -> None:
    top = TopN(by="k", order_by="v", rank_end="v")
    engine = make_engine([source("l")], [DerivedAsset(name="board", inputs=("l",), operator=top)])
    replay(engine, [{"l": [Event("a", 0, 0), Event("b", 2, 1), Event(None, -1, 2)]}, {"l": [Event("a", 5, 3), Event("b", 1, 4)]}])
    engine.advance("board")
    assert rows_of(engine.views.table("board"), "k", "v", "rank") == [("b", 1, 1), ("b", 2, 2)]
    board = engine.views.metrics("board")
    assert (board["partitions"], board["rows"], board["rows_in"], board["changes_out"], board["invalid_rank_ends"]) == (1, 2, 5, 2, 2)
