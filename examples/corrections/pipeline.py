"""A pipeline of tables that are corrected by late rows, or that keep a bounded state.

It has a custom trigger, a custom evictor and a custom watermark generator. The rows are rides of rented bicycles. `README.md` says when you
need each table, and `tests/examples/test_corrections.py` runs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from assets.contracts import Alignment, BatchStatistics, DerivedAsset, Generated, Shape, SourceContract
from assets.pipeline import Pipeline
from operators import (
    Aggregate,
    AsOfJoin,
    CoGroup,
    CountEvictor,
    EveryRows,
    EveryStep,
    IntervalJoin,
    Session,
    TopK,
    TopN,
    TriggerContext,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)

HOUR, DAY = Tumbling(size="1 hour"), Tumbling(size="1 day")
MINUTE_MS = 60_000


@dataclass(frozen=True)
class WithoutOutliers:
    """A custom watermark generator: five minutes behind the newest row, which counts as at most 90 minutes after the mean.

    One bicycle whose clock is ahead would otherwise make the rows of all others late.
    """

    def on_batch(self, batch: BatchStatistics) -> int:
        newest = min(batch.last_event_time, int(batch.mean_event_time) + 90 * MINUTE_MS)
        return newest - 5 * MINUTE_MS


@dataclass(frozen=True)
class LastQuarter:
    """A custom trigger: shows an hour's result when the watermark reaches its last 15 minutes, and whenever rows are added after that."""

    def fires(self, now: TriggerContext, before: TriggerContext) -> Column | bool:
        if now.watermark is None:
            return False
        is_near_end = F.unix_millis("window_end") - F.lit(now.watermark) <= F.lit(15 * MINUTE_MS)
        return is_near_end & (now.rows > before.rows)


@dataclass(frozen=True)
class WithoutLongest:
    """A custom evictor: leaves out the longest ride of each window; of several longest ones, that with the lowest `return_id`."""

    def keep(self, rows: DataFrame, group: Sequence[str], time: str) -> DataFrame:
        order = Window.partitionBy(*group).orderBy(F.desc("km"), "return_id")
        return rows.withColumn("rank_by_km", F.row_number().over(order)).where("rank_by_km > 1").drop("rank_by_km")


_ALIGNED = {"alignment": Alignment("fleet", "2 hours"), "idle_timeout": "10 minutes", "watermark": Generated(WithoutOutliers())}
"""Neither source is read more than two hours ahead of the other. After an outage, joins thus keep few rows of the source that is ahead."""

rides = SourceContract(
    name="rides",
    schema="ride_id STRING NOT NULL, bike STRING, zone STRING, started_at TIMESTAMP",
    event_time="started_at",
    unique_key=("ride_id",),
    **_ALIGNED,
)
returns = SourceContract(
    name="returns",
    schema="return_id STRING NOT NULL, ride_id STRING, bike STRING, km INT, odometer INT, returned_at TIMESTAMP",
    event_time="returned_at",
    unique_key=("return_id",),
    **_ALIGNED,
)
prices = SourceContract(
    name="prices",
    schema="zone STRING NOT NULL, price DECIMAL(6,2), since TIMESTAMP",
    event_time="since",
    idle_timeout="1 minute",
)
alarms = SourceContract(
    name="alarms",
    schema="bike STRING NOT NULL, alarm STRING",
    event_time="ingested_at",  # the locks have no clock
    retention="7 days",  # its table needs a row for an hour
)

_MOVES = "array(named_struct('starts', size(left), 'ends', size(right)))"

