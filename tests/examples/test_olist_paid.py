"""A leaderboard of what was paid, five tables deep, over Olist's real sample: equal to DuckDB's, row for row."""

from pathlib import Path

import duckdb
import pytest

from assets.contracts import DerivedAsset
from assets.pipeline import Pipeline
from assets.preparation import Preparation
from assets.shop import tables as plans
from operators import Aggregate, Deduplicate, IntervalJoin, TopN, Tumbling, WindowedAggregate
from platform_defs.declared.sql_pipeline import read_sql
from platform_defs.simulator.olist import ITEMS, prepare
from tests.conftest import MakeEngine
from tests.support.shared_data import OLIST
from tests.support.small_sources import rows_of

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
IN_SQL = """
CREATE TABLE orders (order_id STRING, customer_id STRING, status STRING, amount DECIMAL(12, 2), order_time TIMESTAMP(3),
  WATERMARK FOR order_time AS order_time - INTERVAL '1' HOUR) WITH ({csv});
CREATE TABLE payments (payment_id STRING, order_id STRING, `method` STRING, amount DECIMAL(12, 2), payment_time TIMESTAMP(3),
  WATERMARK FOR payment_time AS payment_time - INTERVAL '1' HOUR) WITH ({csv});
CREATE TABLE order_items (order_item_id STRING, order_id STRING, item_id STRING, category STRING, seller_id STRING, quantity INT,
  price DECIMAL(12, 2), item_time TIMESTAMP(3), WATERMARK FOR item_time AS item_time - INTERVAL '1' HOUR) WITH ({csv});

INSERT INTO sql_payment_order_wide SELECT o.order_id, payment_time FROM orders o JOIN payments p
ON o.order_id = p.order_id AND payment_time BETWEEN order_time AND order_time + INTERVAL '30' DAY;

INSERT INTO sql_paid SELECT order_id, payment_time FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY order_id ORDER BY payment_time) AS n FROM sql_payment_order_wide) WHERE n = 1;

INSERT INTO sql_paid_items SELECT i.order_id, seller_id, category, price, p.payment_time AS paid_at FROM order_items i JOIN sql_paid p
ON i.order_id = p.order_id AND p.payment_time BETWEEN i.item_time AND i.item_time + INTERVAL '30' DAY;

INSERT INTO sql_paid_revenue SELECT category, seller_id, SUM(price) AS revenue FROM sql_paid_items GROUP BY category, seller_id;

INSERT INTO sql_paid_leaders SELECT category, `rank`, seller_id, revenue FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY category ORDER BY revenue DESC, seller_id) AS `rank` FROM sql_paid_revenue) WHERE `rank` <= 5;

INSERT INTO sql_paid_weeks SELECT seller_id, window_start, window_end, COUNT(*) AS items, SUM(price) AS revenue
FROM TABLE(TUMBLE(TABLE sql_paid_items, DESCRIPTOR(paid_at), INTERVAL '7' DAY, INTERVAL '4' DAY))
GROUP BY seller_id, window_start, window_end;
"""
"""The same tables in SQL, with other names."""
_CSV = "'connector' = 'filesystem', 'format' = 'csv', 'tidemark.header' = 'true'"
DECLARED = read_sql(IN_SQL.format(csv=_CSV))
PIPELINE = Pipeline(sources=DECLARED.sources, tables=[*ASSETS, *DECLARED.tables])
"""All tables read the sources in SQL. The shop's contracts of these sources are those of the other tests over Olist's sample."""
LEADERS = """
    WITH sums AS (SELECT category, seller_id, sum(price) AS revenue FROM ({paid}) GROUP BY ALL),
    ranked AS (SELECT *, row_number() OVER (PARTITION BY category ORDER BY revenue DESC, seller_id) AS rank FROM sums)
    SELECT category, rank, seller_id, revenue FROM ranked WHERE rank <= 5
"""
WEEKS = """
    SELECT epoch_ms(date_trunc('week', paid_at)) AS start, seller_id, count(*) AS items, sum(price) AS revenue FROM ({paid}) GROUP BY ALL
"""


@pytest.mark.usefixtures("interpreted_plans")
@pytest.mark.skipif(not (OLIST / ITEMS).is_file(), reason=f"Olist's sample is not here: {OLIST}")
def test_paid_leaderboards_equal_those_of_duckdb(make_engine: MakeEngine) -> None:
    engine = make_engine(PIPELINE.sources, PIPELINE.tables)
    prepare(OLIST, Path(engine.folders["orders"]).parent, parts=2)
    engine.ingest()
    engine.drain()
    for table in engine.assets:
        engine.advance(table)
    paid = PAID_ITEMS.format(olist=OLIST)
    leaders = duckdb.sql(LEADERS.format(paid=paid))
    wanted_leaders, wanted_weeks = (sorted(rows.fetchall(), key=repr) for rows in (leaders, duckdb.sql(WEEKS.format(paid=paid))))
    assert len(wanted_leaders) > 200
    for name in ("paid_leaders", "sql_paid_leaders"):
        assert rows_of(engine.views.table(name), *leaders.columns) == wanted_leaders, name
    for name in ("paid_weeks", "sql_paid_weeks"):
        weeks = engine.views.table(name).selectExpr("unix_millis(window_start) AS start", "seller_id", "items", "revenue")
        assert rows_of(weeks) == wanted_weeks, name
    assert [table for table in engine.assets if not all(account.holds for account in engine.accounts.days(table))] == []
