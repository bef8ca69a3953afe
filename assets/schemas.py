"""The shop's sources: what an order and a payment are."""

from pyspark.sql.types import StructType

from assets.contracts import BoundedOutOfOrderness, RowRule, SourceContract
from assets.keys import ORDERS, PAYMENTS

ORDER = (
    StructType()
    .add("order_id", "string", nullable=False)
    .add("customer_id", "string")
    .add("status", "string")
    .add("amount", "decimal(12,2)")
    .add("order_time", "timestamp")
)
PAYMENT = (
    StructType()
    .add("payment_id", "string", nullable=False)
    .add("order_id", "string", nullable=False)
    .add("method", "string")
    .add("amount", "decimal(12,2)")
    .add("payment_time", "timestamp")
)


def orders(*, out_of_orderness: str, idle_timeout: str, duplicate_horizon: str, future_skew: str) -> SourceContract:
    """The orders: one row when an order is made."""
    return SourceContract(
        name=ORDERS,
        schema=ORDER,
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
        schema=PAYMENT,
        event_time="payment_time",
        watermark=BoundedOutOfOrderness(out_of_orderness),
        unique_key=("payment_id",),
        duplicate_horizon=duplicate_horizon,
        idle_timeout=idle_timeout,
        future_skew=future_skew,
        rules=(RowRule("amount_not_negative", "amount >= 0"),),
    )
