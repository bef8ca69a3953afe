"""Which rankings of an `Aggregate` table are known to move up only, and which are not."""

import re
from dataclasses import replace
from typing import Any

import pytest

from assets.contracts import DerivedAsset, Preparation, RowRule, SourceContract
from assets.pipeline import Pipeline
from operators import Aggregate, TopN
from platform_defs.engine.inputs.identity import identity_of
from platform_defs.settings import Settings
from platform_defs.shop import shop

SALES = SourceContract(
    name="sales",
    schema="seller STRING, category STRING, price DECIMAL(9,2), quantity INT, at TIMESTAMP, refund INT, rating INT",
    event_time="at",
    rules=(RowRule("price", "price >= 0"), RowRule("quantity", "quantity > 0", "fail"), RowRule("refund", "refund >= 0", "warn")),
)
KEY = ("category", "seller")


def _top(aggregates: dict[str, str], order_by: Any, prepare: dict[str, Preparation] | None = None, **how: Any) -> TopN:
    totals = DerivedAsset(name="totals", inputs=("sales",), operator=Aggregate(by=KEY, aggregates=aggregates), prepare=prepare or {})
    parameters = {"by": "category", "unique_key": KEY, "change": "change", "rank_end": 3, **how}
    top = DerivedAsset(name="top", inputs=("totals",), operator=TopN(order_by=order_by, **parameters))
    found = Pipeline(sources=[SALES], tables=[totals, top]).tables_by_name["top"]
    assert identity_of(found) == identity_of(top)
    assert isinstance(found.operator, TopN)
    return found.operator


@pytest.mark.parametrize(
    ("aggregates", "order_by"),
    [
        ({"n": "count(*)"}, "n DESC"),
        ({"n": "count(*)", "revenue": "sum(price)", "mean": "avg(price)"}, "n DESC"),
        ({"n": "count(price)"}, "n DESC"),
        ({"most": "max(price)"}, "most DESC"),
        ({"least": "min(price)"}, "least ASC NULLS LAST"),
        ({"most": "max(price)", "n": "count(*)"}, ("most DESC", "n DESC")),
        ({"revenue": "sum(quantity * price)", "n": "count(*)"}, ("revenue DESC", "seller")),
        ({"units": "SUM( 2 * quantity + quantity )"}, "units DESC"),
    ],
    ids=repr,
)
def test_rows_that_only_move_up(aggregates: dict[str, str], order_by: Any) -> None:
    top = _top(aggregates, order_by)
    assert top.strategy_used == "update"
    lines = top.explain().splitlines()
    assert lines[0].startswith("update: keeps the first rows")
    assert re.fullmatch(r"rows only move up: in 'totals', .* never (falls|rises).*", lines[1])


@pytest.mark.parametrize(
    ("aggregates", "order_by", "how"),
    [
        pytest.param({"n": "count(*)"}, "n", {}, id="ascending"),
        pytest.param({"n": "count(*)"}, "n DESC", {"unique_key": "seller"}, id="another key"),
        pytest.param({"n": "count(*)"}, "n DESC", {"function": "dense_rank"}, id="dense ranks"),
        pytest.param({"n": "count(*)"}, "n DESC", {"rank_start": 2}, id="a range of ranks"),
        pytest.param({"n": "count(*)"}, "n DESC", {"by": ("category", "n")}, id="a row may leave its partition"),
        pytest.param({"n": "sum(rating)"}, "n DESC", {}, id="may be negative"),
        pytest.param({"n": "sum(quantity - 1)"}, "n DESC", {}, id="a difference"),
        pytest.param({"n": "sum(refund)"}, "n DESC", {}, id="a rule that only warns"),
        pytest.param({"most": "max(price)"}, "most DESC NULLS FIRST", {}, id="null first, and then no longer"),
        pytest.param({"least": "min(price)"}, "least", {}, id="null is the smallest value"),
        pytest.param({"most": "max(price)", "n": "count(*)"}, "most DESC", {}, id="an update moves to the end of its ties"),
        pytest.param({"mean": "avg(price)"}, "mean DESC", {}, id="an average"),
        pytest.param({"n": "count(*)"}, ("n DESC", "seq DESC"), {}, id="a column of no aggregate"),
    ],
)
def test_rows_that_may_move_back(aggregates: dict[str, str], order_by: Any, how: dict[str, Any]) -> None:
    top = _top(aggregates, order_by, **how)
    assert top.strategy_used == "retract"
    assert "rows only move up" not in top.explain()


def test_a_prepared_column_may_be_negative() -> None:
    prepared = {"sales": Preparation(select="category, seller, -quantity AS quantity")}
    assert _top({"n": "sum(quantity)"}, "n DESC", prepared).strategy_used == "retract"
    assert _top({"n": "count(quantity)"}, "n DESC", prepared).strategy_used == "update"


def test_row_rules_make_the_leaderboard_of_the_shop_move_up_only() -> None:
    tables = shop(Settings()).tables_by_name  # pyright: ignore[reportCallIssue]
    top = tables["category_leaderboard"]
    assert isinstance(top.operator, TopN)
    assert top.operator.strategy_used == "update"
    assert identity_of(top) == identity_of(replace(top, operator=replace(top.operator, rises="")))
