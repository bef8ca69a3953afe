"""A Top-N whose rows only move up, as the user promises or the plan derives: a step in which a row moves back gives no wrong ranking."""

import json
import re
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame

from assets.contracts import DerivedAsset, RowRule
from assets.factories.conservation_law import LAW
from assets.factories.upserted_table import PROMISE, promise_check, upserted_asset
from operators import Aggregate, TopN
from operators._support import top_n_execution
from operators._support.top_n_plan import TopNQuery
from platform_defs.engine.advance.step_error import PromiseError
from platform_defs.engine.inputs.identity import identity_of
from platform_defs.orchestration.parallel_work import ParallelWork
from tests.conftest import MakeEngine
from tests.support.small_sources import MINUTE, Event, replay, rows_of, source

NEWEST = TopN(by="k", order_by="ts DESC", unique_key=("k", "v"), rank_end=1, monotonic=True)
PROMISED = DerivedAsset(name="newest", inputs=("l",), operator=NEWEST)
FIRST = [Event("a", 1, 9 * MINUTE), Event("a", 2, 8 * MINUTE), Event("b", 1, 0)]
MOVED_BACK = [Event("a", 1, 2 * MINUTE), Event("b", 1, MINUTE)]
"""The newest row of `a` is replaced by an older one, so that the row with `v = 2`, which is not kept, becomes the newest."""
BEST = [("a", 2, 1), ("b", 1, 1)]

TOTALS = DerivedAsset(name="totals", inputs=("l",), operator=Aggregate(by=("k", "v"), aggregates={"n": "count(*)", "total": "sum(v)"}))
BY_KEY = {"by": "k", "unique_key": ("k", "v"), "change": "change", "rank_end": 1}


def _best(name: str, **how: object) -> DerivedAsset:
    return DerivedAsset(name=name, inputs=("totals",), operator=TopN(order_by=("total DESC", "v"), **BY_KEY, **how))


def test_a_broken_promise_stops_the_step_and_names_table_keys_and_way_out(make_engine: MakeEngine) -> None:
    engine = make_engine([source("l")], [PROMISED])
    replay(engine, [{"l": FIRST}])
    engine.advance("newest")
    replay(engine, [{"l": MOVED_BACK}])
    before = rows_of(engine.views.table("newest"))
    with pytest.raises(PromiseError, match=re.escape("newest: 1 key breaks the promise `monotonic`")) as error:
        engine.advance("newest")
    assert (error.value.asset, error.value.keys) == ("newest", 1)
    assert 'Set `strategy="retract"`' in str(error.value)
    assert rows_of(engine.views.table("newest")) == before
    assert engine.pending.progress("newest").step == 1
    way_out = DerivedAsset(name="newest", inputs=("l",), operator=TopN(**{**vars_of(NEWEST), "strategy": "retract"}))
    assert identity_of(way_out) == identity_of(PROMISED)
    again = make_engine([source("l")], [way_out])
    again.advance("newest")
    assert rows_of(again.views.table("newest"), "k", "v", "rank") == BEST
    assert all(account.holds for account in again.accounts.days("newest"))
    assert again.views.metrics("newest")["keys_moved_back"] == 1


def _without_a_check(query: TopNQuery, kept: DataFrame, new: DataFrame) -> DataFrame:
    """The kept rows whose key is not that of a new row, as an earlier version computed them."""
    return kept.join(new, [*query.key], "left_anti").select(kept.columns)


def vars_of(top: TopN) -> dict[str, object]:
    """The parameters of a Top-N."""
    return {name: getattr(top, name) for name in ("by", "order_by", "unique_key", "rank_end", "monotonic")}


def test_the_account_finds_a_ranking_that_an_earlier_version_got_wrong(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine([source("l")], [PROMISED])
    replay(engine, [{"l": FIRST}])
    engine.advance("newest")
    replay(engine, [{"l": MOVED_BACK}])
    with monkeypatch.context() as patched:
        patched.setattr(top_n_execution, "rows_not_replaced", _without_a_check)
        engine.advance("newest")
    assert rows_of(engine.views.table("newest"), "k", "v", "rank") != BEST
    assert sum(account.missing for account in engine.accounts.days("newest")) > 0
    engine.rebuild_days("newest")
    assert rows_of(engine.views.table("newest"), "k", "v", "rank") == BEST


def test_a_step_in_which_a_rising_total_falls_is_computed_from_all_rows(make_engine: MakeEngine) -> None:
    """The rows are ingested while the source does not have its rule yet, so the total of `("a", -1)` falls."""
    rule = RowRule("v_not_negative", "v >= 0", "quarantine")
    tables = [TOTALS, _best("best"), _best("explicit", strategy="retract")]
    earlier, engine = make_engine([source("l")], tables), make_engine([source("l", rules=(rule,))], tables)
    best, explicit = (engine.assets[name] for name in ("best", "explicit"))
    assert isinstance(best.operator, TopN)
    assert best.operator.strategy_used == "update"
    assert "rows only move up: in 'totals', sum(v) never falls, because no row lowers it" in best.operator.explain()
    assert identity_of(best) == identity_of(explicit) == identity_of(_best("best"))
    assert json.loads(identity_of(best))["parameters"].keys() == {"by", "order_by", "unique_key", "change", "rank_end"}
    batches = [
        [Event("a", -1, 0), Event("a", -2, 0), Event("b", 3, MINUTE)],
        [Event("a", -1, 2 * MINUTE), Event("b", 5, 2 * MINUTE)],
        [Event("a", -1, 3 * MINUTE), Event("b", 3, 2 * MINUTE), Event("b", 3, 2 * MINUTE)],
    ]
    seen = []
    for batch in batches:
        replay(earlier, [{"l": batch}])
        for name in ("totals", "best", "explicit"):
            engine.advance(name)
        assert rows_of(engine.views.table("best")) == rows_of(engine.views.table("explicit"))
        assert all(account.holds for account in engine.accounts.days("best"))
        seen.append(rows_of(engine.views.table("best"), "k", "v", "total"))
    assert seen == [[("a", -1, -1), ("b", 3, 3)], [("a", -2, -2), ("b", 5, 5)], [("a", -2, -2), ("b", 3, 9)]]


@pytest.mark.parametrize("keys", [0, 2])
def test_the_check_names_the_table_the_keys_and_the_way_out(keys: int) -> None:
    result = promise_check("newest", keys)
    assert result.passed is (keys == 0)
    if keys:
        assert result.description == (
            "rows of 2 keys of 'newest' moved back or were deleted: "
            "set `strategy=\"retract\"` for 'newest'; this strategy needs no promise, and the change needs no rebuild"
        )


def test_only_a_top_n_that_needs_its_promise_has_the_check() -> None:
    retracting = replace(PROMISED, operator=replace(NEWEST, strategy="retract"))
    tables = [PROMISED, retracting, DerivedAsset(name="others", inputs=("l",), operator=TopN(order_by="v", rank_end=1))]
    made = [upserted_asset(table, sources=["l"], worker=ParallelWork()) for table in tables]
    assert [{spec.name for spec in one.check_specs} for one in made] == [{LAW, PROMISE}, {LAW}, {LAW}]
