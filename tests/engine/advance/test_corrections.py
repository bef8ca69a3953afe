"""Corrections: which steps make them, how progress records them, how downstream tables and rebuilds use them; and the law of windows."""

from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from assets.contracts import DerivedAsset
from assets.days import day_of, moment
from operators import Consecutive, EveryStep, OperatorError, Session, Sliding, TopK, Tumbling, WindowedAggregate
from platform_defs.engine import Engine
from platform_defs.engine.advance.corrections import MAX_RANGES, add_correction
from tests.conftest import CopyEngine, MakeEngine
from tests.support.small_sources import DAY, MINUTE, START, Event, iso, law_violations, replay, rows_of, source

WINDOW = Tumbling(size="1 minute")
COUNT = WindowedAggregate(by="k", window=WINDOW, aggregates={"n": "count(*)"}, allowed_lateness="2 minutes")
ASSETS = [
    DerivedAsset(name="counts", inputs=("l",), operator=COUNT),
    DerivedAsset(name="top", inputs=("counts",), operator=TopK(k=1, order_by="n DESC")),
]


@pytest.fixture(scope="module")
def prepared_engine(make_module_engine: MakeEngine) -> Engine:
    """Two assets, the second derived from the first; their first window is final."""
    engine = make_module_engine([source("l")], ASSETS)
    replay(engine, [{"l": [Event("a", 1, 0), Event("b", 1, 3 * MINUTE)]}])
    assert [[s.rows for s in engine.advance(a.name)] for a in ASSETS] == [[1], [1]]
    return engine


@pytest.fixture
def corrected(prepared_engine: Engine, copy_engine: CopyEngine) -> Engine:
    """An engine on a copy of the lake."""
    return copy_engine(prepared_engine)


def test_a_batch_that_finalizes_no_window_still_corrects_results_and_downstream_tables(corrected: Engine) -> None:
    assert corrected.pending.all_days() is None
    replay(corrected, [{"l": [Event("b", 1, 1), Event("b", 1, 2)]}])
    day = day_of(START)
    assert corrected.pending.all_days() == corrected.pending.days("counts") == (day, day), "an asset with corrections only is pending"
    [step] = corrected.advance("counts")
    assert (step.before.closed_to, step.rows) == (step.after.closed_to, 1)
    assert step.after.corrected == ((2, START + MINUTE - 1, START + MINUTE - 1),)
    assert corrected.pending.days("counts") is None
    assert corrected.pending.all_days() == corrected.pending.days("top") == (day, day)
    [step] = corrected.advance("top")
    assert (step.rows, step.after.read) == (2, {"counts": 2})
    assert corrected.pending.all_days() is None
    assert rows_of(corrected.views.table("top"), "k", "n", "rank") == [("b", 2, 1)]
    assert corrected.advance("counts") == corrected.advance("top") == []


def test_batches_of_late_rows_only_make_no_asset_pending(corrected: Engine) -> None:
    replay(corrected, [{"l": [Event("a", 1, DAY)]}])
    assert [corrected.advance(a.name) for a in ASSETS]
    replay(corrected, [{"l": [Event("a", 1, 5)]}])
    assert corrected.pending.all_days() is None


