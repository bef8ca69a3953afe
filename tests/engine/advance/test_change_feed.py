"""An upserted table has a changelog, and Delta's change data feed only if a user enables it."""

from typing import Any

from deltalake import DeltaTable

from assets.contracts import DerivedAsset
from operators import Aggregate
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.small_sources import Event, replay, source

FEED = "delta.enableChangeDataFeed"


def _feed(engine: Engine, since: int) -> list[tuple[Any, ...]]:
    feed = engine.spark.read.format("delta").options(readChangeFeed="true", startingVersion=since).load(engine.lake.path("sums"))
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
    engine.rebuild("sums")
    assert _feed(engine, since) == sorted([*step, ("delete", "b", 5), ("insert", "b", 5)])
