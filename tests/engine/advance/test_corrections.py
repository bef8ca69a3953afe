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
from platform_defs.engine.inputs.progress import Corrected
from tests.conftest import CopyEngine, MakeEngine
from tests.support.small_sources import DAY, MINUTE, START, Event, iso, law_violations, replay, rows_of, source

WINDOW = Tumbling(size="1 minute")
COUNT = WindowedAggregate(by="k", window=WINDOW, aggregates={"n": "count(*)"}, allowed_lateness="2 minutes")
TWO = Consecutive(of=COUNT, then=TopK(k=2, order_by="n"))
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
        ({"of": TWO}, "no `Consecutive`; to chain three operators, make a table of the first two"),
        ({"then": TWO}, "no `Consecutive`; to chain three operators, make a table of the first two"),
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
    done = corrected.rebuild_days("counts", day, day)
    assert (done.days, done.missing, done.extra) == ((day,), 1, 1)
    assert corrected.rebuild_days("counts", day, day).days == ()
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
    done = engine.rebuild_days("counts", day_of(START), day_of(START + 4 * DAY))
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


def _corrected(steps: int, corrected: tuple[Corrected, ...] = ()) -> tuple[Corrected, ...]:
    """The ranges after so many more steps, each of which has corrected results at its own number."""
    newest = corrected[-1][0] if corrected else 0
    for step in range(newest + 1, newest + steps + 1):
        corrected = add_correction(corrected, step, step, step)
        assert len(corrected) <= MAX_RANGES
    return corrected


def _steps_to_recompute(corrected: tuple[Corrected, ...], lag: int) -> int:
    """The number of steps whose corrections a reader recomputes that is `lag` steps behind."""
    newest = corrected[-1][0]
    first = min(first for step, first, _ in corrected if step > newest - lag)
    assert first <= newest - lag + 1, "no correction is lost"
    assert max(last for _, _, last in corrected) == newest
    return newest - first + 1


def test_few_correction_ranges_are_recorded_as_they_are() -> None:
    assert _corrected(MAX_RANGES) == tuple((step, step, step) for step in range(1, MAX_RANGES + 1))


@pytest.mark.parametrize("lag", [1, 2, MAX_RANGES - 1, MAX_RANGES, 40, 500, 9_999, 10_000])
def test_a_reader_recomputes_at_most_twice_the_steps_that_it_is_behind(lag: int) -> None:
    assert lag <= _steps_to_recompute(_corrected(10_000), lag) <= 2 * lag


def test_a_range_over_the_whole_history_is_not_read_by_readers_that_are_little_behind() -> None:
    whole_history = ((1_000, 1, 1_000), *((step, step, step) for step in range(1_001, 1_032)))
    corrected = _corrected(1_000, whole_history)
    assert all(_steps_to_recompute(corrected, lag) <= 2 * lag for lag in range(1, 1_000))
    assert _steps_to_recompute(corrected, 1_500) == 2_031
