"""The Great Expectations suites of the shop: one for each event log and table, except the leaderboards of sellers and of categories.

An expectation's `meta["check"]` is the name of its asset check, and its `description` says why it matters. A failed expectation of
severity `critical` is an error, one of severity `warning` is a warning. A null violates only the not-null expectations.
"""

from typing import Literal

from great_expectations import ExpectationSuite
from great_expectations.expectations.core.expect_column_pair_values_a_to_be_greater_than_b import ExpectColumnPairValuesAToBeGreaterThanB
from great_expectations.expectations.core.expect_column_values_to_be_between import ExpectColumnValuesToBeBetween
from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
from great_expectations.expectations.core.expect_column_values_to_be_unique import ExpectColumnValuesToBeUnique
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.core.expect_compound_columns_to_be_unique import ExpectCompoundColumnsToBeUnique
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.row_conditions import Column

from assets.contracts import EVENT_TIME_RAW
from assets.shop import names
from operators.columns import FINAL_AT, RESULT_TIME, WINDOW_END, WINDOW_START
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ
from operators.top_k import RANK

STATUSES = ("created", "approved", "invoiced", "processing", "shipped", "delivered", "canceled", "unavailable")
METHODS = ("card", "credit_card", "debit_card", "boleto", "voucher", "transfer", "not_defined")
IgnoreRow = Literal["never", "any_value_is_missing"]
CRITICAL, WARNING = "critical", "warning"


def shop_suites(hot_items: int, category_hot_items: int) -> dict[str, ExpectationSuite]:
    """The suites, by the name of a source or table.

    Args:
        hot_items: how many items the ranking of a window keeps.
        category_hot_items: how many items a ranking of a category keeps.
    """
    return {
        names.ORDERS: orders(),
        names.PAYMENTS: payments(),
        names.ORDER_ITEMS: order_items(),
        names.CLICKS: clicks(),
        names.ORDER_UPDATES: order_updates(),
        names.PAYMENT_ORDER_WIDE: payment_order_wide(),
        names.ORDER_WIDE: order_wide(),
        names.PAYMENT_WIDE: payment_wide(),
        names.ITEM_SALES: item_sales(),
        names.ITEM_CLICKS: item_clicks(),
        names.ITEM_CONVERSION: item_conversion(),
        names.HOT_ITEMS: hot_items_of(names.HOT_ITEMS, hot_items),
        names.CATEGORY_HOT_ITEMS: hot_items_of(names.CATEGORY_HOT_ITEMS, category_hot_items, "category"),
        names.SELLER_REVENUE: seller_revenue(),
        names.ORDER_STATUS_BOARD: order_status_board(),
    }


def orders() -> ExpectationSuite:
    """The log of orders."""
    checks = [
        _not_null("order_id", "An order without its id can never be paid."),
        _not_null("customer_id", "An order belongs to a customer.", WARNING),
        _in_set("status", STATUSES),
        _not_negative("amount"),
    ]
    return ExpectationSuite(name="orders", expectations=[*checks, *_log()])


def payments() -> ExpectationSuite:
    """The log of payments."""
    checks = [
        _not_null("payment_id", "The id distinguishes the payment from other payments of the order."),
        _not_null("order_id", "A payment that names no order matches nothing."),
        _not_null("amount", "A payment has an amount.", WARNING),
        _in_set("method", METHODS),
        _not_negative("amount"),
    ]
    return ExpectationSuite(name="payments", expectations=[*checks, *_log()])


def payment_order_wide() -> ExpectationSuite:
    """Each payment joined with its order; one side may be missing, never both."""
    return ExpectationSuite(
        name="payment_order_wide",
        expectations=[
            _not_null("order_id", "Every row has the join key, from either side."),
            *_results(),
            _in_order("payment_not_before_order", "payment_event_time", "order_event_time", "A payment follows its order."),
            ExpectColumnValuesToNotBeNull(
                column="payment_seq",
                row_condition=Column("order_seq").is_null(),
                **_meta("row_has_a_side", "A row must contain an order or a payment."),
            ),
            _unique(
                "pair_unique",
                *("order_seq", "order_arrival", "payment_seq", "payment_arrival"),
                reason="A pair of an order and a payment occurs once, and so does an unmatched row.",
            ),
            _in_set("status", STATUSES),
            _in_set("method", METHODS),
            _not_negative("order_amount"),
            _not_negative("payment_amount"),
            _in_order("payment_not_above_order", "order_amount", "payment_amount", "A payment is at most the order's amount.", WARNING),
        ],
    )


