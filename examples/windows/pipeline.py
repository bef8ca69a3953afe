"""A pipeline with one table for each operator, kind of join and trigger that the shop's pipeline does not use.

It has a shop's clicks, orders and payments of one morning. `README.md` says what each table shows, and
`tests/examples/test_windows.py` runs the pipeline.
"""

from assets.contracts import BoundedOutOfOrderness, DerivedAsset, SourceContract
from assets.pipeline import Pipeline
from operators import (
    Aggregate,
    AsOfJoin,
    CoGroup,
    Consecutive,
    CountEvictor,
    CountWindowAggregate,
    Cumulative,
    Deduplicate,
    DeltaEvictor,
    EveryInterval,
    EveryRows,
    IntervalJoin,
    ProcessCountWindow,
    ProcessWindow,
    Session,
    TimeEvictor,
    TopK,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)

VISIT = Session(gap="10 minutes", longest="4 hours")
DAY_BY_HOUR = Cumulative(size="1 day", step="1 hour")
SIMILAR = DeltaEvictor("abs(row.amount - last.amount)", 20)
HALF_HOUR, HOUR, DAY = Tumbling(size="30 minutes"), Tumbling(size="1 hour"), Tumbling(size="1 day")
SUMS = {"orders": "count(*)", "amount": "sum(amount)"}
_WATERMARK = BoundedOutOfOrderness("5 minutes")

clicks = SourceContract(
    name="clicks",
    schema="click_id STRING NOT NULL, user STRING, page STRING, clicked_at TIMESTAMP",
    event_time="clicked_at",
    watermark=_WATERMARK,
    unique_key=("click_id",),
)
orders = SourceContract(
    name="orders",
    schema="order_id STRING NOT NULL, user STRING, amount DECIMAL(8,2), ordered_at TIMESTAMP",
    event_time="ordered_at",
    watermark=_WATERMARK,
    unique_key=("order_id",),
)
payments = SourceContract(
    name="payments",
    schema="payment_id STRING NOT NULL, order_id STRING, paid DECIMAL(8,2), paid_at TIMESTAMP",
    event_time="paid_at",
    watermark=_WATERMARK,
    unique_key=("payment_id",),
)
tiers = SourceContract(
    name="tiers",
    schema="user STRING NOT NULL, tier STRING, since TIMESTAMP",
    event_time="since",
    watermark=_WATERMARK,
    idle_timeout="1 minute",
)

_SINCE_LAST = "timestampdiff(SECOND, get(elements, i - 1).clicked_at, e.clicked_at)"
PAGES_OF_VISIT = f"transform(elements, (e, i) -> named_struct('position', i + 1, 'page', e.page, 'seconds', {_SINCE_LAST}))"
"""One row for each click of a visit: its position, its page, and the time since the click before."""
TIMES_BETWEEN = """
    transform(sequence(1, size(elements) - 1), i -> named_struct(
        'page', elements[i].page, 'seconds', timestampdiff(SECOND, elements[i - 1].clicked_at, elements[i].clicked_at)
    ))
"""
"""For each click of a window by count but the first: its page, and the time since the click before."""
_AMOUNT = "aggregate(right.amount, CAST(0 AS DECIMAL(18,2)), (a, b) -> CAST(a + b AS DECIMAL(18,2)))"
CONVERSION = f"array(named_struct('clicks', size(left), 'orders', size(right), 'amount', {_AMOUNT}))"

