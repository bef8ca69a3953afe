"""Simulates the items of orders, and clicks on items. A few items have most of the orders and clicks."""

from random import Random

from platform_defs.simulator.rows import Row, money
from platform_defs.simulator.shop import Shop

CATEGORIES = ("books", "garden", "kitchen", "music", "sport", "toys")
ITEMS, SELLERS = 60, 12
ITEM_WITHIN_MS = 4_000
"""The largest time difference between an order and its items."""


def order_items(shop: Shop, rng: Random, orders: list[Row]) -> list[Row]:
    """One to four items for each order."""
    rows: list[Row] = []
    for order in orders:
        for item in _random_items(rng, rng.choice((1, 1, 2, 2, 3, 4))):
            fields = {
                "order_item_id": f"i{shop.id_prefix}-{len(rows):06d}",
                "order_id": order.fields["order_id"],
                **_item_fields(item),
                "seller_id": f"seller-{item % SELLERS:02d}",
                "quantity": str(rng.choice((1, 1, 1, 2, 3))),
                "price": money(300 + 177 * item),
            }
            time = max(shop.start, order.time + rng.randrange(-ITEM_WITHIN_MS, ITEM_WITHIN_MS + 1))
            rows.append(Row(time, fields, order=order, measure="price"))
    return rows


def clicks(shop: Shop, rng: Random) -> list[Row]:
    """Clicks of customers, spread over the span: `clicks_per_order` for each order."""
    rows: list[Row] = []
    for i in range(shop.orders * shop.clicks_per_order):
        fields = {
            "click_id": f"c{shop.id_prefix}-{i:07d}",
            "customer_id": f"{rng.randrange(shop.orders):05d}",
            **_item_fields(_random_items(rng, 1)[0]),
            "seconds": f"{0.1 + rng.expovariate(1 / 40):.1f}",
        }
        rows.append(Row(shop.start + rng.randrange(shop.span), fields, measure="seconds"))
    return sorted(rows, key=lambda row: row.time)


def _random_items(rng: Random, number: int) -> list[int]:
    """Random distinct item numbers; low numbers are much more frequent."""
    numbers: dict[int, None] = {}
    while len(numbers) < number:
        numbers[min(int(rng.paretovariate(0.8)) - 1, ITEMS - 1)] = None
    return list(numbers)


def _item_fields(item: int) -> dict[str, str]:
    return {"item_id": f"item-{item:03d}", "category": CATEGORIES[item % len(CATEGORIES)]}
