"""The two lakes that commit bd14abf wrote (2026-11-22), before there was a release.

There `tests.support.small_sources` was called `shopkeeping`, and the parameter `monotonic` was called `improving`.
"""

from typing import Any

from assets.contracts import DerivedAsset
from operators import (
    Aggregate,
    CoGroup,
    Consecutive,
    CountEvictor,
    Cumulative,
    Deduplicate,
    EveryInterval,
    EveryRows,
    EveryStep,
    Session,
    Sliding,
    TimeEvictor,
    TopK,
    TopN,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)
from tests.lakes.archive import Archive
from tests.support.small_sources import DAY, HOUR, MINUTE, Event, join, source

_SOURCES = [source("l", unique_key=("k", "v")), source("r")]
_COUNT: dict[str, Any] = {"by": "k", "aggregates": {"n": "count(*)"}}
_LENIENT: dict[str, Any] = {**_COUNT, "allowed_lateness": "2 minutes"}

BD14ABF = Archive(
    sources=_SOURCES,
    tables=[
        join(),
        DerivedAsset(
            name="counts", inputs=("l",), operator=WindowedAggregate(window=Sliding(size="2 minutes", slide="1 minute"), **_LENIENT)
        ),
        DerivedAsset(name="top", inputs=("counts",), operator=TopK(k=1, order_by=("n DESC", "k"))),
        DerivedAsset(name="visits", inputs=("l",), operator=WindowedAggregate(window=Session(gap="30 seconds"), **_LENIENT)),
        DerivedAsset(name="firsts", inputs=("r",), operator=Deduplicate(by="k", keep="first", window=Tumbling(size=5 * MINUTE))),
        DerivedAsset(name="beside", inputs=("l", "r"), operator=WindowJoin(on="k", window=Tumbling(size="1 hour"), how="full")),
        DerivedAsset(name="sums", inputs=("l",), operator=Aggregate(by="k", aggregates={"n": "count(*)", "total": "sum(v)"})),
        DerivedAsset(name="best", inputs=("sums",), operator=TopN(order_by="n DESC", rank_end=1, change="how", unique_key="k")),
    ],
    batches=[
        {
            "l": [Event("a", 1, 0), Event("b", 2, 3 * MINUTE), Event(None, 3, 3 * MINUTE)],
            "r": [Event("a", 1, MINUTE), Event("b", 1, 3 * MINUTE)],
        },
        {
            "l": [Event("b", 4, 2 * MINUTE - 1), Event("b", 5, 2 * MINUTE - 2), Event("a", 6, 20 * MINUTE)],
            "r": [Event("a", 2, 20 * MINUTE)],
        },
        {"l": [Event("a", 7, 1), Event("b", 2, 3 * MINUTE), Event("c", 8, DAY)], "r": [Event("c", 9, DAY)]},
    ],
    later={"l": [Event("c", 10, DAY - 2 * MINUTE), Event("d", 11, 2 * DAY)], "r": [Event("d", 12, 2 * DAY)]},
)

_GROUP = "array(named_struct('lefts', transform(left, l -> l.v), 'rights', transform(right, r -> r.v)))"
_FIRST_OF_TWO_MINUTES = Consecutive(
    of=WindowedAggregate(window=Tumbling(size="2 minutes"), **_LENIENT), then=TopK(k=1, order_by=("n DESC", "k"))
)
BD14ABF_MORE = Archive(
    sources=_SOURCES,
    tables=[
        DerivedAsset(
            name="together",
            inputs=("l", "r"),
            operator=CoGroup(on="k", window=Session(gap="30 seconds"), rows=_GROUP, allowed_lateness="2 minutes"),
        ),
        DerivedAsset(name="leaders", inputs=("l",), operator=_FIRST_OF_TWO_MINUTES),
        DerivedAsset(
            name="growing",
            inputs=("l",),
            operator=WindowedAggregate(window=Cumulative(size="10 minutes", step="2 minutes"), early=EveryStep(), **_LENIENT),
            shape=lambda rows: rows.withColumn("twice", rows["n"] * 2),
        ),
        DerivedAsset(
            name="ended",
            inputs=("l",),
            operator=WindowedAggregate(
                by="k",
                window=Tumbling(size="2 minutes"),
                aggregates={"v": "max(v)"},
                evictor=CountEvictor(1),
                early=EveryInterval("1 minute"),
                allowed_lateness="2 minutes",
            ),
        ),
        DerivedAsset(
            name="recent",
            inputs=("l",),
            operator=WindowedAggregate(
                window=Sliding(size="4 minutes", slide="2 minutes"), evictor=TimeEvictor("1 minute"), early=EveryStep(), **_COUNT
            ),
        ),
        DerivedAsset(
            name="paired", inputs=("r",), operator=WindowedAggregate(window=Tumbling(size="5 minutes"), early=EveryRows(2), **_COUNT)
        ),
        DerivedAsset(name="firsts", inputs=("l",), operator=Deduplicate(by="k")),
        DerivedAsset(name="lasts", inputs=("l",), operator=Deduplicate(by="k", keep="last", order="arrival")),
        DerivedAsset(name="spread", inputs=("l",), operator=Aggregate(by="k", aggregates={"spread": "max(v) - min(v)"})),
        DerivedAsset(name="rising", inputs=("l",), operator=TopN(by="k", order_by="v DESC", unique_key="k", rank_end=1, monotonic=True)),
        DerivedAsset(
            name="living",
            inputs=("l",),
            operator=TopN(by="k", order_by="v DESC", rank_end=2, ttl="15 minutes", after_ttl="retract"),
        ),
    ],
    batches=[
        {
            "l": [Event("a", 1, 0), Event("a", 2, MINUTE // 2), Event("b", 3, MINUTE), Event("b", 4, 3 * MINUTE), Event(None, 5, 0)],
            "r": [Event("a", 1, 10_000), Event("b", 2, 2 * MINUTE), Event(None, 3, MINUTE)],
        },
        {
            "l": [Event("b", 6, MINUTE + 50_000), Event("a", 7, 4 * MINUTE), Event("a", 7, 4 * MINUTE)],
            "r": [Event("a", 4, 4 * MINUTE + 10_000), Event("a", 5, 5 * MINUTE)],
        },
        {
            "l": [Event("b", 8, MINUTE // 2), Event("a", 9, 10 * MINUTE), Event("c", 10, 11 * MINUTE)],
            "r": [Event("a", 6, 9 * MINUTE), Event("b", 7, 10 * MINUTE), Event("b", 8, 10 * MINUTE + 5_000)],
        },
    ],
    later={
        "l": [
            Event("a", 11, 9 * MINUTE + 30_000),
            Event("c", 12, 11 * MINUTE + 30_000),
            Event("a", 13, MINUTE),
            Event("d", 14, 21 * MINUTE),
            Event("d", 15, 21 * MINUTE + 20_000),
        ],
        "r": [Event("a", 9, 9 * MINUTE + 40_000), Event("b", 10, 2 * MINUTE), Event("d", 11, 20 * MINUTE), Event("d", 12, HOUR // 3 + 1)],
    },
)
