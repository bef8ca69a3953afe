"""The payment-order join as a workload for Tidemark."""

from great_expectations.expectations.core.expect_column_values_to_be_between import ExpectColumnValuesToBeBetween
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.core.expect_compound_columns_to_be_unique import ExpectCompoundColumnsToBeUnique

from assets.contracts import BoundedOutOfOrderness, DerivedAsset, RowRule, SourceContract
from benchmarks.contenders import Job
from benchmarks.data import TABLES
from benchmarks.workload import WATERMARK_BOUND, Workload
from operators import IntervalJoin
from operators.engine_columns import ARRIVAL, EVENT_TIME, SEQ

SCHEMAS = {
    "orders": "order_id bigint, customer_id bigint, amount bigint, ts bigint",
    "payments": "payment_id bigint, order_id bigint, amount bigint, ts bigint",
}
KEYS = {"orders": "order_id", "payments": "payment_id"}
RULES = (RowRule("amount_is_positive", "amount > 0"), RowRule("order_is_named", "order_id IS NOT NULL"))


def sources(job: Job) -> list[SourceContract]:
    """The sources orders and payments. The option `repeated_keys` allows several orders with one key."""
    return [_source(name, job) for name in TABLES]


def _source(name: str, job: Job) -> SourceContract:
    repeats = name == "orders" and job.options.get("repeated_keys")
    return SourceContract(
        name=name,
        schema=SCHEMAS[name],
        event_time="timestamp_millis(ts)",
        watermark=BoundedOutOfOrderness(WATERMARK_BOUND),
        unique_key=() if repeats else (KEYS[name],),
        future_skew=None,
        rules=RULES,
    )


def asset(job: Job) -> DerivedAsset:
    """The table of payments, each joined with its order."""
    join = IntervalJoin(on="order_id", lower=0, upper=f"{job.within_ms} ms", how="inner")
    return DerivedAsset(name="payment_orders", inputs=TABLES, operator=join)


EXPECTATIONS = {
    **{
        name: (
            ExpectColumnValuesToNotBeNull(column=EVENT_TIME),
            ExpectColumnValuesToNotBeNull(column=KEYS[name]),
            ExpectColumnValuesToBeBetween(column="amount", min_value=1),
            ExpectCompoundColumnsToBeUnique(column_list=[SEQ, ARRIVAL]),
        )
        for name in TABLES
    },
    "payment_orders": (
        ExpectColumnValuesToNotBeNull(column="order_id"),
        ExpectCompoundColumnsToBeUnique(column_list=["left_seq", "left_arrival", "right_seq", "right_arrival"]),
    ),
}
"""The expectations of both event logs and of the table, by name."""

WORKLOAD = Workload(
    sources=sources,
    asset=asset,
    outcome=lambda rows: {"found": rows.count()},
    expectations=EXPECTATIONS,
)
