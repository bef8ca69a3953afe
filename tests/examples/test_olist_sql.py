"""Queries in Flink SQL over Olist's real sample: `operators.sql` gives the rows of DuckDB, row for row."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import operators
from platform_defs.simulator.olist import ITEMS, ORDERS
from tests.support.shared_data import OLIST

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not (OLIST / ORDERS).is_file(), reason=f"Olist's sample is not here: {OLIST}"),
]
COLUMNS = {
    "purchases": (ORDERS, "order_id, customer_id, order_purchase_timestamp AS purchased_at"),
    "approvals": (ORDERS, "order_id, order_status, order_approved_at AS approved_at"),
    "items": (ITEMS, "order_id, order_item_id, seller_id, CAST(price AS DECIMAL(10, 2)) AS price"),
}
SOLD = "SELECT items.*, purchased_at AS sold_at FROM items JOIN purchases USING (order_id)"
"""Items with the time of their order, in DuckDB's SQL."""
TIMES = {"purchases": "purchased_at", "approvals": "approved_at"}
SAME = {
    "interval_join": """
        SELECT p.order_id, p.customer_id, a.order_status, p.purchased_at, a.approved_at
        FROM purchases p FULL OUTER JOIN approvals a
        ON p.order_id = a.order_id AND a.approved_at BETWEEN p.purchased_at AND p.purchased_at + INTERVAL '1' HOUR
    """,
    "extra_condition": """
        SELECT p.order_id, a.order_status FROM purchases p, approvals a
        WHERE p.order_id = a.order_id AND a.approved_at > p.purchased_at AND a.approved_at <= p.purchased_at + INTERVAL '2' DAY
          AND a.order_status <> 'delivered' AND p.customer_id > '5'
    """,
    "aggregate": """
        SELECT seller_id, COUNT(*) AS items, SUM(price) AS revenue FROM items GROUP BY seller_id HAVING COUNT(*) > 3
    """,
    "top_n": """
        SELECT seller_id, order_id, order_item_id, price, n FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY seller_id ORDER BY price DESC, order_id, order_item_id) AS n FROM items) WHERE n <= 3
    """,
    "top_n_of_an_aggregate": """
        SELECT seller_id, revenue, n FROM (
          SELECT *, ROW_NUMBER() OVER (ORDER BY revenue DESC, seller_id) AS n
          FROM (SELECT seller_id, SUM(price) AS revenue FROM items GROUP BY seller_id)) WHERE n <= 50
    """,
    "deduplication": """
        SELECT customer_id, order_id FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY purchased_at DESC) AS n FROM purchases) WHERE n = 1
    """,
    "paid_within_the_hour": """
        SELECT order_id, customer_id FROM purchases p WHERE EXISTS (SELECT 1 FROM approvals a
          WHERE a.order_id = p.order_id AND a.approved_at BETWEEN p.purchased_at AND p.purchased_at + INTERVAL '1' HOUR)
    """,
    "not_paid_within_a_day": """
        SELECT order_id, customer_id FROM purchases p WHERE NOT EXISTS (SELECT 1 FROM approvals a
          WHERE a.order_id = p.order_id AND a.approved_at BETWEEN p.purchased_at AND p.purchased_at + INTERVAL '1' DAY)
    """,
    "leaders_of_what_was_paid": """
        SELECT seller_id, revenue, n FROM (
          SELECT *, ROW_NUMBER() OVER (ORDER BY revenue DESC, seller_id) AS n FROM (
            SELECT seller_id, SUM(price) AS revenue FROM (
              SELECT s.seller_id, s.price FROM sold s JOIN approvals a
              ON s.order_id = a.order_id AND a.approved_at BETWEEN s.sold_at AND s.sold_at + INTERVAL '2' DAY)
            GROUP BY seller_id)) WHERE n <= 50
    """,
}
"""Queries that DuckDB reads as they are."""
AS_OF = """
    SELECT a.order_id, p.customer_id, p.purchased_at
    FROM approvals a LEFT JOIN purchases FOR SYSTEM_TIME AS OF a.approved_at AS p ON a.order_id = p.order_id
"""
AS_OF_IN_DUCKDB = """
    SELECT a.order_id, p.customer_id, p.purchased_at
    FROM approvals a ASOF LEFT JOIN purchases p ON a.order_id = p.order_id AND a.approved_at >= p.purchased_at
"""
WINDOWS = """
    SELECT window_start, window_end, order_status, orders, n FROM (
      SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY orders DESC, order_status) AS n
      FROM (
        SELECT window_start, window_end, order_status, COUNT(*) AS orders
        FROM TABLE(TUMBLE(TABLE approvals, DESCRIPTOR(approved_at), INTERVAL '1' DAY)) GROUP BY window_start, window_end, order_status)
    ) WHERE n <= 2
"""
WINDOWS_IN_DUCKDB = """
    WITH counts AS (
      SELECT date_trunc('day', approved_at)::TIMESTAMP AS window_start, window_start + INTERVAL '1 day' AS window_end, order_status,
        COUNT(*) AS orders
      FROM approvals WHERE approved_at IS NOT NULL GROUP BY ALL)
    SELECT window_start, window_end, order_status, orders, n FROM (
      SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY orders DESC, order_status) AS n FROM counts) WHERE n <= 2
"""


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> dict[str, DataFrame]:
    read = {file: spark.read.csv(str(OLIST / file), header=True) for file in (ORDERS, ITEMS)}
    made = {name: read[file].selectExpr(*columns.split(", ", 3)) for name, (file, columns) in COLUMNS.items()}
    timed = {n: f.withColumn(TIMES[n], F.to_timestamp(TIMES[n])) if n in TIMES else f for n, f in made.items()}
    sold = timed["items"].join(timed["purchases"].selectExpr("order_id", "purchased_at AS sold_at"), "order_id")
    return timed | {"sold": sold}


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for name, (file, columns) in COLUMNS.items():
            connection.sql(f"CREATE VIEW {name} AS SELECT {columns} FROM '{OLIST / file}'")
        connection.sql(f"CREATE VIEW sold AS {SOLD}")
        yield connection


def as_text(rows: list[Any]) -> Counter[str]:
    return Counter(str(tuple(str(value) for value in row)) for row in rows)


def test_the_rows_equal_those_of_duckdb(frames: dict[str, DataFrame], database: duckdb.DuckDBPyConnection) -> None:
    queries = {name: (text, text) for name, text in SAME.items()} | {
        "window_top_n": (WINDOWS, WINDOWS_IN_DUCKDB),
        "as_of": (AS_OF, AS_OF_IN_DUCKDB),
    }
    for name, (text, in_duckdb) in queries.items():
        wanted = as_text(database.sql(in_duckdb).fetchall())
        assert as_text(operators.sql(text, frames).collect()) == wanted, name
        assert wanted.total() >= 50, name