TABLES = [
    DerivedAsset(
        name="visits",
        inputs=("clicks",),
        operator=WindowedAggregate(by="user", window=VISIT, aggregates={"clicks": "count(*)"}),
        description="The visits of each user: clicks with at most ten minutes between them.",
    ),
    DerivedAsset(
        name="entry_pages",
        inputs=("clicks",),
        operator=Deduplicate(by="user", keep="first", window=VISIT),
        description="The first click of each visit.",
    ),
    DerivedAsset(
        name="pages_of_visit",
        inputs=("clicks",),
        operator=ProcessWindow(by="user", window=VISIT, rows=PAGES_OF_VISIT),
        description="Every click of a visit, with its position and the seconds since the click before.",
    ),
    DerivedAsset(
        name="last_clicks",
        inputs=("clicks",),
        operator=Deduplicate(by="user", keep="last"),
        description="The newest click of each user, updated at once.",
    ),
    DerivedAsset(
        name="orders_today",
        inputs=("orders",),
        operator=WindowedAggregate(window=DAY_BY_HOUR, aggregates=SUMS, early=EveryRows(2)),
        description="Orders since midnight, at the end of every hour with an order in it or before it.",
    ),
    DerivedAsset(
        name="new_orders",
        inputs=("orders",),
        operator=WindowedAggregate(window=DAY, aggregates=SUMS, purging=EveryInterval("30 minutes")),
        description="The orders of a day that were added in each half hour.",
    ),
    DerivedAsset(
        name="orders_so_far",
        inputs=("new_orders",),
        operator=Aggregate(by="window_start", aggregates={"orders": "sum(orders)", "amount": "sum(amount)"}),
        description="The sum of `new_orders`: the orders of each day so far.",
    ),
    DerivedAsset(
        name="best_pages",
        inputs=("clicks",),
        operator=Consecutive(
            of=WindowedAggregate(by="page", window=HALF_HOUR, aggregates={"clicks": "count(*)"}),
            then=TopK(k=1, order_by=["clicks DESC", "page"]),
        ),
        description="The page with the most clicks in each half hour, without a table of all pages.",
    ),
    DerivedAsset(
        name="conversion",
        inputs=("clicks", "orders"),
        operator=CoGroup(on="user", window=HOUR, rows=CONVERSION),
        description="Clicks and orders of each user and hour.",
    ),
    DerivedAsset(
        name="paid_orders",
        inputs=("orders", "payments"),
        operator=WindowJoin(on="order_id", window=Tumbling(size="20 seconds"), how="left"),
        description="Orders with their payments in the same 20 seconds.",
    ),
    DerivedAsset(
        name="recent_amounts",
        inputs=("orders",),
        operator=WindowedAggregate(window=HOUR, aggregates={"amount": "sum(amount)"}, evictor=CountEvictor(2)),
        description="The amount of the last two orders of each hour.",
    ),
    DerivedAsset(
        name="last_minutes",
        inputs=("orders",),
        operator=WindowedAggregate(window=HOUR, aggregates={"orders": "count(*)"}, evictor=TimeEvictor("10 minutes")),
        description="The orders in the last ten minutes before each hour's last order.",
    ),
    DerivedAsset(
        name="usual_amounts",
        inputs=("orders",),
        operator=WindowedAggregate(window=HOUR, aggregates={"orders": "count(*)", "amount": "sum(amount)"}, evictor=SIMILAR),
        description="The orders of each hour whose amount differs by less than 20 from that of the last.",
    ),
    DerivedAsset(
        name="every_third_click",
        inputs=("clicks",),
        operator=CountWindowAggregate(by="user", size=3, aggregates={"pages": "count(DISTINCT page)"}),
        description="The number of different pages in every three clicks of a user, in the order of arrival.",
    ),
    DerivedAsset(
        name="times_between_clicks",
        inputs=("clicks",),
        operator=ProcessCountWindow(by="user", size=3, slide=2, rows=TIMES_BETWEEN),
        description="The seconds between the clicks of a user, added with every second click.",
    ),
    DerivedAsset(
        name="ways_to_the_shoes",
        inputs=("clicks",),
        operator=CountWindowAggregate(
            by="user", ends_with="page = 'shoes'", aggregates={"clicks": "count(*)"}, evictor=TimeEvictor("10 minutes")
        ),
        description="The clicks of a user in the ten minutes before each look at the shoes, since the look before.",
    ),
    DerivedAsset(
        name="order_tiers",
        inputs=("orders", "tiers"),
        operator=AsOfJoin(on="user", how="left"),
        description="Each order with the tier that its user had at that time.",
    ),
    DerivedAsset(
        name="settled_orders",
        inputs=("orders", "payments"),
        operator=IntervalJoin(on="order_id", lower=0, upper="10 minutes", how="semi", late_rows="join"),
        description="The orders with a payment within ten minutes, however late the payment is delivered.",
    ),
    DerivedAsset(
        name="unpaid_orders",
        inputs=("orders", "payments"),
        operator=IntervalJoin(on="order_id", lower=0, upper="10 minutes", how="anti"),
        description="The orders without a payment within ten minutes.",
    ),
    DerivedAsset(
        name="orders_of_hour",
        inputs=("orders",),
        operator=WindowedAggregate(window=HOUR, aggregates=SUMS, early=EveryInterval("1 minute", by="processing")),
        description="The orders of each hour, shown every minute of the clock while the hour is open.",
    ),
]
pipeline = Pipeline(sources=[clicks, orders, payments, tiers], tables=TABLES)
