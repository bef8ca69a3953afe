"""The shop's pipeline: its sources and derived assets, with the settings filled in."""

from assets.contracts import DerivedAsset, SourceContract
from assets.plans import payment_order_wide
from assets.schemas import orders, payments
from platform_defs.settings import Settings


def shop(values: Settings) -> tuple[list[SourceContract], list[DerivedAsset]]:
    """The sources and the derived assets."""
    policy = {
        "out_of_orderness": values.out_of_orderness,
        "idle_timeout": values.idle_timeout,
        "duplicate_horizon": values.duplicate_horizon,
        "future_skew": values.future_skew,
    }
    return [orders(**policy), payments(**policy)], [payment_order_wide(within=values.payment_within, how=values.join_how)]
