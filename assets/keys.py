"""The names of the shop's sources and tables, and their Dagster asset keys."""

from collections.abc import Sequence

import dagster as dg

ORDERS, PAYMENTS, ORDER_ITEMS, CLICKS = "orders", "payments", "order_items", "clicks"
ORDER_UPDATES = "order_updates"
PAYMENT_ORDER_WIDE, ORDER_WIDE, PAYMENT_WIDE = "payment_order_wide", "order_wide", "payment_wide"
ITEM_SALES, ITEM_CLICKS, ITEM_CONVERSION = "item_sales", "item_clicks", "item_conversion"
HOT_ITEMS, CATEGORY_HOT_ITEMS = "hot_items", "category_hot_items"
SELLER_REVENUE, SELLER_LEADERBOARD, CATEGORY_LEADERBOARD = "seller_revenue", "seller_leaderboard", "category_leaderboard"
ORDER_STATUS_BOARD = "order_status_board"


def input_keys(inputs: Sequence[str], sources: Sequence[str]) -> list[dg.AssetKey]:
    """The asset keys of a derived table's inputs: event logs for those that are sources, tables for the others."""
    return [event_key(name) if name in sources else dg.AssetKey(name) for name in inputs]


def event_key(source: str) -> dg.AssetKey:
    """The asset key of a source's event log."""
    return dg.AssetKey(["events", source])
