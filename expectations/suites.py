"""What the shop expects of its data: one Great Expectations suite a dataset.

An expectation's `meta["check"]` names its asset check, its `description` says why it matters, and its severity is how
it fails: `critical` is an error, `warning` is shown and stops nothing. Nulls keep every rule but the not-null ones.
"""

import great_expectations as gx
from great_expectations.expectations.core.expect_column_pair_values_a_to_be_greater_than_b import ExpectColumnPairValuesAToBeGreaterThanB
from great_expectations.expectations.core.expect_column_values_to_be_between import ExpectColumnValuesToBeBetween
from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.core.expect_compound_columns_to_be_unique import ExpectCompoundColumnsToBeUnique
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.row_conditions import Column

from assets.contracts import EVENT_TIME_RAW
from operators.columns import FINAL_AT, RESULT_TIME
from operators.contract import ARRIVAL, EVENT_TIME, SEQ

STATUSES = ("created", "approved", "invoiced", "processing", "shipped", "delivered", "canceled", "unavailable")
METHODS = ("card", "credit_card", "debit_card", "boleto", "voucher", "transfer", "not_defined")
CRITICAL, WARNING = "critical", "warning"


def orders() -> gx.ExpectationSuite:
    """The log of orders."""
    own = [
        _not_null("order_id", "An order without its id can never be paid."),
        _not_null("customer_id", "An order is somebody's.", WARNING),
        _known("status", STATUSES),
        _not_negative("amount"),
    ]
    return gx.ExpectationSuite(name="orders", expectations=[*own, *_log()])


def payments() -> gx.ExpectationSuite:
    """The log of payments."""
    own = [
        _not_null("payment_id", "The payment's own id tells it from the order's other payments."),
        _not_null("order_id", "A payment that names no order matches nothing."),
        _not_null("amount", "A payment is of an amount.", WARNING),
        _known("method", METHODS),
        _not_negative("amount"),
    ]
    return gx.ExpectationSuite(name="payments", expectations=[*own, *_log()])


def payment_order_wide() -> gx.ExpectationSuite:
    """Each payment beside its order; one side may be missing, never both."""
    return gx.ExpectationSuite(
        name="payment_order_wide",
        expectations=[
            _not_null("order_id", "Both sides hold the key, so a result does."),
            _not_null(RESULT_TIME, "Readers of the table take it as the event time."),
            _not_null(FINAL_AT, "Without it the row belongs to no day."),
            _ordered("final_after_result", FINAL_AT, RESULT_TIME, "A result is final only once its own time has passed.", or_equal=False),
            _ordered("payment_not_before_order", "payment_event_time", "order_event_time", "A payment follows its order."),
            ExpectColumnValuesToNotBeNull(
                column="payment_seq",
                row_condition=Column("order_seq").is_null(),
                **_told("row_has_a_side", "A row with neither order nor payment was made of nothing."),
            ),
            ExpectCompoundColumnsToBeUnique(
                column_list=["order_seq", "order_arrival", "payment_seq", "payment_arrival"],
                ignore_row_if="never",
                **_told("pair_unique", "An order and a payment meet once; an unmatched row comes out once."),
            ),
            _known("status", STATUSES),
            _known("method", METHODS),
            _not_negative("order_amount"),
            _not_negative("payment_amount"),
            _ordered("payment_not_above_order", "order_amount", "payment_amount", "Nobody pays more than the order's amount.", WARNING),
        ],
    )


def _log() -> list[Expectation]:
    """What every event log keeps."""
    return [
        _not_null(SEQ, "The ledger entry that brought the row; without it nothing accounts for the row."),
        _not_null(ARRIVAL, "The row's place in its ledger entry."),
        _not_null(EVENT_TIME, "A row without a time is in no range, and would never be read."),
        ExpectCompoundColumnsToBeUnique(
            column_list=[SEQ, ARRIVAL],
            ignore_row_if="any_value_is_missing",
            **_told("row_identity_unique", "Ledger entry and arrival name a row for good."),
        ),
        _ordered("event_time_floored", EVENT_TIME_RAW, EVENT_TIME, "The event time is the raw one floored to 1 ms, never later."),
    ]


def _not_null(column: str, why: str, severity: str = CRITICAL) -> Expectation:
    return ExpectColumnValuesToNotBeNull(column=column, **_told(f"{column}_not_null", why, severity))


def _known(column: str, values: tuple[str, ...]) -> Expectation:
    told = _told(f"{column}_known", "A new value is news for the reports, no fault of the row.", WARNING)
    return ExpectColumnValuesToBeInSet(column=column, value_set=list(values), **told)


def _not_negative(column: str) -> Expectation:
    return ExpectColumnValuesToBeBetween(column=column, min_value=0, **_told(f"{column}_not_negative", "Money flows one way here."))


def _ordered(check: str, high: str, low: str, why: str, severity: str = CRITICAL, *, or_equal: bool = True) -> Expectation:
    """`high >= low`, or `high > low`, where both are there."""
    told = _told(check, why, severity)
    return ExpectColumnPairValuesAToBeGreaterThanB(
        column_A=high, column_B=low, or_equal=or_equal, ignore_row_if="either_value_is_missing", **told
    )


def _told(check: str, why: str, severity: str = CRITICAL) -> dict:
    return {"meta": {"check": check}, "description": why, "severity": severity}
