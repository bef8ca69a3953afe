"""Great Expectations suites of the shop's data, and the factory that makes them Dagster asset checks."""

import dagster as dg

from assets.keys import ORDERS, PAYMENT_ORDER_WIDE, PAYMENTS, event_key
from expectations import suites
from expectations.checks import suite_checks
from operators.columns import FINAL_AT

__all__ = ["all_checks", "suite_checks"]


def all_checks() -> list[dg.AssetChecksDefinition]:
    """The checks of the shop's datasets."""
    return [
        suite_checks(event_key(ORDERS), f"events/{ORDERS}", suites.orders()),
        suite_checks(event_key(PAYMENTS), f"events/{PAYMENTS}", suites.payments()),
        suite_checks(dg.AssetKey(PAYMENT_ORDER_WIDE), PAYMENT_ORDER_WIDE, suites.payment_order_wide(), day_column=FINAL_AT),
    ]
