"""The account of an upserted table after a step that changed none of its rows."""

from deltalake import DeltaTable

from assets.contracts import DerivedAsset
from operators import TopN
from tests.conftest import MakeEngine
from tests.support.small_sources import MINUTE, Event, law_violations, replay, rows_of, source

LEAST = DerivedAsset(name="least", inputs=("l",), operator=TopN(by="k", order_by="v", rank_end=1))


def test_the_table_itself_is_compared(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [LEAST])
    for n, value in enumerate((1, 5)):
        replay(engine, [{"l": [Event("a", value, n * MINUTE)]}])
        [step] = engine.advance("least")
        assert step.rows == 1 - n
    assert rows_of(engine.views.table("least"), "k", "v") == [("a", 1)]
    for remaining in (1, 0):
        if not remaining:
            DeltaTable(engine.lake.path("least")).delete("v = 1")
        assert bool(law_violations(engine, "least")) == (remaining == 0)
        found = engine.views.newest_snapshot("least")
        assert found is not None
        assert (found.table.count(), found.changelog.count()) == (remaining, 1)
