"""Consecutive windows and leaderboards over Olist's real sample: the engine's rankings equal DuckDB's, row for row."""

from pathlib import Path

import duckdb
import pytest

from assets.contracts import DerivedAsset
from assets.shop import tables as plans
from assets.shop.sources import Policy, order_items
from operators import TopK, Tumbling, WindowedAggregate
from platform_defs.simulator.olist import ITEMS, prepare
from tests.conftest import MakeEngine
from tests.support.shared_data import OLIST
from tests.support.small_sources import rows_of

POLICY: Policy = {"out_of_orderness": "1 hour", "idle_timeout": "1 hour", "duplicate_horizon": "7 days", "future_skew": "24 hours"}
DAY, WEEK = Tumbling(size="1 day"), Tumbling(size="7 days", offset="4 days")
"""Weeks from Monday to Sunday: 1970-01-05 was a Monday."""
SALES = {"sold": "count(*)", "revenue": "sum(price)"}
ASSETS = [
    DerivedAsset(name="categories", inputs=("order_items",), operator=WindowedAggregate(by="category", window=DAY, aggregates=SALES)),
    DerivedAsset(name="best_categories", inputs=("categories",), operator=TopK(k=10, order_by=["sold DESC", "revenue DESC", "category"])),
    DerivedAsset(name="sellers", inputs=("order_items",), operator=WindowedAggregate(by="seller_id", window=WEEK, aggregates=SALES)),
    DerivedAsset(name="best_sellers", inputs=("sellers",), operator=TopK(k=3, order_by=["revenue DESC", "seller_id"])),
    plans.seller_revenue(),
    plans.category_leaderboard(10),
    plans.seller_leaderboard(10),
]
SOLD = """
    SELECT i.seller_id, nullif(p.product_category_name, '') AS category, i.price::DECIMAL(12, 2) AS price,
           o.order_purchase_timestamp::TIMESTAMP AS sold_at
    FROM '{olist}/olist_order_items_dataset.csv' i JOIN '{olist}/olist_orders_dataset.csv' o USING (order_id)
    LEFT JOIN '{olist}/olist_products_dataset.csv' p USING (product_id)
"""
BEST = """
    WITH sold AS ({sold}),
    sums AS (
        SELECT epoch_ms(date_trunc('{window}', sold_at)) AS start, {by}, count(*) AS sold, sum(price) AS revenue FROM sold GROUP BY ALL
    ),
    ranked AS (SELECT *, row_number() OVER (PARTITION BY start ORDER BY {order}) AS rank FROM sums)
    SELECT start, rank, {by}, sold, revenue FROM ranked WHERE rank <= {k} ORDER BY start, rank
"""
LEADERS = """
    WITH sums AS (SELECT category, seller_id, sum(price) AS revenue FROM ({sold}) GROUP BY ALL),
    ranked AS (SELECT *, row_number() OVER (PARTITION BY category ORDER BY revenue DESC, seller_id) AS rank FROM sums)
    SELECT category, rank, seller_id, revenue FROM ranked WHERE rank <= 10
"""
DEAREST = """
    WITH ranked AS (SELECT seller_id, row_number() OVER (PARTITION BY seller_id ORDER BY price DESC) AS rank, price FROM ({sold}))
    SELECT * FROM ranked WHERE rank <= 10
"""


@pytest.mark.usefixtures("interpreted_plans")
@pytest.mark.skipif(not (OLIST / ITEMS).is_file(), reason=f"Olist's sample is not here: {OLIST}")
def test_the_rankings_equal_those_of_duckdb(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = make_engine([order_items(POLICY)], ASSETS)
    prepare(OLIST, Path(engine.folders["order_items"]).parent, parts=2)
    engine.ingest()
    engine.drain()
    for asset in ASSETS:
        engine.advance(asset.name)
    sold = SOLD.format(olist=OLIST)
    rankings = {
        "best_categories": ("day", "category", "sold DESC, revenue DESC, category NULLS FIRST", 10),
        "best_sellers": ("week", "seller_id", "revenue DESC, seller_id", 3),
    }
    for table, (window, by, order, k) in rankings.items():
        found = engine.views.table(table).selectExpr("unix_millis(window_start)", "rank", by, "sold", "revenue").collect()
        wanted = duckdb.sql(BEST.format(sold=sold, window=window, by=by, order=order, k=k)).fetchall()
        assert sorted(map(tuple, found)) == wanted
        assert len(wanted) > 100
    assert engine.views.late("categories", "order_items").isEmpty()
    for table, sql in {"category_leaderboard": LEADERS, "seller_leaderboard": DEAREST}.items():
        wanted = duckdb.sql(sql.format(sold=sold))
        found = rows_of(engine.views.table(table), *wanted.columns)
        assert found == sorted(wanted.fetchall(), key=repr)
        assert len(found) > 300
    assert all(account.holds for name in ("seller_revenue", "category_leaderboard") for account in engine.accounts.days(name))
