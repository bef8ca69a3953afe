"""The queries of Nexmark in `examples/nexmark`: their plans, and their tables over a few rows, compared with plain Python."""

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from operators import OperatorError
from operators.sql.explain import describe_parameters
from platform_defs.declared.sql_pipeline import read_sql
from platform_defs.testing import Sandbox
from tests.support.sandbox_rows import rows_of_tables

COLUMNS = {
    "q0": ("auction", "bidder", "price", "customTime", "extra"),
    "q1": ("auction", "price", "customTime"),
    "q2": ("auction", "price"),
    "q3": ("name", "city", "state", "id"),
    "q4": ("category", "average"),
    "q5": ("auction", "num", "starttime", "endtime"),
    "q7": ("auction", "bidder", "price", "customTime", "extra"),
    "q8": ("id", "name", "starttime"),
    "q9": ("id", "seller", "bidder", "price", "bid_customTime"),
    "q10": ("auction", "dt", "hm"),
    "q11": ("bidder", "bid_count", "starttime", "endtime"),
    "q13": ("auction", "bidder", "price", "value"),
    "q14": ("price", "bidTimeType", "c_counts"),
    "q15": ("day", "total_bids", "total_bidders", "rank3_bidders", "total_auctions"),
    "q16": ("channel", "day", "minute", "rank2_auctions"),
    "q17": ("auction", "day", "total_bids", "min_price", "max_price", "avg_price", "sum_price"),
    "q18": ("auction", "bidder", "customTime"),
    "q19": ("auction", "rank_number", "price", "bidder"),
    "q20": ("auction", "bidder", "price", "seller", "bid_customTime"),
    "q21": ("channel", "channel_id"),
    "q22": ("dir1", "dir2", "dir3"),
    "q23": ("bidder", "price", "name", "own_auction"),
}
"""The columns that are compared. `q12` is left out: its windows are by the clock of the ingest."""
TEXT = Path("examples/nexmark/pipeline.sql").read_text("utf-8")
SOURCES = TEXT[: TEXT.index("-- 0, 1, 2")]
START = 1_772_409_480_000  # 2026-03-01T23:58:00Z, so that there are two days
SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
Row = dict[str, Any]


def test_each_query_is_planned():
    tables = {table.name: table for table in read_sql(TEXT).tables}
    assert {name: describe_parameters(tables[name].operator).partition("(")[0] for name in tables if re.fullmatch(r"q\d+", name)} == {
        **dict.fromkeys(["q0", "q1", "q2", "q10", "q14", "q21", "q22"], "Select"),
        **dict.fromkeys(["q3", "q5", "q7", "q8", "q20", "q23"], "IntervalJoin"),
        **dict.fromkeys(["q4", "q15", "q16", "q17"], "Aggregate"),
        **dict.fromkeys(["q11", "q12"], "WindowedAggregate"),
        **dict.fromkeys(["q9", "q19"], "TopN"),
        "q13": "AsOfJoin",
        "q18": "Deduplicate",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT p.name, a.id FROM auction a JOIN person p ON a.seller = p.id", "a join without bounds of the times is refused"),
        (
            "SELECT a.id, MAX(b.price) AS m FROM auction a, bid b "
            "WHERE a.id = b.auction AND b.customTime BETWEEN a.customTime AND a.expires GROUP BY a.id",
            "a join without an upper bound is refused",
        ),
        (
            "SELECT bidder, COUNT(*) AS n FROM bid GROUP BY bidder, SESSION(customTime, INTERVAL '10' SECOND)",
            "write FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), ...))",
        ),
        (
            "SELECT bidder, COUNT(*) AS n FROM TABLE(TUMBLE((SELECT *, PROCTIME() AS p FROM bid), DESCRIPTOR(p), INTERVAL '10' SECOND)) "
            "GROUP BY bidder, window_start, window_end",
            "write a pipeline with a source without WATERMARK",
        ),
    ],
)
def test_a_text_of_nexmark_that_needs_a_change_is_refused_with_the_way_out(text: str, message: str):
    with pytest.raises(OperatorError, match=re.escape(message)):
        read_sql(f"{SOURCES} INSERT INTO t {text}")


