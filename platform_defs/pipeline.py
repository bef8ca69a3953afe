"""The shop's pipeline: its sources and derived assets, with the settings filled in."""

from assets import plans, schemas
from assets.contracts import DerivedAsset, SourceContract
from operators.triggers import read_trigger
from operators.windows import Sliding
from platform_defs.settings import Settings


def shop(values: Settings) -> tuple[list[SourceContract], list[DerivedAsset]]:
    """The sources and the derived assets, each derived asset after its inputs."""
    policy: schemas.Policy = {
        "out_of_orderness": values.out_of_orderness,
        "idle_timeout": values.idle_timeout,
        "duplicate_horizon": values.duplicate_horizon,
        "future_skew": values.future_skew,
    }
    window = Sliding(size=values.sales_window, slide=values.sales_slide)
    sources = [
        schemas.orders(policy),
        schemas.payments(policy),
        schemas.order_items(policy),
        schemas.clicks(policy),
        schemas.order_updates(policy),
    ]
    derived = [
        plans.payment_order_wide(within=values.payment_within, how=values.join_how),
        plans.order_wide(),
        plans.payment_wide(),
        plans.item_sales(window, values.allowed_lateness, read_trigger(values.early_results)),
        plans.item_clicks(window, values.allowed_lateness),
        plans.item_conversion(window),
        plans.hot_items(values.hot_items),
        plans.category_hot_items(values.category_hot_items),
        plans.seller_leaderboard(values.leaderboard),
        plans.seller_revenue(),
        plans.category_leaderboard(values.leaderboard),
        plans.order_status_board(values.leaderboard),
    ]
    return sources, derived
