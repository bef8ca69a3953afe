"""As-of joins over Olist's sample: the engine's tables and the operator's results equal those of DuckDB's ASOF JOIN, row for row."""

from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset, Preparation
from assets.shop.sources import Policy, order_updates, payments
from operators import AsOfJoin
from platform_defs.simulator.olist import ITEMS, prepare
from tests.conftest import MakeEngine
from tests.support.json_rows import values_of
from tests.support.shared_data import OLIST
from tests.support.small_sources import correct_totals, rows_of

pytestmark = pytest.mark.skipif(not (OLIST / ITEMS).is_file(), reason=f"Olist's sample is not here: {OLIST}")
POLICY: Policy = {"out_of_orderness": "1 hour", "idle_timeout": "1 hour", "duplicate_horizon": "7 days", "future_skew": "24 hours"}
INPUTS = ("payments", "order_updates")
NOT_APPROVED = {"order_updates": Preparation(where="status <> 'approved'")}
LEFT, RECENT = (
    AsOfJoin(on="order_id", left_prefix="payment_", right_prefix="update_", how="left"),
    AsOfJoin(on="order_id", left_prefix="payment_", right_prefix="update_", max_age="20 minutes"),
)
ASSETS = [
    DerivedAsset(name="paid_orders", inputs=INPUTS, operator=LEFT),
    DerivedAsset(name="before_payment", inputs=INPUTS, operator=LEFT, prepare=NOT_APPROVED),
    DerivedAsset(name="quickly_paid", inputs=INPUTS, operator=RECENT, prepare=NOT_APPROVED),
]
STATUS = """
    WITH versions AS (
        FROM updates WHERE {updates}
        QUALIFY row_number() OVER (PARTITION BY order_id, event_time ORDER BY seq DESC, arrival DESC) = 1
    )
    SELECT p.payment_id, v.status, epoch_ms(v.event_time)
    FROM payments p ASOF LEFT JOIN versions v ON p.order_id = v.order_id AND p.event_time >= v.event_time
    WHERE {results}
"""
EXPECTED = {
    "paid_orders": STATUS.format(updates="true", results="true"),
    "before_payment": STATUS.format(updates="status <> 'approved'", results="true"),
    "quickly_paid": STATUS.format(updates="status <> 'approved'", results="p.event_time <= v.event_time + INTERVAL 20 MINUTE"),
}
ITEMS_WITH_ORDERS = f"FROM '{OLIST}/olist_order_items_dataset.csv' i JOIN '{OLIST}/olist_orders_dataset.csv' o USING (order_id)"
DAY_BEFORE = f"""
    SELECT i.product_id, i.order_id, i.order_item_id, (o.order_approved_at - INTERVAL 1 DAY)::TIMESTAMPTZ AS event_time {ITEMS_WITH_ORDERS}
"""
PRICES = f"""
    SELECT i.product_id, o.order_purchase_timestamp::TIMESTAMPTZ AS event_time, max(i.price::DECIMAL(12, 2)) AS price
    {ITEMS_WITH_ORDERS} GROUP BY ALL
"""


@pytest.mark.usefixtures("interpreted_plans")
def test_the_status_of_orders_when_they_were_paid(make_engine: MakeEngine) -> None:
    """The time of a payment is that at which its order was approved, so the newest version at the payment has the status `approved`."""
    engine = make_engine([payments(POLICY), order_updates(POLICY)], ASSETS)
    prepare(OLIST, Path(engine.folders["payments"]).parent, parts=2)
    engine.ingest()
    engine.drain()
    con, statuses = duckdb.connect(), dict[str, set[str]]()
    for name, source in (("payments", "payments"), ("updates", "order_updates")):
        con.register(name, engine.lake.read(engine.spark, f"events/{source}").toArrow())
    assert all(engine.advance(name) for name in EXPECTED)
    columns = "payment_id", "status", "unix_millis(update_event_time)"
    found = values_of({name: engine.views.table(name).selectExpr(*columns) for name in EXPECTED})
    for name, sql in EXPECTED.items():
        assert found[name] == sorted(con.sql(sql).fetchall(), key=repr)
        assert len(found[name]) > (3_000 if name == "quickly_paid" else 8_000)
        statuses[name] = {status for _, status, _ in found[name]}
        assert correct_totals(engine, name)["payments", "late"] == 0
    assert statuses["paid_orders"] == {"approved"}
    assert statuses["before_payment"] == {"created", "shipped", "delivered"}, "some orders were paid after their delivery"
    assert statuses["quickly_paid"] == {"created", "shipped"}


def test_the_price_of_products_a_day_before_their_orders_were_approved(spark: SparkSession) -> None:
    """For each item, the newest price at which its product had been ordered. Items of orders that were never approved have no time."""
    con = duckdb.connect()
    con.sql("SET TimeZone = 'UTC'")
    con.execute(f"CREATE TABLE items AS {DAY_BEFORE}")
    con.execute(f"CREATE TABLE prices AS {PRICES}")
    expected = con.sql("""
        SELECT i.order_id, i.order_item_id, p.price, epoch_ms(p.event_time)
        FROM items i ASOF LEFT JOIN prices p ON i.product_id = p.product_id AND i.event_time >= p.event_time
    """).fetchall()
    sides = [spark.createDataFrame(con.sql(f"FROM {table}").to_arrow_table()) for table in ("items", "prices")]
    result = AsOfJoin(on="product_id", how="left")(*sides)
    found = rows_of(result.selectExpr("order_id", "order_item_id", "price", "unix_millis(right_event_time)"))
    assert found == sorted(expected, key=repr)
    assert (len(found), sum(price is not None for _, _, price, _ in found)) == (8_365, 3_380)
