"""The shop's derived tables: definitions composed of operators."""

from assets.contracts import DerivedAsset
from assets.shop.names import (
    CATEGORY_HOT_ITEMS,
    CATEGORY_LEADERBOARD,
    CLICKS,
    HOT_ITEMS,
    ITEM_CLICKS,
    ITEM_CONVERSION,
    ITEM_SALES,
    LEADERBOARDS,
    ORDER_ITEMS,
    ORDER_STATUS_BOARD,
    ORDER_UPDATES,
    ORDER_WIDE,
    ORDERS,
    PAYMENT_ORDER_WIDE,
    PAYMENT_WIDE,
    PAYMENTS,
    SELLER_LEADERBOARD,
    SELLER_REVENUE,
    WIDE,
    WINDOWS,
)
from operators.aggregate import Aggregate
from operators.interval_join import How, IntervalJoin
from operators.top_k import TopK
from operators.top_n import TopN
from operators.triggers import Trigger
from operators.window_join import WindowJoin
from operators.windowed_aggregate import WindowedAggregate
from operators.windows import Sliding, Tumbling

ITEM_TOLERANCE, PAYMENT_LOOKBACK = "5 seconds", "15 minutes"
"""How far apart in time an order and its items may be; and in `payment_wide`, how long before a payment its order may be."""
_ITEM = ("item_id", "category")
_BEST = ("units DESC", "revenue DESC", "item_id")


def payment_order_wide(*, within: str, how: How) -> DerivedAsset:
    """Each payment joined with its order, if the order was made at most `within` before; `how` selects which unmatched rows are kept."""
    join = IntervalJoin(on="order_id", lower=0, upper=within, how=how, left_prefix="order_", right_prefix="payment_")
    description = f"Payments joined with their orders, for payments at most {within} after the order ({how} join)."
    return DerivedAsset(name=PAYMENT_ORDER_WIDE, inputs=(ORDERS, PAYMENTS), operator=join, description=description, group=WIDE)


def order_wide() -> DerivedAsset:
    """Each order joined with each of its items; unmatched rows of both are kept."""
    join = IntervalJoin(
        on="order_id", lower=f"-{ITEM_TOLERANCE}", upper=ITEM_TOLERANCE, how="full", left_prefix="order_", right_prefix="item_"
    )
    description = f"Orders joined with their items, which are at most {ITEM_TOLERANCE} before or after the order (full join)."
    return DerivedAsset(name=ORDER_WIDE, inputs=(ORDERS, ORDER_ITEMS), operator=join, description=description, group=WIDE)


def payment_wide() -> DerivedAsset:
    """Each payment joined with its order and that order's items, one row for each item; computed from `order_wide`."""
    join = IntervalJoin(on="order_id", lower=f"-{PAYMENT_LOOKBACK}", upper=0, how="left", left_prefix="payment_", right_prefix="wide_")
    description = (
        f"Payments joined with their order and its items, for payments at most {PAYMENT_LOOKBACK} after those; unmatched payments are "
        "kept (left join)."
    )
    return DerivedAsset(name=PAYMENT_WIDE, inputs=(PAYMENTS, ORDER_WIDE), operator=join, description=description, group=WIDE)


def item_sales(window: Sliding, allowed_lateness: str, early: Trigger | None = None) -> DerivedAsset:
    """Sales of each item in each window; with a trigger, open windows show early results."""
    sold = {"orders": "count(*)", "units": "sum(quantity)", "revenue": "sum(quantity * price)"}
    counted = WindowedAggregate(by=_ITEM, window=window, aggregates=sold, allowed_lateness=allowed_lateness, early=early)
    description = f"Orders, units and revenue of each item, in windows of {window.size} every {window.slide}."
    columns = {"orders": "the number of its order items", "units": "how many pieces were sold", "revenue": "the sum of quantity * price"}
    return DerivedAsset(name=ITEM_SALES, inputs=(ORDER_ITEMS,), operator=counted, description=description, columns=columns, group=WINDOWS)