def _events(number: int) -> dict[str, list[Row]]:
    """Rows by source, in the order of arrival. A row arrives less than 3 s after its time."""
    rng = random.Random(7)
    rows: dict[str, list[Row]] = {"person": [], "auction": [], "bid": []}
    delayed: list[tuple[int, str, Row]] = []
    for n in range(number):
        time = START + n * 400 + rng.randrange(400)
        people, auctions = len(rows["person"]), len(rows["auction"])
        if n % 20 == 0:
            kind, row = "person", {"id": people + 1, "state": rng.choice(["OR", "ID", "CA", "WA"])}
            row |= {"name": f"name {n}", "city": f"city {n}", "emailAddress": "x", "creditCard": "y"}
        elif n % 20 < 3:
            expires = _time_text(time + rng.randrange(5, 60) * SECOND)
            kind, row = "auction", {"id": auctions + 1, "itemName": f"item {n}", "expires": expires, "category": rng.randrange(10, 13)}
            row |= {"seller": people - rng.randrange(min(3, people)), "description": "", "initialBid": 1, "reserve": 2}
        else:
            kind, row = (
                "bid",
                {
                    "auction": 123 if n % 20 == 19 else auctions - rng.randrange(min(5, auctions)),
                    "bidder": people - rng.randrange(min(4, people)),
                },
            )
            row |= {"price": 100 * int(10 ** rng.uniform(0, 5)), "channel": rng.choice(["Apple", "channel-1", "channel-2"])}
            row |= {"url": f"https://x.com/a/b/{n % 3}/item.htm?query=1" + ("&channel_id=7" if n % 2 else "")}
        row |= {"customTime": _time_text(time), "extra": rng.choice(["abc", "cc", ""])}
        rows[kind].append(row)
        delayed.append((time + rng.randrange(3000), kind, row))
    delayed.sort(key=lambda event: event[0])
    return {source: [row for _, kind, row in delayed if kind == source] for source in rows}


