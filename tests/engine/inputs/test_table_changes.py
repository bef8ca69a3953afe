"""After a correction of final results, readers recompute the affected keys; or all keys, if the files of the former results are deleted."""

import pytest
from deltalake import DeltaTable

from assets.contracts import DerivedAsset
from operators import Aggregate, Deduplicate, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.advance import upserted_table
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.lake.reads import ReadTables
from tests.conftest import CopyEngine, MakeEngine
from tests.support.small_sources import MINUTE, START, Event, join, law_violations, replay, rows_of, source

COUNTED = WindowedAggregate(by="k", window=Tumbling(size="2 minutes"), aggregates={"n": "count(*)"}, allowed_lateness="10 minutes")
TABLES = [
    DerivedAsset(name="windows", inputs=("l",), operator=COUNTED),
    DerivedAsset(name="by_count", inputs=("windows",), operator=Aggregate(by="n", aggregates={"windows": "count(*)"})),
]


@pytest.fixture(scope="module")
def corrected_engine(make_module_engine: MakeEngine) -> Engine:
    """`by_count` has read a window of one row. The window was then corrected to two rows, which `by_count` has not read."""
    engine = make_module_engine([source("l")], TABLES)
    replay(engine, [{"l": [Event("a", 1, 0), Event("a", 1, 5 * MINUTE)]}])
    engine.advance("windows")
    engine.advance("by_count")
    assert rows_of(engine.views.table("by_count"), "n", "windows") == [(1, 1)]
    replay(engine, [{"l": [Event("a", 1, MINUTE)]}])
    engine.advance("windows")
    assert rows_of(engine.views.table("windows"), "n") == [(2,)]
    return engine


@pytest.fixture
def corrected(corrected_engine: Engine, copy_engine: CopyEngine) -> Engine:
    """An engine on a copy of the lake."""
    return copy_engine(corrected_engine)


def test_the_key_of_a_deleted_result_is_computed_again(corrected: Engine) -> None:
    assert law_violations(corrected, "by_count") == set()  # as of the step that was read
    corrected.advance("by_count")
    assert rows_of(corrected.views.table("by_count"), "n", "windows") == [(2, 1)]
    assert law_violations(corrected, "by_count") == set()


def test_all_keys_are_computed_again_if_the_former_results_are_deleted(corrected: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadTables, "delta_at_version", lambda *_: None)
    with pytest.raises(ProgressError, match=r"by_count was computed from windows as of its step 1, .* Advance by_count"):
        corrected.accounts.days("by_count")
    corrected.advance("by_count")
    assert rows_of(corrected.views.table("by_count"), "n", "windows") == [(2, 1)]
    assert law_violations(corrected, "by_count") == set()


PAID = "max(event_time) FILTER (WHERE v > 5)"
TIMED = [
    DerivedAsset(name="totals", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)", "event_time": PAID})),
    DerivedAsset(
        name="of_totals", inputs=("totals",), operator=WindowedAggregate(window=Tumbling(size="2 minutes"), aggregates={"m": "sum(n)"})
    ),
]


@pytest.mark.parametrize("with_statistics", [True, False], ids=["null times", "a changelog of an earlier version"])
def test_changes_without_bounds_of_their_times_correct_all_results(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, with_statistics: bool
) -> None:
    if not with_statistics:
        monkeypatch.setattr(upserted_table, "_event_time_columns", lambda _: [])
    engine = make_engine([source("l")], TIMED)
    batches = [[("a", 9, 0), ("b", 9, 9)], [("c", 1, 10)], [("a", 9, 11), ("b", 9, 30)], [("a", 1, 31)]]
    for batch in batches:
        replay(engine, [{"l": [Event(k, v, minute * MINUTE) for k, v, minute in batch]}])
        for table in TIMED:
            engine.advance(table.name)
    windows = engine.views.table("of_totals").selectExpr("unix_millis(window_start)", "m").collect()
    assert sorted((start - START) // MINUTE for start, _ in windows) == [10]
    assert [m for _, m in windows] == [3]
    assert law_violations(engine, "of_totals") == set()


def test_a_reader_goes_on_without_an_upserted_table_that_has_no_row_and_is_corrected_by_its_first_rows(make_engine: MakeEngine) -> None:
    tables = [
        DerivedAsset(name="last", inputs=("r",), operator=Deduplicate(by="k", keep="last")),
        join("near", ("l", "last"), how="left"),
    ]
    engine = make_engine([source("l"), source("r")], tables)
    replay(engine, [{"l": [Event("a", 1, 0), Event("b", 1, 30 * MINUTE)]}])
    engine.drain()
    for table in tables:
        engine.advance(table.name)
    unmatched = [("a", 1, None), ("b", 1, None)]
    assert rows_of(engine.views.table("near"), "k", "left_v", "right_v") == unmatched
    assert law_violations(engine, "near") == set()
    DeltaTable(engine.lake.path("near")).delete("k = 'a'")
    assert law_violations(engine, "near") != set()
    engine.rebuild_days("near")
    assert rows_of(engine.views.table("near"), "k", "left_v", "right_v") == unmatched
    replay(engine, [{"r": [Event("a", 7, 2 * MINUTE)]}])
    for table in tables:
        engine.advance(table.name)
    assert rows_of(engine.views.table("near"), "k", "left_v", "right_v") == [("a", 1, 7), ("b", 1, None)]
    assert law_violations(engine, "near") == set()
