"""A leaderboard of what was paid, five tables deep, over Olist's real sample: equal to DuckDB's, row for row."""

from pathlib import Path

import duckdb
import pytest

from assets.contracts import DerivedAsset
from assets.preparation import Preparation
from assets.shop import tables as plans
from assets.shop.sources import Policy, order_items, orders, payments
from examples.olist.prepare import ITEMS, prepare
from operators import Aggregate, Deduplicate, IntervalJoin, TopN, Tumbling, WindowedAggregate
from tests.conftest import MakeEngine
from tests.support.shared_data import OLIST
from tests.support.small_sources import rows_of

POLICY: Policy = {"out_of_orderness": "1 hour", "idle_timeout": "1 hour", "duplicate_horizon": "7 days", "future_skew": "24 hours"}
PAID = Preparation(select="order_id")
WEEK = Tumbling(size="7 days", offset="4 days")
ASSETS = [
    plans.payment_order_wide(within="30 days", how="inner"),
    DerivedAsset(
        name="paid",
        inputs=("payment_order_wide",),
        operator=Deduplicate(by="order_id", keep="first"),
        prepare={"payment_order_wide": PAID},
    ),
    DerivedAsset(
        name="paid_items", inputs=("order_items", "paid"), operator=IntervalJoin(on="order_id", lower=0, upper="30 days", how="inner")
    ),
    DerivedAsset(
        name="paid_revenue",
        inputs=("paid_items",),
        operator=Aggregate(by=("category", "seller_id"), aggregates={"revenue": "sum(price)", "event_time": "max(event_time)"}),
    ),
    DerivedAsset(
        name="paid_leaders",
        inputs=("paid_revenue",),
        operator=TopN(by="category", order_by=("revenue DESC", "seller_id"), rank_end=5),
    ),
    DerivedAsset(
        name="paid_weeks",
        inputs=("paid_items",),
        operator=WindowedAggregate(by="seller_id", window=WEEK, aggregates={"items": "count(*)", "revenue": "sum(price)"}),
    ),
]
PAID_ITEMS = """
    WITH bought AS (SELECT order_id, order_purchase_timestamp::TIMESTAMP AS bought_at, order_approved_at::TIMESTAMP AS paid_at
                    FROM '{olist}/olist_orders_dataset.csv'),
    paid AS (SELECT order_id, min(bought.paid_at) AS first_paid FROM bought JOIN '{olist}/olist_order_payments_dataset.csv' USING (order_id)
             WHERE paid_at BETWEEN bought_at AND bought_at + INTERVAL 30 DAY GROUP BY ALL)
    SELECT i.seller_id, nullif(p.product_category_name, '') AS category, i.price::DECIMAL(12, 2) AS price,
           greatest(bought_at, first_paid) AS paid_at
    FROM '{olist}/olist_order_items_dataset.csv' i JOIN bought USING (order_id) JOIN paid USING (order_id)
    LEFT JOIN '{olist}/olist_products_dataset.csv' p USING (product_id)
"""
LEADERS = """
    WITH sums AS (SELECT category, seller_id, sum(price) AS revenue FROM ({paid}) GROUP BY ALL),
    ranked AS (SELECT *, row_number() OVER (PARTITION BY category ORDER BY revenue DESC, seller_id) AS rank FROM sums)
    SELECT category, rank, seller_id, revenue FROM ranked WHERE rank <= 5
"""
WEEKS = """
    SELECT epoch_ms(date_trunc('week', paid_at)) AS start, seller_id, count(*) AS items, sum(price) AS revenue FROM ({paid}) GROUP BY ALL
"""


@pytest.mark.skipif(not (OLIST / ITEMS).is_file(), reason=f"Olist's sample is not here: {OLIST}")
def test_paid_leaderboards_equal_those_of_duckdb(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine([orders(POLICY), payments(POLICY), order_items(POLICY)], ASSETS)
    prepare(OLIST, Path(engine.folders["orders"]).parent, parts=2)
    for _ in engine.ingest(), engine.drain():
        for asset in ASSETS:
            engine.advance(asset.name)
    paid = PAID_ITEMS.format(olist=OLIST)
    leaders = duckdb.sql(LEADERS.format(paid=paid))
    found = rows_of(engine.views.table("paid_leaders"), *leaders.columns)
    assert found == sorted(leaders.fetchall(), key=repr)
    assert len(found) > 200
    weeks = engine.views.table("paid_weeks").selectExpr("unix_millis(window_start) AS start", "seller_id", "items", "revenue")
    assert rows_of(weeks) == sorted(duckdb.sql(WEEKS.format(paid=paid)).fetchall(), key=repr)
    assert [asset.name for asset in ASSETS if not all(account.holds for account in engine.accounts.days(asset.name))] == []