def order_items() -> ExpectationSuite:
    """The log of orders' items."""
    checks = [
        _not_null("order_item_id", "The id distinguishes the item from other items of the order."),
        _not_null("order_id", "An item belongs to an order."),
        _not_null("item_id", "Sales are counted by item."),
        _not_null("category", "Without a category the item is missing in rankings by category.", WARNING),
        _not_negative("price"),
        ExpectColumnValuesToBeBetween(column="quantity", min_value=1, **_meta("quantity_positive", "An order item has at least one unit.")),
    ]
    return ExpectationSuite(name="order_items", expectations=[*checks, *_log()])


def clicks() -> ExpectationSuite:
    """The log of clicks."""
    checks = [
        _not_null("click_id", "The id distinguishes the click from other clicks."),
        _not_null("item_id", "Clicks are counted by item."),
        _not_negative("seconds", "A duration is not negative."),
    ]
    return ExpectationSuite(name="clicks", expectations=[*checks, *_log()])


def order_updates() -> ExpectationSuite:
    """The log of order updates."""
    checks = [
        _not_null("order_update_id", "The id distinguishes the update from other updates of the order."),
        _not_null("order_id", "An update belongs to an order."),
        _not_null("status", "Orders are ranked by status."),
        _in_set("status", STATUSES),
    ]
    return ExpectationSuite(name="order_updates", expectations=[*checks, *_log()])


def order_wide() -> ExpectationSuite:
    """Each order joined with each of its items; one side may be missing, never both."""
    checks = [
        _not_null("order_id", "Every row has the join key, from either side."),
        ExpectColumnValuesToNotBeNull(
            column="item_seq",
            row_condition=Column("order_seq").is_null(),
            **_meta("row_has_a_side", "A row must contain an order or an item."),
        ),
        _unique(
            "pair_unique", "order_seq", "order_arrival", "item_seq", "item_arrival", reason="A pair of an order and an item occurs once."
        ),
        _not_negative("price"),
    ]
    return ExpectationSuite(name="order_wide", expectations=[*checks, *_results()])


def payment_wide() -> ExpectationSuite:
    """Each payment joined with its order and that order's items."""
    checks = [
        _not_null("payment_id", "Every row contains a payment."),
        _unique(
            "pair_unique",
            *("payment_id", "order_seq", "order_arrival", "item_seq", "item_arrival"),
            reason="A payment is joined once with each row of its order.",
        ),
        _in_order("payment_not_before_order", "payment_event_time", "wide_event_time", "A payment follows its order and its items."),
        _not_negative("payment_amount"),
    ]
    return ExpectationSuite(name="payment_wide", expectations=[*checks, *_results()])


def item_sales() -> ExpectationSuite:
    """Sales of each item in each window."""
    checks = [
        _at_least("orders", 1, "A window without sales has no row."),
        _at_least("units", 1, "An order item has at least one unit."),
        _not_negative("revenue"),
    ]
    return ExpectationSuite(name="item_sales", expectations=[*checks, *_by_window("item_id", "category")])


def item_clicks() -> ExpectationSuite:
    """How often each item was clicked in each window."""
    checks = [
        _at_least("clicks", 1, "A window without a click has no row."),
        _not_negative("seconds", "A duration is not negative."),
    ]
    return ExpectationSuite(name="item_clicks", expectations=[*checks, *_by_window("item_id", "category")])


def item_conversion() -> ExpectationSuite:
    """Clicks joined with sales."""
    checks = [
        _not_null("item_id", "Every row has the join key, from either side."),
        _unique(
            *("one_row_a_window", "item_id", "category", WINDOW_START, WINDOW_END),
            reason="An item's clicks and sales are joined once for each window. A null category matches nothing, so such rows are ignored.",
            ignore_row_if="any_value_is_missing",
        ),
    ]
    return ExpectationSuite(name="item_conversion", expectations=[*checks, *_results(or_equal=True)])


