"""Tests of the pipeline: land a few rows, compute the tables, and compare the results. Run them with `pytest`."""

from pathlib import Path

from pipeline import pipeline

from platform_defs.testing import Sandbox

RIDES = """ride_id,zone,started_at
a,north,2026-03-01T10:05:00Z
b,north,2026-03-01T10:20:00Z
c,south,2026-03-01T10:40:00Z
"""
FARES = """ride_id,amount,paid_at
a,12.50,2026-03-01T10:30:00Z
c,-1.00,2026-03-01T11:00:00Z
"""


def test_rides_are_joined_and_counted(tmp_path: Path) -> None:
    sandbox = Sandbox(pipeline, tmp_path)
    sandbox.land("rides", "1.csv", RIDES)
    sandbox.land("fares", "1.csv", FARES)
    sandbox.run()
    assert sandbox.rows("ride_fares", "ride_id", "zone", "amount") == [("a", "north", 12.5), ("b", "north", None), ("c", "south", None)]
    assert sandbox.rows("busy_zones", "rank", "zone", "rides") == [(1, "north", 2), (2, "south", 1)]
    assert sandbox.rows("quarantine/fares", "reason") == [("rule: amount_not_negative",)]
