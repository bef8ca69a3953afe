"""Finds the daily partitions whose results steps of a table have changed."""

from collections.abc import Iterable
from datetime import date

import dagster as dg

from assets.days import day_of, days_from
from assets.factories.partitions import partitioned_range
from platform_defs.engine.advance.advance import Step

MOST_DAYS = 400
"""The most partitions that are reported at once: a first step over decades would fill Dagster's event store."""


def changed_days(steps: Iterable[Step], days: dg.DailyPartitionsDefinition, oldest: int | None) -> list[date]:
    """The partitions in which results have become final or were corrected, in order; of more than `MOST_DAYS`, the newest.

    Args:
        steps: the steps.
        days: the table's partitions.
        oldest: the oldest event time of the table's sources (epoch ms), from which the first step's range starts; None if there is none.
    """
    days_changed = set[date]()
    for step in steps:
        for first, last in _ranges(step, oldest):
            partition_range = partitioned_range(days, day_of(first), day_of(last)) if first <= last else None
            days_changed |= {*days_from(*partition_range)} if partition_range and partition_range[0] <= partition_range[1] else set()
    return sorted(days_changed)[-MOST_DAYS:]


def _ranges(step: Step, oldest: int | None) -> Iterable[tuple[int, int]]:
    """The ranges of `final_at` that a step has closed or corrected, both ends included, in epoch ms."""
    before, after = step.before.closed_to, step.after.closed_to
    if after is not None and after != before:
        start = before + 1 if before is not None else after if oldest is None else min(oldest, after)
        yield start, after
    for number, first, last in step.after.corrected:
        if number > step.before.step:
            yield first, last
