"""The daily partitions of derived assets: one for each day of `final_at`, UTC."""

from collections.abc import Mapping
from datetime import date, timedelta

import dagster as dg

from operators.timing import DAY_MS

PARTITION = "dagster/partition"
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
"""The tags with which Dagster records the partitions of a run."""
_MOST_DAYS_AHEAD = 200 * 366
"""The largest number of partitions after the present day."""
Days = tuple[date, date]
"""The first and the last day of a run over partitions."""


def daily(first_day: str, ahead_ms: int, last_day: date | None = None) -> dg.DailyPartitionsDefinition:
    """The days from `first_day` to today, and as far ahead as a result can become final (up to 200 years), but none after `last_day`.

    Args:
        first_day: the first day, ISO.
        ahead_ms: how far a result's `final_at` may be ahead of the wall clock: the future skew and the lookback.
        last_day: the last partition; None for no end.
    """
    end = None if last_day is None or last_day == date.max else str(last_day + timedelta(days=1))
    days_ahead = min(-(-ahead_ms // DAY_MS), _MOST_DAYS_AHEAD)
    return dg.DailyPartitionsDefinition(start_date=first_day, end_date=end, end_offset=1 + days_ahead)


def range_of(days: dg.DailyPartitionsDefinition) -> Days | None:
    """The first and the last day that is a partition now; None if there is none yet."""
    first, last = days.get_first_partition_key(), days.get_last_partition_key()
    return (date.fromisoformat(first), date.fromisoformat(last)) if first and last else None


def partitioned_range(days: dg.DailyPartitionsDefinition, first: date, last: date) -> Days | None:
    """The part of a range of days that has partitions.

    A run of the first partition also finalizes earlier days, so an earlier range gives the first partition. A later range gives None.
    """
    partition_range = range_of(days)
    if partition_range is None or first > partition_range[1]:
        return None
    return max(first, partition_range[0]), max(min(last, partition_range[1]), partition_range[0])


def range_tags(first: object, last: object) -> dict[str, str]:
    """The tags of a run over a range of daily partitions."""
    return {RANGE_START: str(first), RANGE_END: str(last)}


def days_in_tags(tags: Mapping[str, str]) -> Days | None:
    """The first and last day of a run over daily partitions; None for a run that has none."""
    first, last = tags.get(RANGE_START, tags.get(PARTITION)), tags.get(RANGE_END, tags.get(PARTITION))
    return None if first is None or last is None else (date.fromisoformat(first), date.fromisoformat(last))


def days_of_run(context: dg.AssetExecutionContext) -> Days:
    """The first and last day of a run."""
    window = context.partition_key_range
    return date.fromisoformat(window.start), date.fromisoformat(window.end)
