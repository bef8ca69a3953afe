"""Simulates a day of the shop, and writes it to the landing folders."""

from collections import Counter
from pathlib import Path
from random import Random

from platform_defs.simulator.errors import InputExistsError
from platform_defs.simulator.goods import clicks, order_items
from platform_defs.simulator.rows import Row, assign_kinds, simulate_arrivals
from platform_defs.simulator.shop import NOT_CLEAN, QUARANTINED, SOURCES, ExpectedCounts, Kind, Shop, ShopDay, Source
from platform_defs.simulator.trade import is_within, order_updates, orders, payments


def simulate(shop: Shop) -> ShopDay:
    """Simulate a shop's day.

    >>> len(simulate(Shop(orders=100, duplicate=0)).orders)
    100
    """
    rng, goods_rng, updates_rng = (Random(f"{shop.seed}/{shop.day}{suffix}") for suffix in ("", "/goods", "/updates"))
    ordered = orders(shop, rng)
    assign_kinds(shop, rng, ordered)
    usable = [row for row in ordered if row.kind not in QUARANTINED]
    paid = payments(shop, rng, usable)
    assign_kinds(shop, rng, [row for row in paid if row.order and row.order.kind == "clean" and is_within(shop, row)])
    items, clicked = order_items(shop, goods_rng, usable), clicks(shop, goods_rng)
    assign_kinds(shop, goods_rng, items)
    assign_kinds(shop, goods_rng, clicked)
    updated = order_updates(shop, updates_rng, usable)
    assign_kinds(shop, updates_rng, updated)
    sent_rows = {
        "orders": simulate_arrivals(shop, rng, ordered, "order_time"),
        "payments": simulate_arrivals(shop, rng, paid, "payment_time"),
        "order_items": simulate_arrivals(shop, goods_rng, items, "item_time"),
        "clicks": simulate_arrivals(shop, goods_rng, clicked, "click_time"),
        "order_updates": simulate_arrivals(shop, updates_rng, updated, "update_time"),
    }
    arrivals: dict[Source, list[int]] = {source: sent_rows[source][0] for source in SOURCES}
    lines = {source: sent_lines for source, (_, sent_lines) in sent_rows.items()}
    return ShopDay(shop=shop, **lines, arrivals=arrivals, truth=_truth(shop, ordered, paid, items, clicked, updated))


def drop(day: ShopDay, landing: Path, part: int, parts: int, *, first: int = 0) -> dict[Source, int]:
    """Land one part of a day: one complete file for each source.

    Args:
        day: the day.
        landing: the root of the landing folders.
        part: the number of the part, from 0.
        parts: the number of parts.
        first: the number of the first file, for a second day in the same folder.

    Returns:
        The number of lines for each source.

    Raises:
        InputExistsError: a file exists with other content.
    """
    slices: dict[Source, list[str]] = {source: day.lines(source, part, parts) for source in SOURCES}
    for source, lines in slices.items():
        land(landing / source / f"part-{first + part:05d}.jsonl", "".join(f"{line}\n" for line in lines))
    return {source: len(lines) for source, lines in slices.items()}


def land(path: Path, text: str) -> None:
    """Write a file under a hidden name, then rename it. An existing file with the same text is left unchanged.

    Raises:
        InputExistsError: the file exists with other content; landed input is never overwritten.
    """
    content = text.encode()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}.tmp")
        hidden.write_bytes(content)
        hidden.replace(path)
    elif path.read_bytes() != content:
        raise InputExistsError(f"{path} already contains other input; land into an empty folder, or use another file number")


def _truth(shop: Shop, orders: list[Row], payments: list[Row], items: list[Row], clicks: list[Row], updates: list[Row]) -> ExpectedCounts:
    usable, paid = [row for row in payments if row.kind not in QUARANTINED], {row.order for row in payments}
    pairs = [row for row in usable if is_within(shop, row)]
    return ExpectedCounts(
        orders=_by_kind(orders),
        payments=_by_kind(payments),
        order_items=_by_kind(items),
        clicks=_by_kind(clicks),
        order_updates=_by_kind(updates),
        unpaid_orders=sum(row.kind not in QUARANTINED and row not in paid for row in orders),
        orphan_payments=sum(row.order is None for row in usable),
        paid_within=len(pairs),
        paid_within_on_time=sum(row.kind != "late" and row.order is not None and row.order.kind != "late" for row in pairs),
        paid_beyond=sum(row.order is not None and not is_within(shop, row) for row in usable),
    )


def _by_kind(rows: list[Row]) -> dict[Kind, int]:
    """The number of lines by kind. A duplicate has two lines, the first of which is clean."""
    counts = Counter(row.kind for row in rows)
    return {"clean": counts["clean"] + counts["duplicate"], **{kind: counts[kind] for kind in NOT_CLEAN}}
