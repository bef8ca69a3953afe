"""The shop: the example pipeline, which runs if no other is configured."""

from dataclasses import replace

from assets.contracts import DerivedAsset, SourceContract
from assets.pipeline import Pipeline, Suites
from assets.shop import sources, tables
from operators.triggers import read_trigger
from operators.windows import Sliding
from platform_defs.settings import Settings

FIRST_DAY = "2016-01-01"
OWNERS, TAGS = ("team:shop",), {"domain": "shop"}


def shop(values: Settings) -> Pipeline:
    """The shop's pipeline, with the settings filled in."""

    def suites() -> Suites:
        from expectations.shop import shop_suites

        return shop_suites(values.hot_items, values.category_hot_items)

    return Pipeline(
        sources=[replace(source, owners=OWNERS, tags=TAGS) for source in _sources(values)],
        tables=[replace(table, owners=OWNERS, tags=TAGS) for table in _tables(values)],
        suites=suites,
        completeness=values.completeness,
        freshness=values.freshness,
        first_day=FIRST_DAY,
    )


def _sources(values: Settings) -> list[SourceContract]:
    policy: sources.Policy = {
        "out_of_orderness": values.out_of_orderness,
        "idle_timeout": values.idle_timeout,
        "duplicate_horizon": values.duplicate_horizon,
        "future_skew": values.future_skew,
    }
    return [
        sources.orders(policy),
        sources.payments(policy),
        sources.order_items(policy),
        sources.clicks(policy),
        sources.order_updates(policy),
    ]


def _tables(values: Settings) -> list[DerivedAsset]:
    window = Sliding(size=values.sales_window, slide=values.sales_slide)
    return [
        tables.payment_order_wide(within=values.payment_within, how=values.join_how),
        tables.order_wide(),
        tables.payment_wide(),
        tables.item_sales(window, values.allowed_lateness, read_trigger(values.early_results)),
        tables.item_clicks(window, values.allowed_lateness),
        tables.item_conversion(window),
        tables.hot_items(values.hot_items),
        tables.category_hot_items(values.category_hot_items),
        tables.seller_leaderboard(values.leaderboard),
        tables.seller_revenue(),
        tables.category_leaderboard(values.leaderboard),
        tables.order_status_board(values.leaderboard),
    ]
