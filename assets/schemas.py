"""The shop's sources: what an order and a payment are."""

from assets.contracts import BoundedOutOfOrderness, RowRule, SourceContract
from assets.keys import ORDERS, PAYMENTS


def orders(*, out_of_orderness: str, idle_timeout: str, duplicate_horizon: str, future_skew: str) -> SourceContract:
    """The orders: one row when an order is made."""
    return SourceContract(
        name=ORDERS,
        schema="order_id STRING NOT NULL, customer_id STRING, status STRING, amount DECIMAL(12,2), order_time TIMESTAMP",
        event_time="order_time",
        watermark=BoundedOutOfOrderness(out_of_orderness),
        unique_key=("order_id",),
        duplicate_horizon=duplicate_horizon,
        idle_timeout=idle_timeout,
        future_skew=future_skew,
        rules=(RowRule("amount_not_negative", "amount >= 0"), RowRule("customer_known", "customer_id IS NOT NULL", "warn")),
    )


def payments(*, out_of_orderness: str, idle_timeout: str, duplicate_horizon: str, future_skew: str) -> SourceContract:
    """The payments: one row when a payment is made; an order may have several."""
    return SourceContract(
        name=PAYMENTS,
        schema="payment_id STRING NOT NULL, order_id STRING NOT NULL, method STRING, amount DECIMAL(12,2), payment_time TIMESTAMP",
        event_time="payment_time",
        watermark=BoundedOutOfOrderness(out_of_orderness),
        unique_key=("payment_id",),
        duplicate_horizon=duplicate_horizon,
        idle_timeout=idle_timeout,
        future_skew=future_skew,
        rules=(RowRule("amount_not_negative", "amount >= 0"),),
    )