def hot_items_of(name: str, k: int, *group: str) -> ExpectationSuite:
    """A ranking of each window, or of each window and group."""
    in_range = _meta("rank_in_range", f"A ranking has at most {k} ranks.")
    ranks = ExpectColumnValuesToBeBetween(column=RANK, min_value=1, max_value=k, **in_range)
    one_item = _unique(
        "one_item_a_rank", WINDOW_START, WINDOW_END, *group, RANK, reason="The order is total, so no two items share a rank."
    )
    return ExpectationSuite(name=name, expectations=[ranks, one_item, *_by_window("item_id", "category")])


def seller_revenue() -> ExpectationSuite:
    """The revenue of each seller in each category."""
    checks = [
        _unique("one_row_a_key", "category", "seller_id", reason="The table is upserted by key, so a key has one row."),
        _not_negative("revenue"),
        _at_least("items", 1, "A seller without sales has no row."),
    ]
    return ExpectationSuite(name="seller_revenue", expectations=checks)


def order_status_board() -> ExpectationSuite:
    """The orders of each status."""
    checks = [
        ExpectColumnValuesToBeUnique(column="order_id", **_meta("one_row_an_order", "An order is in one status at a time.")),
        _not_null("status", "Orders are ranked by status."),
    ]
    return ExpectationSuite(name="order_status_board", expectations=checks)


def _by_window(*key: str) -> list[Expectation]:
    """What holds for all results of windows: one row for each key and window."""
    return [
        _unique(
            "one_row_a_window", *key, WINDOW_START, WINDOW_END, reason="A correction replaces a result; a second copy would count twice."
        ),
        _in_order("window_not_empty", WINDOW_END, WINDOW_START, "A window ends after it starts.", or_equal=False),
        *_results(or_equal=True),
    ]


def _results(*, or_equal: bool = False) -> list[Expectation]:
    """What holds for every table of final results."""
    return [
        _not_null(RESULT_TIME, "It is the event time for readers of the table."),
        _not_null(FINAL_AT, "It decides the daily partition of the row."),
        _in_order("final_after_result", FINAL_AT, RESULT_TIME, "A result is final only once its own time has passed.", or_equal=or_equal),
    ]


def _unique(check: str, *columns: str, reason: str, ignore_row_if: IgnoreRow = "never") -> Expectation:
    return ExpectCompoundColumnsToBeUnique(column_list=list(columns), ignore_row_if=ignore_row_if, **_meta(check, reason))


def _at_least(column: str, least: int, reason: str) -> Expectation:
    return ExpectColumnValuesToBeBetween(column=column, min_value=least, **_meta(f"{column}_at_least_{least}", reason))


def _log() -> list[Expectation]:
    """What holds for every event log."""
    return [
        _not_null(SEQ, "The ledger batch of the row, by which the row is accounted for."),
        _not_null(ARRIVAL, "The row's position in its ledger batch."),
        _not_null(EVENT_TIME, "A row without an event time is in no closed range, and would never be read."),
        ExpectCompoundColumnsToBeUnique(
            column_list=[SEQ, ARRIVAL],
            ignore_row_if="any_value_is_missing",
            **_meta("row_identity_unique", "Ledger batch and arrival identify a row."),
        ),
        _in_order("event_time_floored", EVENT_TIME_RAW, EVENT_TIME, "The event time is the raw one floored to 1 ms, never later."),
    ]


def _not_null(column: str, reason: str, severity: str = CRITICAL) -> Expectation:
    return ExpectColumnValuesToNotBeNull(column=column, **_meta(f"{column}_not_null", reason, severity))


def _in_set(column: str, values: tuple[str, ...]) -> Expectation:
    meta = _meta(f"{column}_known", "Reports do not know a new value yet; the row itself is valid.", WARNING)
    return ExpectColumnValuesToBeInSet(column=column, value_set=list(values), **meta)


def _not_negative(column: str, reason: str = "An amount is not negative.") -> Expectation:
    return ExpectColumnValuesToBeBetween(column=column, min_value=0, **_meta(f"{column}_not_negative", reason))


def _in_order(check: str, high: str, low: str, reason: str, severity: str = CRITICAL, *, or_equal: bool = True) -> Expectation:
    """`high >= low`, or `high > low`, for rows in which neither is null."""
    meta = _meta(check, reason, severity)
    return ExpectColumnPairValuesAToBeGreaterThanB(
        column_A=high, column_B=low, or_equal=or_equal, ignore_row_if="either_value_is_missing", **meta
    )


def _meta(check: str, reason: str, severity: str = CRITICAL) -> dict:
    return {"meta": {"check": check}, "description": reason, "severity": severity}
