"""The shop's derived tables: pure recipes, composed of operators."""

from assets.contracts import DerivedAsset
from assets.keys import ORDERS, PAYMENT_ORDER_WIDE, PAYMENTS
from operators.interval_join import How, IntervalJoin


def payment_order_wide(*, within: str, how: How) -> DerivedAsset:
    """Each payment beside its order, where it came at most `within` after it; with `full`, the unmatched of both sides too."""
    join = IntervalJoin(on="order_id", lower=0, upper=within, how=how, left_prefix="order_", right_prefix="payment_")
    return DerivedAsset(name=PAYMENT_ORDER_WIDE, inputs=(ORDERS, PAYMENTS), operator=join)
