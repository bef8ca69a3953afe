"""The contracts of the shop's sources: orders, items, order updates, payments and clicks."""

from typing import TypedDict

from assets.contracts import BoundedOutOfOrderness, RowRule, SourceContract
from assets.shop.names import CLICKS, ORDER_ITEMS, ORDER_UPDATES, ORDERS, PAYMENTS

ORDER = """
    order_id STRING NOT NULL COMMENT 'the id of the order',
    customer_id STRING COMMENT 'the id of the customer who ordered',
    status STRING COMMENT 'the status of the order when it was made',
    amount DECIMAL(12,2) COMMENT 'the price of all items',
    order_time TIMESTAMP COMMENT 'when the order was made'
"""
PAYMENT = """
    payment_id STRING NOT NULL COMMENT 'the id of the payment',
    order_id STRING NOT NULL COMMENT 'the id of the order that is paid',
    method STRING COMMENT 'the means of payment',
    amount DECIMAL(12,2) COMMENT 'the amount paid',
    payment_time TIMESTAMP COMMENT 'when the payment was made'
"""
ORDER_ITEM = """
    order_item_id STRING NOT NULL COMMENT 'the id of the order item',
    order_id STRING NOT NULL COMMENT 'the id of the order that contains the item',
    item_id STRING NOT NULL COMMENT 'the id of the product',
    category STRING COMMENT 'the category of the product',
    seller_id STRING COMMENT 'the id of the seller',
    quantity INT COMMENT 'how many pieces were ordered',
    price DECIMAL(12,2) COMMENT 'the price of one piece',
    item_time TIMESTAMP COMMENT 'when the item was recorded, at about the time of the order'
"""
CLICK = """
    click_id STRING NOT NULL COMMENT 'the id of the click',
    customer_id STRING COMMENT 'the id of the customer who clicked',
    item_id STRING NOT NULL COMMENT 'the id of the product',
    category STRING COMMENT 'the category of the product',
    seconds DECIMAL(10,1) COMMENT 'how long the product was viewed',
    click_time TIMESTAMP COMMENT 'when the click was made'
"""
ORDER_UPDATE = """
    order_update_id STRING NOT NULL COMMENT 'the id of the update',
    order_id STRING NOT NULL COMMENT 'the id of the order that is updated',
    status STRING NOT NULL COMMENT 'its new status',
    amount DECIMAL(12,2) COMMENT 'the price of all its items',
    update_time TIMESTAMP COMMENT 'when the status changed'
"""


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


def _source(name: str, schema: str, event_time: str, unique_key: str, policy: Policy, *rules: RowRule) -> SourceContract:
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
