"""The pipeline of `examples/corrections` over two batches, of which the second has late rows: what each table contains."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from assets.pipeline import Pipeline
from examples.corrections.pipeline import pipeline, returns, rides
from platform_defs.engine.ingest.alignment import SourceAhead
from platform_defs.testing import Sandbox
from tests.support.clock import Clock
from tests.support.sandbox_rows import rows_of_tables
from tests.support.small_sources import HOUR, MINUTE

RIDES = """ride_id,bike,zone,started_at
1,a,north,2026-03-01T09:00:00Z
2,b,north,2026-03-01T09:10:00Z
3,a,south,2026-03-01T09:50:00Z
4,c,south,2026-03-01T11:05:00Z
6,b,north,2026-03-01T13:40:00Z
"""
RETURNS = """return_id,ride_id,bike,km,odometer,returned_at
r1,1,a,7,107,2026-03-01T09:40:00Z
r3,3,a,2,109,2026-03-01T10:20:00Z
r4,4,c,4,61,2026-03-01T11:30:00Z
"""
PRICES = """zone,price,since
north,1.00,2026-03-01T08:00:00Z
south,2.00,2026-03-01T08:00:00Z
"""
LATE_RIDE = """ride_id,bike,zone,started_at
5,d,south,2026-03-01T09:20:00Z
"""
LATE_RETURN = """return_id,ride_id,bike,km,odometer,returned_at
r2,2,b,9,57,2026-03-01T10:05:00Z
r6,6,b,3,60,2026-03-01T14:10:00Z
"""
LATE_PRICE = """zone,price,since
south,2.50,2026-03-01T09:30:00Z
"""
ALARMS = "bike,alarm\na,tilted\nb,tilted\nb,tilted\nb,open\n"
Expected = dict[tuple[str, ...], list[tuple[Any, ...]]]
PRICE_COLUMNS = ("ride_id", "price", "since")
# The watermark of rides is 11:58. It is five minutes behind 12:03, which is 90 minutes after the mean of all rides: 13:40 is an outlier.
# The watermark of returns is 11:25, and so is that of joins.
FIRST: Expected = {
    ("returned_rides", "ride_id", "return_id"): [("1", "r1"), ("2", None), ("3", "r3")],
    ("ride_prices", *PRICE_COLUMNS): [("1", 1, "08:00"), ("2", 1, "08:00"), ("3", 2, "08:00"), ("4", 2, "08:00")],
    ("quoted_prices", *PRICE_COLUMNS): [("1", 1, "08:00"), ("2", 1, "08:00"), ("3", 2, "08:00"), ("4", 2, "08:00")],
    ("rides_by_zone", "window_start", "zone", "bike", "rides"): [
        ("09:00", "north", None, 2),
        ("09:00", "south", None, 1),
        ("09:00", None, "a", 2),
        ("09:00", None, "b", 1),
        ("09:00", None, None, 3),
    ],
    ("busy_zones", "window_start", "zone", "rides", "staff_minutes"): [("09:00", "north", 2, 6)],
    ("hours_so_far", "window_start", "rides"): [("09:00", 3)],
    ("every_two_returns", "firing", "final_at", "km"): [(1, "10:20", 9)],
    ("most_used", "rank", "bike", "odometer"): [(1, "a", 109), (2, "c", 61)],
    ("km_of_tour", "bike", "km", "rides"): [("a", 9, 2), ("c", 4, 1)],
}
FIRST_EARLY: Expected = {
    ("returned_rides", "ride_id", "return_id"): [("4", "r4")],
    ("hours_so_far", "window_start", "rides"): [("11:00", 1)],
}
LAST: Expected = {
    ("returned_rides", "ride_id", "return_id"): [("1", "r1"), ("2", "r2"), ("3", "r3"), ("4", "r4"), ("5", None), ("6", "r6")],
    ("ride_prices", *PRICE_COLUMNS): [
        ("1", 1, "08:00"),
        ("2", 1, "08:00"),
        ("3", 2.5, "09:30"),
        ("4", 2.5, "09:30"),
        ("5", 2, "08:00"),
        ("6", 1, "08:00"),
    ],
    ("quoted_prices", *PRICE_COLUMNS): [
        ("1", 1, "08:00"),
        ("2", 1, "08:00"),
        ("3", 2, "08:00"),
        ("4", 2, "08:00"),
        ("6", 1, "08:00"),
    ],
    ("rides_by_zone", "window_start", "zone", "bike", "rides"): [
        ("09:00", "north", None, 2),
        ("09:00", "south", None, 2),
        ("09:00", None, "a", 2),
        ("09:00", None, "b", 1),
        ("09:00", None, "d", 1),
        ("09:00", None, None, 4),
        ("11:00", "south", None, 1),
        ("11:00", None, "c", 1),
        ("11:00", None, None, 1),
        ("13:00", "north", None, 1),
        ("13:00", None, "b", 1),
        ("13:00", None, None, 1),
    ],
    ("busy_zones", "window_start", "zone", "rides", "staff_minutes"): [("09:00", "north", 2, 6), ("09:00", "south", 2, 6)],
    ("hours_so_far", "window_start", "rides"): [("09:00", 3), ("11:00", 1), ("13:00", 1)],
    ("every_two_returns", "firing", "final_at", "km"): [(1, "10:20", 9), (2, "11:30", 13), (3, "23:59", 3)],
    ("usual_km", "km", "rides"): [(16, 4)],
    ("newest_moves", "bike", "left_ride_id", "return_id"): [("a", "3", "r3"), ("b", "6", "r6"), ("c", "4", "r4"), ("d", "5", None)],
    ("newest_counts", "bike", "starts", "ends"): [("a", 1, 2), ("b", 1, 2), ("c", 1, 1), ("d", 1, 0)],
    ("best_of_tour", "bike", "window_start", "return_id", "km"): [
        ("a", "09:40", "r1", 7),
        ("b", "10:05", "r2", 9),
        ("b", "14:10", "r6", 3),
        ("c", "11:30", "r4", 4),
    ],
    ("most_used", "rank", "bike", "odometer"): [(1, "a", 109), (2, "c", 61)],
    ("km_of_tour", "bike", "km", "rides"): [("a", 9, 2), ("b", 3, 1), ("c", 4, 1)],
    ("alarms_of_hour", "window_start", "alarm", "bikes"): [("12:00", "open", 1), ("12:00", "tilted", 2)],
}


def _time(value: Any) -> Any:
    return value.strftime("%H:%M") if isinstance(value, datetime) else value


def _found(sandbox: Sandbox, expected: Expected) -> Expected:
    found = rows_of_tables(sandbox, {table: columns for table, *columns in expected})
    return {(table, *columns): [tuple(map(_time, row)) for row in found[table]] for table, *columns in expected}


@pytest.mark.usefixtures("interpreted_plans")
def test_late_rows_correct_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    sandbox, clock = Sandbox(pipeline, tmp_path), Clock()
    sandbox.engine = replace(sandbox.engine, clock=clock)
    for source, text in (("rides", RIDES), ("returns", RETURNS), ("prices", PRICES), ("alarms", ALARMS)):
        sandbox.land(source, "1.csv", text)
    sandbox.engine.ingest()
    clock.pass_ms(2 * MINUTE)  # prices are idle then: they change rarely, and must not hold back the rides
    sandbox.engine.ingest()
    for table in dict.fromkeys(table for table, *_ in FIRST):  # without accounts: those of the second run are of all days
        sandbox.engine.advance(table)
    first = FIRST | {("early/" + table, *columns): rows for (table, *columns), rows in FIRST_EARLY.items()}
    assert _found(sandbox, first) == first
    for source, text in (("rides", LATE_RIDE), ("returns", LATE_RETURN), ("prices", LATE_PRICE)):
        sandbox.land(source, "2.csv", text)
    clock.pass_ms(HOUR)
    sandbox.run()
    assert _found(sandbox, LAST) == LAST


def test_a_source_that_is_ahead_waits(spark: SparkSession, tmp_path: Path) -> None:
    sandbox = Sandbox(Pipeline(sources=[rides, returns]), tmp_path)
    sandbox.land("rides", "1.csv", "ride_id,bike,zone,started_at\n1,a,north,2026-03-01T09:00:00Z\n")
    sandbox.land("returns", "1.csv", RETURNS.replace("2026-03-01", "2026-02-28"))
    sandbox.engine.ingest()
    sandbox.land("rides", "2.csv", RIDES)
    assert sandbox.engine.ingestion.ahead == {"rides": SourceAhead("returns", (21 * 60 + 30) * MINUTE)}
    assert sandbox.engine.ingest() == [], "the second file of rides is not read"
