"""Times of the steps of a run, for the report and the plots."""

from collections.abc import Sequence
from statistics import median

from benchmarks.plan import WARM_STEPS, tail_steps
from benchmarks.results import Record, successful

SECONDS = ("outcome", "seconds")
PARTS = {"ingest": "ingest", "advance": "advance", "law": "conservation check"}
"""The timed parts of a step: their names in the recorded results, and in the report."""


class Point:
    """A point of the latency-throughput curve: medians of the steps, without the first steps (warm-up) and the last (no newer rows)."""

    def __init__(self, record: Record) -> None:
        cell, laps = record["cell"], record["outcome"]["steps"]
        self.rows = round(2 * (cell["rows"] - cell["first"]) / (cell["batches"] - 1))
        laps = laps[1 + WARM_STEPS : len(laps) - tail_steps(self.rows)]
        self.parts_s = [median(lap.get(part, 0.0) for lap in laps) for part in PARTS]
        self.step_s = median(sum(lap.values()) for lap in laps)


def curve(records: Sequence[Record]) -> list[Point]:
    """The points of the latency-throughput curve, by rows per step."""
    return sorted((Point(r) for r in successful(records, "batch")), key=lambda point: point.rows)


def step_seconds(record: Record) -> list[float]:
    """Seconds of each step, without the first micro-batch."""
    return [sum(lap.values()) for lap in record["outcome"]["steps"][1:]]
