"""The names of what exists."""

import dagster as dg

ORDERS, PAYMENTS = "orders", "payments"
PAYMENT_ORDER_WIDE = "payment_order_wide"


def event_key(source: str) -> dg.AssetKey:
    """The asset key of a source's event log."""
    return dg.AssetKey(["events", source])