def _time_text(time: int) -> str:
    return datetime.fromtimestamp(time / SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _time_ms(row: Row, column: str = "customTime") -> int:
    return round(datetime.fromisoformat(f"{row[column]}+00:00").timestamp() * SECOND)


def _group_by(rows: Iterable[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[column] for column in columns)].append(row)
    return groups


def _hops(row: Row, size: int, slide: int) -> range:
    """The starts of the windows of a row."""
    time = _time_ms(row)
    return range(time - time % slide, time - size, -slide)


def _pairs_by_auction(pairs: Iterable[tuple[Row, Row]]) -> dict[int, list[tuple[Row, Row]]]:
    groups: dict[int, list[tuple[Row, Row]]] = defaultdict(list)
    for auction, bid in pairs:
        groups[auction["id"]].append((auction, bid))
    return groups


def _sessions(rows: list[Row]) -> Iterator[tuple[int, str, str]]:
    """The number of rows, the start and the end of each session."""
    times = sorted(map(_time_ms, rows))
    starts = [n for n, (before, time) in enumerate(pairwise(times), 1) if time - before > 10 * SECOND]
    for first, end in pairwise([0, *starts, len(times)]):
        yield end - first, _time_text(times[first]), _time_text(times[end - 1] + 10 * SECOND)


def _expected(people: list[Row], auctions: list[Row], bids: list[Row]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each table."""
    person, auction = {p["id"]: p for p in people}, {a["id"]: a for a in auctions}
    bids = [{**b, "day": b["customTime"][:10]} for b in bids]
    in_time = [
        (a, b)
        for b in bids
        if (a := auction.get(b["auction"])) and _time_ms(a) <= _time_ms(b) <= min(_time_ms(a, "expires"), _time_ms(a) + DAY)
    ]
    best = {item: min(pairs, key=lambda pair: (-pair[1]["price"], _time_ms(pair[1]))) for item, pairs in _pairs_by_auction(in_time).items()}
    categories = defaultdict[int, list[int]](list)
    for a, b in best.values():
        categories[a["category"]].append(b["price"])
    counts = defaultdict[int, dict[int, int]](lambda: defaultdict(int))
    for b in bids:
        for start in _hops(b, 10 * SECOND, 2 * SECOND):
            counts[start][b["auction"]] += 1
    highest = defaultdict[int, int](int)
    for b in bids:
        [start] = _hops(b, 10 * SECOND, 10 * SECOND)
        highest[start] = max(highest[start], b["price"])
    in_euros = [(b, round(b["price"] * 0.908, 3)) for b in bids]
    channels = [(b["channel"], "0" if b["channel"] == "Apple" else "7" if "channel_id" in b["url"] else None) for b in bids]
    opened = {(a["seller"], *_hops(a, 10 * SECOND, 10 * SECOND)) for a in auctions}
    return {
        "q0": [tuple(b[column] for column in COLUMNS["q0"]) for b in bids],
        "q1": [(b["auction"], price, b["customTime"]) for b, price in in_euros],
        "q2": [(b["auction"], b["price"]) for b in bids if b["auction"] % 123 == 0],
        "q3": [
            (p["name"], p["city"], p["state"], a["id"])
            for a in auctions
            if a["category"] == 10 and (p := person.get(a["seller"])) and p["state"] != "WA" and abs(_time_ms(a) - _time_ms(p)) <= HOUR
        ],
        "q4": [(category, sum(prices) // len(prices)) for category, prices in categories.items()],
        "q5": [
            (item, n, _time_text(start), _time_text(start + 10 * SECOND))
            for start, by_item in counts.items()
            for item, n in by_item.items()
            if n == max(by_item.values())
        ],
        "q7": [
            (b["auction"], b["bidder"], b["price"], b["customTime"], b["extra"])
            for b in bids
            for start, price in highest.items()
            if b["price"] == price and start <= _time_ms(b) <= start + 10 * SECOND
        ],
        "q8": [
            (p["id"], p["name"], _time_text(start))
            for p in people
            for start in _hops(p, 10 * SECOND, 10 * SECOND)
            if (p["id"], start) in opened
        ],
        "q9": [(a["id"], a["seller"], b["bidder"], b["price"], b["customTime"]) for a, b in best.values()],
        "q10": [(b["auction"], b["day"], b["customTime"][11:16]) for b in bids],
        "q11": [(bidder, *session) for (bidder,), rows in _group_by(bids, "bidder").items() for session in _sessions(rows)],
        "q13": [(b["auction"], b["bidder"], b["price"], f"value {b['auction']}") for b in bids if b["auction"] <= 9],
        "q14": [(price, "nightTime", b["extra"].count("c")) for b, price in in_euros if 1_000_000 < price < 50_000_000],
        "q15": [
            (
                day,
                len(rows),
                len(_group_by(rows, "bidder")),
                len(_group_by([b for b in rows if b["price"] >= 1_000_000], "bidder")),
                len(_group_by(rows, "auction")),
            )
            for (day,), rows in _group_by(bids, "day").items()
        ],
        "q16": [
            (
                channel,
                day,
                max(b["customTime"][11:16] for b in rows),
                len(_group_by([b for b in rows if 10_000 <= b["price"] < 1_000_000], "auction")),
            )
            for (channel, day), rows in _group_by(bids, "channel", "day").items()
        ],
        "q17": [
            (item, day, len(rows), min(p := [b["price"] for b in rows]), max(p), sum(p) // len(p), sum(p))
            for (item, day), rows in _group_by(bids, "auction", "day").items()
        ],
        "q18": [
            (item, bidder, max(enumerate(rows), key=lambda numbered: (_time_ms(numbered[1]), numbered[0]))[1]["customTime"])
            for (item, bidder), rows in _group_by(bids, "auction", "bidder").items()
        ],
        "q19": [
            (item, rank, b["price"], b["bidder"])
            for (item,), rows in _group_by(bids, "auction").items()
            for rank, b in enumerate(sorted(rows, key=lambda b: -b["price"])[:10], 1)
        ],
        "q20": [
            (b["auction"], b["bidder"], b["price"], a["seller"], b["customTime"])
            for b in bids
            if (a := auction.get(b["auction"])) and a["category"] == 10 and _time_ms(a) <= _time_ms(b) <= _time_ms(a) + DAY
        ],
        "q21": [(channel, number) for channel, number in channels if number is not None],
        "q22": [("a", "b", b["url"].split("/")[5]) for b in bids],
        "q23": [
            (b["bidder"], b["price"], p["name"], a["id"])
            for b in bids
            if (p := person.get(b["bidder"])) and abs(_time_ms(b) - _time_ms(p)) <= HOUR
            for a in auctions
            if a["seller"] == b["bidder"] and abs(_time_ms(b) - _time_ms(a)) <= HOUR
        ],
    }


@pytest.mark.spark
@pytest.mark.usefixtures("interpreted_plans")
def test_the_tables_have_the_rows_that_plain_python_computes(spark: SparkSession, tmp_path: Path):
    events = _events(400)
    sandbox = Sandbox(read_sql(TEXT), tmp_path)
    sandbox.land("side_input", "0.csv", "".join(f"{key},value {key}\n" for key in range(10)))
    sandbox.engine.ingest()
    for source, rows in events.items():
        sandbox.land(source, "1.json", "".join(f"{json.dumps(row)}\n" for row in rows))
    sandbox.engine.ingest()
    sandbox.engine.drain()
    for table in sandbox.engine.assets:
        sandbox.engine.advance(table)
    found = rows_of_tables(sandbox, COLUMNS)
    for table, expected in _expected(events["person"], events["auction"], events["bid"]).items():
        assert expected, table
        assert [tuple(map(_times_as_text, row)) for row in found[table]] == sorted(expected), table


def _times_as_text(value: Any) -> Any:
    if isinstance(value, datetime):
        return _time_text(round(value.replace(tzinfo=value.tzinfo or UTC).timestamp() * SECOND))
    return value
