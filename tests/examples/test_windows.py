"""The pipeline of `examples/windows` over 18 rows: what each of its tables contains."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from assets.pipeline import Pipeline
from examples.windows.pipeline import TABLES, orders, pipeline
from platform_defs.testing import Sandbox
from tests.support.sandbox_rows import rows_of_tables

CLICKS = """click_id,user,page,clicked_at
1,ann,home,2026-03-01T09:00:00Z
2,ann,shoes,2026-03-01T09:04:00Z
3,ann,cart,2026-03-01T09:14:00Z
4,bob,home,2026-03-01T09:20:00Z
5,ann,home,2026-03-01T09:40:00Z
6,bob,shoes,2026-03-01T09:25:00Z
7,bob,shoes,2026-03-01T09:27:00Z
"""
ORDERS = """order_id,user,amount,ordered_at
a,ann,50.00,2026-03-01T09:15:00Z
b,bob,10.00,2026-03-01T09:28:05Z
c,bob,55.00,2026-03-01T09:35:00Z
d,eve,70.00,2026-03-01T10:59:59Z
"""
PAYMENTS = """payment_id,order_id,paid,paid_at
p,a,50.00,2026-03-01T09:15:19Z
q,b,10.00,2026-03-01T09:28:20Z
r,d,40.00,2026-03-01T10:59:59.999Z
s,d,30.00,2026-03-01T10:59:50Z
"""
TIERS = """user,tier,since
ann,silver,2026-03-01T08:00:00Z
ann,gold,2026-03-01T09:15:00Z
bob,gold,2026-03-01T09:30:00Z
"""
[orders_today] = [table for table in TABLES if table.name == "orders_today"]
BOUNDS = ("window_start", "window_end")


def _clock(value: Any) -> Any:
    return value.strftime("%H:%M" if value.second == 0 else "%H:%M:%S") if isinstance(value, datetime) else value


@pytest.mark.usefixtures("interpreted_plans")
def test_each_table_has_the_expected_rows(spark: SparkSession, tmp_path: Path) -> None:
    sandbox = Sandbox(pipeline, tmp_path)
    for source, text in (("clicks", CLICKS), ("orders", ORDERS), ("payments", PAYMENTS), ("tiers", TIERS)):
        sandbox.land(source, "1.csv", text)
    sandbox.run()
    wanted: dict[tuple[str, ...], list[tuple[Any, ...]]] = {
        ("visits", "user", *BOUNDS, "clicks"): [
            ("ann", "09:00", "09:24", 3),
            ("ann", "09:40", "09:50", 1),
            ("bob", "09:20", "09:37", 3),
        ],
        ("entry_pages", "user", "window_start", "click_id", "page"): [
            ("ann", "09:00", "1", "home"),
            ("ann", "09:40", "5", "home"),
            ("bob", "09:20", "4", "home"),
        ],
        ("pages_of_visit", "user", "window_start", "position", "page", "seconds"): [
            ("ann", "09:00", 1, "home", None),
            ("ann", "09:00", 2, "shoes", 240),
            ("ann", "09:00", 3, "cart", 600),
            ("ann", "09:40", 1, "home", None),
            ("bob", "09:20", 1, "home", None),
            ("bob", "09:20", 2, "shoes", 300),
            ("bob", "09:20", 3, "shoes", 120),
        ],
        ("last_clicks", "user", "click_id"): [("ann", "5"), ("bob", "7")],
        ("new_orders", "firing", "final_at", "orders", "amount"): [
            (1, "09:30", 2, 60.0),
            (2, "10:00", 1, 55.0),
            (3, "11:00", 1, 70.0),
        ],
        ("orders_so_far", "window_start", "orders", "amount"): [("00:00", 4, 185.0)],
        ("best_pages", "window_start", "rank", "page", "clicks"): [("09:00", 1, "shoes", 3), ("09:30", 1, "home", 1)],
        ("conversion", "user", "window_start", "clicks", "orders", "amount"): [
            ("ann", "09:00", 4, 1, 50.0),
            ("bob", "09:00", 3, 2, 65.0),
            ("eve", "10:00", 0, 1, 70.0),
        ],
        ("paid_orders", "order_id", "payment_id", "window_start"): [
            ("a", "p", "09:15"),
            ("b", None, "09:28"),
            ("c", None, "09:35"),
            ("d", "r", "10:59:40"),
            ("d", "s", "10:59:40"),
        ],
        ("recent_amounts", "window_start", "amount"): [("09:00", 65.0), ("10:00", 70.0)],
        ("last_minutes", "window_start", "orders"): [("09:00", 2), ("10:00", 1)],
        ("usual_amounts", "window_start", "orders", "amount"): [("09:00", 2, 105.0), ("10:00", 1, 70.0)],
        ("every_third_click", "user", "window_number", "pages"): [("ann", 1, 3), ("bob", 1, 2)],
        ("times_between_clicks", "user", "window_number", "result_number", "page", "seconds"): [
            ("ann", 1, 1, "shoes", 240),
            ("ann", 2, 1, "cart", 600),
            ("ann", 2, 2, "home", 1560),
            ("bob", 1, 1, "shoes", 300),
        ],
        ("ways_to_the_shoes", "user", "window_number", "clicks"): [("ann", 1, 2), ("bob", 1, 2), ("bob", 2, 1)],
        ("order_tiers", "order_id", "tier"): [("a", "gold"), ("b", None), ("c", "gold"), ("d", None)],
        ("settled_orders", "order_id"): [("a",), ("b",), ("d",)],
        ("unpaid_orders", "order_id"): [("c",)],
        ("orders_of_hour", "window_start", "orders"): [("09:00", 3), ("10:00", 1)],
    }
    totals = [("10:00", 3, 115.0), *((f"{hour % 24:02}:00", 4, 185.0) for hour in range(11, 25))]
    wanted["orders_today", "window_end", "orders", "amount"] = totals
    found = rows_of_tables(sandbox, {table: columns for table, *columns in wanted})
    for (table, *_), rows in wanted.items():
        assert [tuple(map(_clock, row)) for row in found[table]] == rows, table


def test_open_windows_show_early_results(spark: SparkSession, tmp_path: Path) -> None:
    """The watermark is five minutes behind the newest order, so the window to 10:00 is open. Its trigger fires after every second order."""
    sandbox = Sandbox(Pipeline(sources=[orders], tables=[orders_today]), tmp_path)
    for name, lines in (("1.csv", 3), ("2.csv", 4)):
        sandbox.land("orders", name, "\n".join(ORDERS.splitlines()[:lines]) + "\n")
        sandbox.run(drain=False)
        found = sandbox.engine.views.with_early("orders_today").where("hour(window_end) = 10").select("orders", "is_final")
        assert [tuple(row) for row in found.collect()] == [(2, False)], name
