"""A pipeline of taxi rides and their fares: replace it by your own.

`tidemark` and Dagster find it by `TIDEMARK_PIPELINE`, see `.env`.
"""

from typing import TYPE_CHECKING

from assets.contracts import BoundedOutOfOrderness, DerivedAsset, RowRule, SourceContract
from assets.pipeline import Pipeline
from operators import IntervalJoin, TopK, Tumbling, WindowedAggregate

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite

rides = SourceContract(
    name="rides",  # files of this source land in landing/rides
    schema="ride_id STRING NOT NULL, zone STRING COMMENT 'where the ride began', started_at TIMESTAMP",
    event_time="started_at",
    watermark=BoundedOutOfOrderness("10 minutes"),  # a row may be this far behind the newest one without being late
    unique_key=("ride_id",),
)
fares = SourceContract(
    name="fares",
    schema="ride_id STRING NOT NULL, amount DECIMAL(8,2), paid_at TIMESTAMP",
    event_time="paid_at",
    watermark=BoundedOutOfOrderness("10 minutes"),
    rules=(RowRule("amount_not_negative", "amount >= 0"),),  # other rows are quarantined
)

ride_fares = DerivedAsset(
    name="ride_fares",
    inputs=("rides", "fares"),
    operator=IntervalJoin(on="ride_id", lower=0, upper="2 hours", how="full"),
    description="Each ride with the fare that was paid at most two hours after its start; unmatched rides and fares are kept.",
)
rides_per_hour = DerivedAsset(
    name="rides_per_hour",
    inputs=("rides",),
    operator=WindowedAggregate(by="zone", window=Tumbling(size="1 hour"), aggregates={"rides": "count(*)"}),
    description="The number of rides that began in each zone, by hour.",
)
busy_zones = DerivedAsset(
    name="busy_zones",
    inputs=("rides_per_hour",),
    operator=TopK(k=3, order_by="rides DESC"),
    description="The three zones of each hour in which most rides began.",
)


def suites() -> "dict[str, ExpectationSuite]":
    """The expectations for the rows of sources and tables, by name. Great Expectations is imported here, as only checks need it."""
    from great_expectations import ExpectationSuite
    from great_expectations.expectations import ExpectColumnValuesToBeBetween

    plausible = ExpectColumnValuesToBeBetween(
        column="amount",
        max_value=500,
        severity="warning",
        meta={"check": "amount_is_plausible"},
        description="A fare above 500 is probably a mistake.",
    )
    return {"fares": ExpectationSuite(name="fares", expectations=[plausible])}


pipeline = Pipeline(sources=[rides, fares], tables=[ride_fares, rides_per_hour, busy_zones], suites=suites)
