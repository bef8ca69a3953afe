"""Hot items: the number of bids per auction and sliding window, and the ten auctions with the most bids in each window."""

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.contracts import BoundedOutOfOrderness, DerivedAsset, RowRule, SourceContract
from benchmarks.contenders import SLIDE_MS, TOP, WINDOW_MS, Job
from benchmarks.data import START
from benchmarks.workload import WATERMARK_BOUND, Workload
from operators import Consecutive, Sliding, TopK, WindowedAggregate

SCHEMA = "auction bigint, bidder bigint, price bigint, channel string, ts bigint"


def slide_ms(job: Job) -> int:
    """The time from the start of one window to the start of the next."""
    return int(job.options.get("slide_ms", SLIDE_MS))


def sources(job: Job) -> list[SourceContract]:
    """The source of bids. It has no unique key, so no bid is a duplicate."""
    rules = RowRule("price_is_positive", "price > 0"), RowRule("auction_is_named", "auction IS NOT NULL")
    bids = SourceContract(
        name="bids",
        schema=SCHEMA,
        event_time="timestamp_millis(ts)",
        watermark=BoundedOutOfOrderness(WATERMARK_BOUND),
        future_skew=None,
        rules=rules,
    )
    return [bids]


def asset(job: Job) -> DerivedAsset:
    """The table of ranks; the counts are not stored."""
    window = Sliding(size=WINDOW_MS, slide=slide_ms(job))
    counts = WindowedAggregate(by="auction", window=window, aggregates={"bids": "count(*)"})
    ranked = Consecutive(of=counts, then=TopK(k=TOP, order_by=["bids DESC", "auction"]))
    return DerivedAsset(name="hot_items", inputs=("bids",), operator=ranked)


def outcome(rows: DataFrame) -> dict[str, Any]:
    """The number of ranks, and a checksum of all of them."""
    end = F.unix_millis("window_end")
    [(count, checksum)] = rows.agg(F.count("*"), checksum_of(end, F.col("rank"), F.col("auction"), F.col("bids"))).collect()
    return {"found": count, "checksum": checksum}


def checksum_of(end_ms: Column, rank: Column, auction: Column, bids: Column) -> Column:
    """The checksum of ranks; the formula of `benchmarks.data.checksum`, as an aggregate of Spark."""
    return F.sum((rank * 1_009 + F.floor((end_ms - START) / 1_000)) * (auction * 7 + bids)).cast("bigint")


WORKLOAD = Workload(sources=sources, asset=asset, outcome=outcome)
