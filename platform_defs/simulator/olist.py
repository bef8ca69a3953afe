"""Turn Olist's CSV files into the shop's orders, items, updates and payments; items and payments get event times.

The `item_time` of an item is the `order_purchase_timestamp` of its order, and its category is that of its product. The `payment_time` of a
payment is the `order_approved_at` of its order. It is empty if the order was never approved or is unknown; ingest quarantines a payment
without a time. The `quantity` of an item is 1, and the `amount` of an order or an update is empty, since Olist has none. Other values are
unchanged.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

from operators.errors import TidemarkError
from platform_defs.simulator.day import land

ORDERS = "olist_orders_dataset.csv"
PAYMENTS = "olist_order_payments_dataset.csv"
ORDER_TIME = "order_purchase_timestamp"
ITEMS = "olist_order_items_dataset.csv"
PRODUCTS = "olist_products_dataset.csv"
UPDATES = {
    ORDER_TIME: "created",
    "order_approved_at": "approved",
    "order_delivered_carrier_date": "shipped",
    "order_delivered_customer_date": "delivered",
}
"""The column with the time of each status of an order; cancellation has none."""
TIMES = {"orders": "order_time", "payments": "payment_time", "order_items": "item_time", "order_updates": "update_time"}
PREPARED = tuple(TIMES)
"""The prepared sources."""
ORDER_COLUMNS = ("order_id", "customer_id", "order_status", *UPDATES)
PAYMENT_COLUMNS = ("order_id", "payment_sequential", "payment_type", "payment_value")
ITEM_COLUMNS = ("order_id", "order_item_id", "product_id", "seller_id", "price")
PRODUCT_COLUMNS = ("product_id", "product_category_name")
_UPDATE_COLUMNS = ("order_update_id", "order_id", "status", "amount", "update_time")

Row = dict[str, str]


class OlistError(TidemarkError, ValueError):
    """A folder does not contain Olist's files as published, or a parameter is illegal."""


class Prepared(TypedDict):
    """The number of landed rows of each source, and of those without an event time."""

    orders: int
    orders_without_time: int
    payments: int
    payments_without_time: int
    order_items: int
    order_items_without_time: int
    order_updates: int
    order_updates_without_time: int


def prepare(data: Path, landing: Path, parts: int = 1, arrival: Literal["by_time", "as_is"] = "by_time") -> Prepared:
    """Land the orders, payments, items and updates of a folder of Olist files, as `orders/part-*.csv` and so on, each with a header.

    Args:
        data: folder that holds the four Olist files.
        landing: root of the input files.
        parts: the number of files of each source, with about the same number of rows each.
        arrival: `by_time` sorts the rows of each source by event time, those without a time first, so that no row is late, whatever the
            number of parts. `as_is` keeps the order of the files, in which nearly every row after the first part is late.

    Returns:
        The number of rows of each source, and of those without a time.

    Raises:
        OlistError: a file, a column or a field is missing, or an argument is illegal.
        InputExistsError: the landing folder contains files with these names and other content.
    """
    if parts < 1 or arrival not in ("by_time", "as_is"):
        raise OlistError(f"`parts` is {parts} and `arrival` is {arrival!r}; legal are 1 or more, and 'by_time' or 'as_is'")
    orders = _read(data / ORDERS, ORDER_COLUMNS)
    items, products = _read(data / ITEMS, ITEM_COLUMNS), _read(data / PRODUCTS, PRODUCT_COLUMNS)
    shop = {
        "orders": [_order(o) for o in orders],
        "payments": _payments(_read(data / PAYMENTS, PAYMENT_COLUMNS), orders),
        "order_items": _items(items, orders, products),
        "order_updates": _updates(orders),
    }
    for source, rows in shop.items():
        time = TIMES[source]
        ordered = sorted(rows, key=lambda row, time=time: row[time]) if arrival == "by_time" else rows
        _land(landing / source, ordered, tuple(rows[0]) if rows else _UPDATE_COLUMNS, parts)  # only updates may have no rows
    return Prepared(
        orders=len(orders),
        orders_without_time=sum(not row["order_time"] for row in shop["orders"]),
        payments=len(shop["payments"]),
        payments_without_time=sum(not row["payment_time"] for row in shop["payments"]),
        order_items=len(shop["order_items"]),
        order_items_without_time=sum(not row["item_time"] for row in shop["order_items"]),
        order_updates=len(shop["order_updates"]),
        order_updates_without_time=0,
    )


def _read(path: Path, columns: Sequence[str]) -> list[Row]:
    if not path.is_file():
        raise OlistError(f"{path} is missing; the folder holds {sorted(file.name for file in path.parent.glob('*.csv'))}")
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        found = list(reader.fieldnames or ())
        rows = list(reader)
    missing = [column for column in columns if column not in found]
    if missing:
        raise OlistError(f"{path} has no column {missing}; it has {found}")
    if not rows:
        raise OlistError(f"{path} has no rows; its columns are {found}")
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():  # as DictReader shows too many fields, and too few
            raise OlistError(f"row {number} of {path} does not have {len(found)} fields; the file may be incomplete. Download it again")
    return rows


def _order(row: Row) -> Row:
    return {
        "order_id": row["order_id"],
        "customer_id": row["customer_id"],
        "status": row["order_status"],
        "amount": "",
        "order_time": row[ORDER_TIME],
    }


def _payments(payments: list[Row], orders: list[Row]) -> list[Row]:
    approved = {order["order_id"]: order["order_approved_at"] for order in orders}
    return [
        {
            "payment_id": f"{row['order_id']}-{row['payment_sequential']}",
            "order_id": row["order_id"],
            "method": row["payment_type"],
            "amount": row["payment_value"],
            "payment_time": approved.get(row["order_id"], ""),
        }
        for row in payments
    ]


def _items(items: list[Row], orders: list[Row], products: list[Row]) -> list[Row]:
    bought = {order["order_id"]: order[ORDER_TIME] for order in orders}
    categories = {product["product_id"]: product["product_category_name"] for product in products}
    return [
        {
            "order_item_id": f"{row['order_id']}-{row['order_item_id']}",
            "order_id": row["order_id"],
            "item_id": row["product_id"],
            "category": categories.get(row["product_id"], ""),
            "seller_id": row["seller_id"],
            "quantity": "1",
            "price": row["price"],
            "item_time": bought.get(row["order_id"], ""),
        }
        for row in items
    ]


def _updates(orders: list[Row]) -> list[Row]:
    """One row for each status change of an order."""
    updates = [(order, time, status) for order in orders for time, status in UPDATES.items() if order[time]]
    return [
        dict(zip(_UPDATE_COLUMNS, (f"{order['order_id']}-{status}", order["order_id"], status, "", order[time]), strict=True))
        for order, time, status in updates
    ]


def _land(folder: Path, rows: list[Row], columns: Sequence[str], parts: int) -> None:
    for part in range(parts):
        first, end = len(rows) * part // parts, len(rows) * (part + 1) // parts
        land(folder / f"part-{part:05d}.csv", _csv(rows[first:end], columns))


def _csv(rows: list[Row], columns: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
