"""The lake that commit bd14abf wrote (2026-11-22), before there was a release.

There `tests.support.small_sources` was called `shopkeeping`.
"""

from typing import Any

from assets.contracts import DerivedAsset
from operators import (
    Aggregate,
    Deduplicate,
    Session,
    Sliding,
    TopK,
    TopN,
    Tumbling,
    WindowedAggregate,
    WindowJoin,
)
from tests.lakes.archive import Archive
from tests.support.small_sources import DAY, MINUTE, Event, join, source

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
