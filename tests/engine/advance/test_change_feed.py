"""Delta's change data feed: of a table of final results that can be corrected, and of an upserted table only if a user enables it."""

from typing import Any

import pytest
from deltalake import DeltaTable

from assets.contracts import DerivedAsset
from operators import Aggregate, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.small_sources import MINUTE, Event, replay, source

FEED = "delta.enableChangeDataFeed"


def _feed(engine: Engine, since: int | None, table: str = "sums") -> list[tuple[Any, ...]]:
    feed = engine.spark.read.format("delta").options(readChangeFeed="true", startingVersion=since).load(engine.lake.path(table))
    return sorted(tuple(row) for row in feed.select("_change_type", "k", "n").collect())


def test_a_feed_that_a_user_enables_has_the_changes_of_later_steps_and_repairs(make_engine: MakeEngine) -> None:
    sums = DerivedAsset(name="sums", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "sum(v)"}))
    engine = make_engine([source("l")], [sums])
    replay(engine, [{"l": [Event("a", 1, 0)]}])
    engine.advance("sums")
    assert FEED not in DeltaTable(engine.lake.path("sums")).metadata().configuration

    engine.spark.sql(f"ALTER TABLE delta.`{engine.lake.path('sums')}` SET TBLPROPERTIES ('{FEED}' = 'true')")
    since = engine.lake.version("sums")
    replay(engine, [{"l": [Event("a", 2, 1), Event("b", 5, 2)]}])
    engine.advance("sums")
    step = [("insert", "b", 5), ("update_postimage", "a", 3), ("update_preimage", "a", 1)]
    assert _feed(engine, since) == step

    engine.spark.sql(f"DELETE FROM delta.`{engine.lake.path('sums')}` WHERE k = 'b'")
    engine.rebuild_days("sums")
    assert _feed(engine, since) == sorted([*step, ("delete", "b", 5), ("insert", "b", 5)])


@pytest.mark.parametrize("window", ["1 minute", "2 minutes"])
def test_a_rebuilt_table_has_a_feed_once_results_can_be_corrected(make_engine: MakeEngine, window: str) -> None:
    def engine_with(allowed_lateness: str | int, size: str) -> Engine:
        operator = WindowedAggregate(by="k", window=Tumbling(size=size), aggregates={"n": "count(*)"}, allowed_lateness=allowed_lateness)
        return make_engine([source("l")], [DerivedAsset(name="counts", inputs=("l",), operator=operator)])

    engine = engine_with(0, "1 minute")
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 1, 1), Event("b", 1, 30 * MINUTE)]}])
    engine.advance("counts")
    assert FEED not in DeltaTable(engine.lake.path("counts")).metadata().configuration

    engine = engine_with("1 hour", window)
    assert [step.rows for _, step in engine.rebuild_tables(["counts"])] == [1]
    assert DeltaTable(engine.lake.path("counts")).metadata().configuration[FEED] == "true"
    since = engine.lake.version("counts")
    assert since is not None
    replay(engine, [{"l": [Event("a", 1, 2)]}])
    engine.advance("counts")
    assert _feed(engine, since + 1, "counts") == [("update_postimage", "a", 3), ("update_preimage", "a", 2)]
