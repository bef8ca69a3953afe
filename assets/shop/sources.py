"""The contracts of the shop's sources: orders, items, order updates, payments and clicks."""

from typing import TypedDict

from pyspark.sql.types import StructType

from assets.contracts import BoundedOutOfOrderness, RowRule, SourceContract
from assets.shop.names import CLICKS, ORDER_ITEMS, ORDER_UPDATES, ORDERS, PAYMENTS

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


ORDER_ITEM = (
    StructType()
    .add("order_item_id", "string", nullable=False)
    .add("order_id", "string", nullable=False)
    .add("item_id", "string", nullable=False)
    .add("category", "string")
    .add("seller_id", "string")
    .add("quantity", "integer")
    .add("price", "decimal(12,2)")
    .add("item_time", "timestamp")
)
CLICK = (
    StructType()
    .add("click_id", "string", nullable=False)
    .add("customer_id", "string")
    .add("item_id", "string", nullable=False)
    .add("category", "string")
    .add("seconds", "decimal(10,1)")
    .add("click_time", "timestamp")
)
ORDER_UPDATE = (
    StructType()
    .add("order_update_id", "string", nullable=False)
    .add("order_id", "string", nullable=False)
    .add("status", "string", nullable=False)
    .add("amount", "decimal(12,2)")
    .add("update_time", "timestamp")
)


class Policy(TypedDict):
    """The parameters that all sources of the shop share; see `SourceContract`."""

    out_of_orderness: str
    idle_timeout: str
    duplicate_horizon: str
    future_skew: str


def orders(policy: Policy) -> SourceContract:
    """The orders: one row when an order is made."""
    rules = RowRule("amount_not_negative", "amount >= 0"), RowRule("customer_known", "customer_id IS NOT NULL", "warn")
    return _source(ORDERS, ORDER, "order_time", "order_id", policy, *rules)


def payments(policy: Policy) -> SourceContract:
    """The payments: one row when a payment is made; an order may have several."""
    return _source(PAYMENTS, PAYMENT, "payment_time", "payment_id", policy, RowRule("amount_not_negative", "amount >= 0"))


def order_items(policy: Policy) -> SourceContract:
    """The items of orders: one row for each item of an order, written at about the time of the order."""
    rules = RowRule("price_not_negative", "price >= 0"), RowRule("quantity_positive", "quantity > 0")
    return _source(ORDER_ITEMS, ORDER_ITEM, "item_time", "order_item_id", policy, *rules)


def clicks(policy: Policy) -> SourceContract:
    """The clicks on items, and how long each item was viewed."""
    return _source(CLICKS, CLICK, "click_time", "click_id", policy, RowRule("seconds_not_negative", "seconds >= 0"))


def order_updates(policy: Policy) -> SourceContract:
    """The updates of orders: one row for each change of an order's status."""
    return _source(ORDER_UPDATES, ORDER_UPDATE, "update_time", "order_update_id", policy, RowRule("amount_not_negative", "amount >= 0"))


def _source(name: str, schema: StructType, event_time: str, unique_key: str, policy: Policy, *rules: RowRule) -> SourceContract:
    return SourceContract(
        name=name,
        schema=schema,
        event_time=event_time,
        watermark=BoundedOutOfOrderness(policy["out_of_orderness"]),
        unique_key=(unique_key,),
        duplicate_horizon=policy["duplicate_horizon"],
        idle_timeout=policy["idle_timeout"],
        future_skew=policy["future_skew"],
        rules=rules,
    )
