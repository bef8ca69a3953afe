"""The changes of a table of final results: what its readers compute again after a correction, also if the former results are deleted."""

import pytest

from assets.contracts import DerivedAsset
from operators import Aggregate, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.inputs.progress import ProgressError
from platform_defs.engine.lake.reads import ReadTables
from tests.conftest import MakeEngine
from tests.support.small_sources import MINUTE, Event, law_violations, replay, rows_of, source

COUNTED = WindowedAggregate(by="k", window=Tumbling(size="2 minutes"), aggregates={"n": "count(*)"}, allowed_lateness="10 minutes")
TABLES = [
    DerivedAsset(name="windows", inputs=("l",), operator=COUNTED),
    DerivedAsset(name="by_count", inputs=("windows",), operator=Aggregate(by="n", aggregates={"windows": "count(*)"})),
]


def _corrected(make_engine: MakeEngine) -> Engine:
    """A window of one row that was read, and then corrected to two rows, which was not read."""
    engine = make_engine([source("l")], TABLES)
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 1, 5 * MINUTE)]}])
    engine.advance("windows")
    engine.advance("by_count")
    assert rows_of(engine.views.table("by_count"), "n", "windows") == [(1, 1)]
    replay(engine, [{"l": [Event("a", 1, MINUTE)]}])
    engine.advance("windows")
    assert rows_of(engine.views.table("windows"), "n") == [(2,)]
    return engine


def test_the_key_of_a_result_that_is_gone_is_computed_again(make_engine: MakeEngine) -> None:
    engine = _corrected(make_engine)
    assert law_violations(engine, "by_count") == set()  # as of the step that was read
    engine.advance("by_count")
    assert rows_of(engine.views.table("by_count"), "n", "windows") == [(2, 1)]
    assert law_violations(engine, "by_count") == set()


def test_all_keys_are_computed_again_if_the_former_results_are_deleted(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _corrected(make_engine)
    monkeypatch.setattr(ReadTables, "at_version", lambda *_: None)
    with pytest.raises(ProgressError, match=r"by_count was computed from windows as of its step 1, .* Advance by_count"):
        engine.accounts.days("by_count")
    engine.advance("by_count")
    assert rows_of(engine.views.table("by_count"), "n", "windows") == [(2, 1)]
    assert law_violations(engine, "by_count") == set()
