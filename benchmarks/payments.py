"""The payment-order join as a workload for Tidemark."""

from assets.contracts import BoundedOutOfOrderness, DerivedAsset, RowRule, SourceContract
from benchmarks.contenders import Job
from benchmarks.data import TABLES
from benchmarks.workload import WATERMARK_BOUND, Workload
from operators import IntervalJoin

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


WORKLOAD = Workload(
    sources=sources,
    asset=asset,
    outcome=lambda rows: {"found": rows.count()},
)