def test_consecutive_windows_without_an_intermediate_table_are_corrected(make_engine: MakeEngine) -> None:
    both = Consecutive(of=COUNT, then=TopK(k=1, order_by="n DESC"))
    engine = make_engine([source("l")], [DerivedAsset(name="top", inputs=("l",), operator=both)])
    replay(engine, [{"l": [Event("a", 1, 0), Event("b", 1, 3 * MINUTE)]}])
    engine.advance("top")
    replay(engine, [{"l": [Event("b", 1, 1), Event("b", 1, 2)]}])
    assert [step.rows for step in engine.advance("top")] == [2]
    assert rows_of(engine.views.table("top"), "k", "n", "rank") == [("b", 2, 1)]
    assert law_violations(engine, "top") == set()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"then": COUNT}, "an operator over the windows that its rows have, such as TopK without `window`"),
        ({"of": replace(COUNT, window=Session(gap="1 minute"))}, r"final at `result_time` \(not sessions\)"),
        ({"of": replace(COUNT, early=EveryStep())}, "an operator of closed ranges, without early results or purging, whose results"),
    ],
)
def test_illegal_consecutive_operators_are_refused(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(OperatorError, match=why):
        Consecutive(**{"of": COUNT, "then": TopK(k=1, order_by="n"), **spec})


def test_a_row_beyond_the_allowed_lateness_is_late_and_corrects_nothing(corrected: Engine) -> None:
    replay(corrected, [{"l": [Event("a", 1, 8 * MINUTE)]}, {"l": [Event("a", 1, 5)]}])
    assert all(not s.after.corrected for s in corrected.advance("counts"))
    assert rows_of(corrected.views.table("counts"), "k", "n") == [("a", 1), ("b", 1)]
    assert rows_of(corrected.views.late("counts", "l"), "k") == [("a",)]


def test_a_rebuild_of_a_corrected_table_corrects_downstream_tables(corrected: Engine) -> None:
    day = day_of(START)
    DeltaTable(corrected.lake.path("counts")).update({"n": "9"})
    assert rows_of(corrected.views.table("counts"), "n") == [(9,)]
    assert law_violations(corrected, "counts") == {("l", str(day))}
    done = corrected.rebuild("counts", day, day)
    assert (done.days, done.missing, done.extra) == ((day,), 1, 1)
    assert corrected.rebuild("counts", day, day).days == ()
    assert corrected.pending.progress("counts").corrected == ((2, START + MINUTE - 1, START + MINUTE - 1),)
    assert [s.after.read for s in corrected.advance("top")] == [{"counts": 2}]
    assert rows_of(corrected.views.table("top"), "n") == [(1,)]


def test_the_law_names_the_days_of_wrong_window_results(make_engine: MakeEngine) -> None:
    """On one day a result is deleted, on another one duplicated, and on a third one altered; results of two days are right."""
    engine = make_engine([source("l")], [DerivedAsset(name="counts", inputs=("l",), operator=COUNT)])
    replay(engine, [{"l": [Event("a", 1, at) for at in (0, 5, *(n * DAY for n in range(1, 5)))]}])
    engine.drain()
    engine.advance("counts")
    assert law_violations(engine, "counts") == set()
    starts = {damage: START + n * DAY for n, damage in enumerate(("deleted", "duplicated", "altered"), 1)}
    counts = DeltaTable(engine.lake.path("counts"))
    write_deltalake(counts, counts.to_pyarrow_table(filters=[("window_start", "=", moment(starts["duplicated"]))]), mode="append")
    counts.delete(f"window_start = '{iso(starts['deleted'])}'")
    counts.update({"n": "n + 1"}, predicate=f"window_start = '{iso(starts['altered'])}'")
    assert law_violations(engine, "counts") == {("l", str(day_of(start))) for start in starts.values()}
    done = engine.rebuild("counts", day_of(START), day_of(START + 4 * DAY))
    assert {*done.days} == {day_of(start) for start in starts.values()}
    assert law_violations(engine, "counts") == set()


def test_every_row_is_matched_unmatched_pending_or_late(make_engine: MakeEngine) -> None:
    gaps = WindowedAggregate(window=Sliding(size="1 minute", slide="2 minutes"), aggregates={"n": "count(*)"})
    engine = make_engine([source("l")], [DerivedAsset(name="counts", inputs=("l",), operator=gaps)])
    replay(engine, [{"l": [Event("a", 1, at) for at in (0, 1, MINUTE, 4 * MINUTE)]}, {"l": [Event("a", 1, 3)]}])
    engine.advance("counts")
    wanted = {"accepted": 5, "matched": 2, "unmatched": 1, "pending": 1, "late": 1}
    account = engine.accounts.days("counts")
    assert {term: sum(getattr(day, term) for day in account) for term in wanted} == wanted
    assert all(day.holds for day in account)


def test_old_correction_ranges_are_merged_into_one() -> None:
    ranges = ()
    for step in range(1, MAX_RANGES + 3):
        ranges = add_correction(ranges, step, 10 * step, 10 * step + 5)
    assert len(ranges) == MAX_RANGES
    assert ranges[:2] == ((3, 10, 35), (4, 40, 45))
    assert ranges[-1][0] == MAX_RANGES + 2