def item_clicks(window: Sliding, allowed_lateness: str) -> DerivedAsset:
    """How often each item was clicked in each window."""
    totals = {"clicks": "count(*)", "seconds": "sum(seconds)"}
    aggregate = WindowedAggregate(by=_ITEM, window=window, aggregates=totals, allowed_lateness=allowed_lateness)
    description = f"Clicks on each item, in windows of {window.size} every {window.slide}."
    columns = {"clicks": "how often it was clicked", "seconds": "how long it was viewed in all"}
    return DerivedAsset(name=ITEM_CLICKS, inputs=(CLICKS,), operator=aggregate, description=description, columns=columns, group=WINDOWS)


def item_conversion(window: Sliding) -> DerivedAsset:
    """Clicks joined with sales of the same window.

    The join's tumbling windows are as long as the slide of the inputs' windows, so each contains the `result_time` of one input window.
    """
    join = WindowJoin(
        on=_ITEM, window=Tumbling(size=window.slide, offset=window.offset), how="full", left_prefix="click_", right_prefix="sale_"
    )
    description = (
        "Clicks joined with sales of the same item and window (full join). Rows without a category are unmatched: null keys match nothing."
    )
    return DerivedAsset(name=ITEM_CONVERSION, inputs=(ITEM_CLICKS, ITEM_SALES), operator=join, description=description, group=WINDOWS)


def hot_items(k: int) -> DerivedAsset:
    """The best-selling items of each window."""
    description = f"The {k} items of each window with the most units sold."
    return DerivedAsset(name=HOT_ITEMS, inputs=(ITEM_SALES,), operator=TopK(k=k, order_by=_BEST), description=description, group=WINDOWS)


def category_hot_items(k: int) -> DerivedAsset:
    """The best-selling items of each window and category."""
    description = f"The {k} items of each window and category with the most units sold."
    return DerivedAsset(
        name=CATEGORY_HOT_ITEMS,
        inputs=(ITEM_SALES,),
        operator=TopK(k=k, order_by=_BEST, by="category"),
        description=description,
        group=WINDOWS,
    )


def seller_leaderboard(n: int) -> DerivedAsset:
    """The most expensive items that each seller sold; its input is append-only."""
    top = TopN(by="seller_id", order_by="price DESC", rank_end=n)
    description = f"The {n} most expensive items that each seller sold; of items with equal prices, the one that arrived first ranks first."
    return DerivedAsset(name=SELLER_LEADERBOARD, inputs=(ORDER_ITEMS,), operator=top, description=description, group=LEADERBOARDS)


def seller_revenue() -> DerivedAsset:
    """The revenue of each seller in each category, kept current."""
    sold = {"revenue": "sum(quantity * price)", "units": "sum(quantity)", "items": "count(*)"}
    description = "Revenue, units and items of each seller in each category, of all sales so far."
    operator = Aggregate(by=("category", "seller_id"), aggregates=sold)
    columns = {"revenue": "the sum of quantity * price", "units": "how many pieces were sold", "items": "the number of order items"}
    return DerivedAsset(
        name=SELLER_REVENUE, inputs=(ORDER_ITEMS,), operator=operator, description=description, columns=columns, group=LEADERBOARDS
    )


def category_leaderboard(n: int) -> DerivedAsset:
    """The sellers with the most revenue in each category; its input is an upserted table."""
    top = TopN(by="category", order_by=("revenue DESC", "seller_id"), rank_end=n, unique_key=("category", "seller_id"), change="change")
    description = f"The {n} sellers of each category with the most revenue so far."
    return DerivedAsset(name=CATEGORY_LEADERBOARD, inputs=(SELLER_REVENUE,), operator=top, description=description, group=LEADERBOARDS)


def order_status_board(n: int) -> DerivedAsset:
    """The orders that reached each status last; an order leaves the ranking of a status when its status changes."""
    top = TopN(by="status", order_by=("update_time DESC", "order_id"), rank_end=n, unique_key="order_id", with_rank=False)
    description = f"The {n} orders that reached each status last. An order has the status of its update that arrived last."
    return DerivedAsset(name=ORDER_STATUS_BOARD, inputs=(ORDER_UPDATES,), operator=top, description=description, group=LEADERBOARDS)
