"""Great Expectations suites of the shop's data, and the factory that turns them into Dagster asset checks."""

from dataclasses import dataclass

import dagster as dg
from great_expectations import ExpectationSuite

from assets import keys
from expectations import suites
from expectations.checks import suite_checks
from expectations.leaderboards import leaderboard_checks
from operators.columns import FINAL_AT

__all__ = ["TableSuite", "all_checks", "leaderboard_checks", "shop_suites", "suite_checks"]


@dataclass(frozen=True)
class TableSuite:
    """A suite, and the table whose rows it checks.

    Args:
        key: the asset.
        table: its table, as `engine.views.table` names it.
        suite: the expectations.
        day_column: the timestamp by whose days (UTC) a run over partitions limits the rows; None to check all rows in every run.
        source: the source whose event log the table is; a run then checks the rows of new batches only.
    """

    key: dg.AssetKey
    table: str
    suite: ExpectationSuite
    day_column: str | None = None
    source: str | None = None


def shop_suites(hot_items: int, category_hot_items: int) -> list[TableSuite]:
    """The suites of the shop's datasets.

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
    upserted: dict[str, ExpectationSuite] = {
        keys.SELLER_REVENUE: suites.seller_revenue(),
        keys.ORDER_STATUS_BOARD: suites.order_status_board(),
    }
    return [
        *[TableSuite(keys.event_key(name), f"events/{name}", suite, source=name) for name, suite in logs.items()],
        *[TableSuite(dg.AssetKey(name), name, suite, FINAL_AT) for name, suite in tables.items()],
        *[TableSuite(dg.AssetKey(name), name, suite) for name, suite in upserted.items()],
    ]


def all_checks(hot_items: int, category_hot_items: int) -> list[dg.AssetChecksDefinition]:
    """The checks of the shop's datasets; the arguments are those of `shop_suites`."""
    return [
        suite_checks(s.key, s.table, s.suite, day_column=s.day_column, source=s.source) for s in shop_suites(hot_items, category_hot_items)
    ]