TABLES = [
    DerivedAsset(
        name="returned_rides",
        inputs=("rides", "returns"),
        operator=IntervalJoin(
            on="ride_id", lower=0, upper="1 hour", how="left", right_prefix="return_", allowed_lateness="12 hours", early=EveryStep()
        ),
        description="Rides with their return. A return that is delivered late corrects the ride that had none.",
    ),
    DerivedAsset(
        name="ride_prices",
        inputs=("rides", "prices"),
        operator=AsOfJoin(on="zone", how="left", allowed_lateness="12 hours"),
        description="Rides with the price of their zone when they began. A price that is entered later corrects them.",
    ),
    DerivedAsset(
        name="quoted_prices",
        inputs=("rides", "prices"),
        operator=AsOfJoin(on="zone", how="left", as_of="arrival"),
        description="Rides with the price that was known when they arrived: what riders were quoted.",
    ),
    DerivedAsset(
        name="rides_by_zone",
        inputs=("rides",),
        operator=WindowedAggregate(
            by=("zone", "bike"),
            window=HOUR,
            aggregates={"rides": "count(*)"},
            grouping_sets=[["zone"], ["bike"], []],
            allowed_lateness="12 hours",
        ),
        description="Rides of each hour by zone, by bicycle, and in all.",
    ),
    DerivedAsset(
        name="busy_zones",
        inputs=("rides",),
        operator=WindowedAggregate(by="zone", window=HOUR, aggregates={"rides": "count(*)"}, allowed_lateness="12 hours"),
        shape=Shape(where="rides > 1", select="*, rides * 3 AS staff_minutes"),
        description="The zones with more than one ride in an hour. A late ride can add a zone.",
    ),
    DerivedAsset(
        name="hours_so_far",
        inputs=("rides",),
        operator=WindowedAggregate(window=HOUR, aggregates={"rides": "count(*)"}, early=LastQuarter()),
        description="Rides of each hour; while it is open, in its last quarter only.",
    ),
    DerivedAsset(
        name="every_two_returns",
        inputs=("returns",),
        operator=WindowedAggregate(window=DAY, aggregates={"km": "sum(km)"}, purging=EveryRows(2)),
        description="The kilometres of every two returns of a day, and of the rest at its end.",
    ),
    DerivedAsset(
        name="usual_km",
        inputs=("returns",),
        operator=WindowedAggregate(window=DAY, aggregates={"km": "sum(km)", "rides": "count(*)"}, evictor=WithoutLongest()),
        description="The kilometres of a day without its longest ride.",
    ),
    DerivedAsset(
        name="newest_moves",
        inputs=("rides", "returns"),
        operator=WindowJoin(on="bike", window=DAY, how="full", evictor=CountEvictor(2)),
        description="The last two events of each bicycle and day: joined if they are a start and a return.",
    ),
    DerivedAsset(
        name="newest_counts",
        inputs=("rides", "returns"),
        operator=CoGroup(on="bike", window=DAY, rows=_MOVES, evictor=CountEvictor(3)),
        description="Starts and returns among the last three events of each bicycle and day.",
    ),
    DerivedAsset(
        name="best_of_tour",
        inputs=("returns",),
        operator=TopK(k=1, by="bike", order_by=["km DESC", "return_id"], window=Session(gap="2 hours", longest="1 day")),
        description="The longest ride of each tour: rides of a bicycle with at most two hours between their returns.",
    ),
    DerivedAsset(
        name="most_used",
        inputs=("returns",),
        operator=TopN(order_by="odometer DESC", rank_end=2, unique_key="bike", monotonic=True),
        description="The bicycles with the highest odometers, which only rise.",
    ),
    DerivedAsset(
        name="km_of_tour",
        inputs=("returns",),
        operator=Aggregate(by="bike", aggregates={"km": "sum(km)", "rides": "count(*)"}, ttl="2 hours"),
        description="The kilometres of each bicycle since it last stood still for more than two hours.",
    ),
    DerivedAsset(
        name="alarms_of_hour",
        inputs=("alarms",),
        operator=WindowedAggregate(by="alarm", window=HOUR, aggregates={"bikes": "count(DISTINCT bike)"}),
        description="The bicycles with an alarm in each hour of the clock. The hour ends also if no alarm comes any more.",
    ),
]

pipeline = Pipeline(sources=[rides, returns, prices, alarms], tables=TABLES)
