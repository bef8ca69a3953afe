"""Great Expectations suites of the shop's data, and the factory that turns them into Dagster asset checks."""

import dagster as dg
from great_expectations import ExpectationSuite

from assets import keys
from expectations import suites
from expectations.checks import suite_checks
from expectations.leaderboards import leaderboard_checks
from operators.columns import FINAL_AT

__all__ = ["all_checks", "leaderboard_checks", "suite_checks"]


def all_checks(hot_items: int, category_hot_items: int) -> list[dg.AssetChecksDefinition]:
    """The checks of the shop's datasets.

    Args:
        hot_items: how many items the ranking of a window keeps.
        category_hot_items: how many items a ranking of a category keeps.
    """
    logs = {
        keys.ORDERS: suites.orders(),
        keys.PAYMENTS: suites.payments(),
        keys.ORDER_ITEMS: suites.order_items(),
        keys.CLICKS: suites.clicks(),
        keys.ORDER_UPDATES: suites.order_updates(),
    }
    tables: dict[str, ExpectationSuite] = {
        keys.PAYMENT_ORDER_WIDE: suites.payment_order_wide(),
        keys.ORDER_WIDE: suites.order_wide(),
        keys.PAYMENT_WIDE: suites.payment_wide(),
        keys.ITEM_SALES: suites.item_sales(),
        keys.ITEM_CLICKS: suites.item_clicks(),
        keys.ITEM_CONVERSION: suites.item_conversion(),
        keys.HOT_ITEMS: suites.hot_items(keys.HOT_ITEMS, hot_items),
        keys.CATEGORY_HOT_ITEMS: suites.hot_items(keys.CATEGORY_HOT_ITEMS, category_hot_items, "category"),
    }
    boards: dict[str, ExpectationSuite] = {
        keys.SELLER_REVENUE: suites.seller_revenue(),
        keys.ORDER_STATUS_BOARD: suites.order_status_board(),
    }
    return [
        *[suite_checks(keys.event_key(name), f"events/{name}", suite) for name, suite in logs.items()],
        *[suite_checks(dg.AssetKey(name), name, suite, day_column=FINAL_AT) for name, suite in tables.items()],
        *[suite_checks(dg.AssetKey(name), name, suite) for name, suite in boards.items()],
    ]
