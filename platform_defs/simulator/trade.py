"""Simulates orders, their payments and their updates."""

from random import Random

from platform_defs.simulator.rows import Row, count, money, pick
from platform_defs.simulator.shop import BEYOND, HOUR, MINUTE, Shop

UPDATES = ("created", "approved", "shipped", "delivered")
STATUSES = (*UPDATES, "canceled")
CANCELED_SHARE = 0.05
"""The share of orders that are canceled."""
METHODS = ("card", "boleto", "voucher", "transfer")
NAMES = ("ana", "ben", "carla", "dmitri", "eva", "farid", "João", "Zoë", "Łukasz", "李雷", "さくら", "민준")


def orders(shop: Shop, rng: Random) -> list[Row]:
    """The orders, spread evenly over the span."""
    rows: list[Row] = []
    for i in range(shop.orders):
        fields = {
            "order_id": f"o{shop.id_prefix}-{i:06d}",
            "customer_id": f"{rng.choice(NAMES)}-{rng.randrange(shop.orders):05d}",
            "status": rng.choice(STATUSES),
            "amount": money(500 + int(rng.expovariate(1 / 12_000))),
        }
        rows.append(Row(shop.start + (i * shop.span + rng.randrange(shop.span)) // shop.orders, fields))
    return rows


def payments(shop: Shop, rng: Random, orders: list[Row]) -> list[Row]:
    """Payments without an order, then the payments of each order."""
    clean = [order for order in orders if order.kind == "clean"]
    newest = shop.start + shop.span - shop.within_ms - BEYOND - HOUR // 2
    unpaid = set(pick(rng, clean, shop.unpaid, len(orders)))
    beyond = set(pick(rng, [row for row in clean if row.time <= newest and row not in unpaid], shop.beyond, len(orders)))
    several = set(pick(rng, [row for row in clean if row not in unpaid and row not in beyond], shop.several, len(orders)))
    rows = [_orphan(shop, rng, i) for i in range(count(shop.orphan, shop.orders))]
    for order in orders:
        if order in beyond:
            rows.append(_payment(rng, order, shop.within_ms + BEYOND + rng.randrange(HOUR // 2), 1))
        elif order not in unpaid:
            shares = rng.choice((2, 2, 3)) if order in several else 1
            rows += [_payment(rng, order, _delay(shop, rng, order.time), shares) for _ in range(shares)]
    for i, row in enumerate(rows):
        row.fields = {"payment_id": f"p{shop.id_prefix}-{i:06d}", **row.fields}
    return rows


def order_updates(shop: Shop, rng: Random, orders: list[Row]) -> list[Row]:
    """The status updates of each order within the span: created, approved, shipped and delivered, or canceled."""
    rows: list[Row] = []
    for order in orders:
        time, steps = order.time, list[str](UPDATES)
        if rng.random() < CANCELED_SHARE:
            steps[rng.randrange(1, len(steps)) :] = ["canceled"]
        for n, status in enumerate(steps):
            time += rng.randrange(5 * MINUTE, 5 * HOUR) if n else 0
            fields = {"order_update_id": f"{order.fields['order_id']}-{n}", "order_id": order.fields["order_id"], "status": status}
            if time < shop.start + shop.span:
                rows.append(Row(time, {**fields, "amount": order.fields["amount"]}, order=order))
    return sorted(rows, key=lambda row: row.time)


def _payment(rng: Random, order: Row, delay: int, shares: int) -> Row:
    amount = money(int(order.fields["amount"].replace(".", "")) // shares)
    return Row(order.time + delay, {"order_id": order.fields["order_id"], "method": rng.choice(METHODS), "amount": amount}, order=order)


def _orphan(shop: Shop, rng: Random, i: int) -> Row:
    fields = {"order_id": f"nowhere{shop.seed}-{i:05d}", "method": rng.choice(METHODS), "amount": money(rng.randrange(500, 30_000))}
    return Row(shop.start + rng.randrange(shop.span), fields)


def _delay(shop: Shop, rng: Random, time: int) -> int:
    """The time from order to payment in ms: mostly within an hour, sometimes anywhere in the bound, rarely at one of its ends."""
    shape, delay = rng.random(), min(int(rng.expovariate(1 / (40 * MINUTE))), shop.within_ms)
    if shape < 0.1:
        delay = rng.choice((0, shop.within_ms)) if shape < 0.01 else rng.randrange(shop.within_ms + 1)
    remaining = shop.start + shop.span - time
    return delay if delay <= remaining else rng.randrange(min(remaining, shop.within_ms) + 1)


def is_within(shop: Shop, payment: Row) -> bool:
    """Whether a payment has an order and is within the join's bound after it."""
    return payment.order is not None and payment.time - payment.order.time <= shop.within_ms
