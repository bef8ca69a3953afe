"""The daily partitions of a pipeline's tables: the first and the last one."""

from collections.abc import Callable
from datetime import date

import dagster as dg

from assets.contract_checks import ContractError
from assets.days import day_end, day_of
from assets.factories.partitions import daily
from assets.pipeline import EARLIEST_DAY, Pipeline
from operators.errors import TidemarkError
from platform_defs.connections.lake import lake_of
from platform_defs.engine.engine import wall_clock
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.settings import Settings


def daily_partitions(values: Settings, pipeline: Pipeline) -> dg.DailyPartitionsDefinition:
    """The daily partitions.

    Raises:
        ContractError: the last day is before the first one.
    """
    first, last = first_day(values, pipeline), values.last_day or pipeline.last_day
    if last is not None and last < first:
        raise ContractError.bad_value("last_day", last, f"the first daily partition, {first}, or a later day")
    return daily(first, pipeline.ahead_ms, None if last is None else last_partition(last, pipeline))


def last_partition(last_day: str, pipeline: Pipeline) -> date:
    """The last daily partition if the events end on a given day: the last day on which a result of an event of that day can become final.

    The end is not taken from the data: a sensor knows only the partitions that existed when the code location was loaded, so it would
    request no run for newer rows that arrive later.

    Args:
        last_day: the last day of the events, ISO.
        pipeline: the pipeline.
    """
    # `final_at` is 1 ms after the last event time that a matching row can have
    return day_of(day_end(date.fromisoformat(last_day)) + pipeline.final_after_ms + 1)


def first_day(values: Settings, pipeline: Pipeline, now: Callable[[], int] = wall_clock) -> str:
    """The first daily partition, ISO: the day of the setting, else of the pipeline, else January 1 of the year of the lake's oldest event.

    Without an event it is January 1 of this year, or of the year of the last day if that is earlier. A run computes the first partition
    again when it starts, and must not get a later day than the code location did when it was loaded. The first event may arrive in
    between, with a later day; its year is the same, except over New Year.

    Args:
        values: the settings.
        pipeline: the pipeline.
        now: the wall clock, in epoch ms.
    """
    configured_day = values.first_day or pipeline.first_day
    if configured_day is not None:
        return configured_day
    today, last = now(), values.last_day or pipeline.last_day
    oldest = _oldest_event(values, pipeline, today)
    year = day_of(today if oldest is None else min(oldest, today)).year
    year = year if last is None else min(year, date.fromisoformat(last).year)
    return str(max(date(year, 1, 1), EARLIEST_DAY))


def _oldest_event(values: Settings, pipeline: Pipeline, now: int) -> int | None:
    """The oldest event time in the lake in epoch ms; None if there is none, or if the lake cannot be read: runs report that error."""
    try:
        ledger = Ledger(lake_of(values), lambda: now)
        oldest_by_source = [ledger.source(source.name).oldest for source in pipeline.sources]
    except (TidemarkError, OSError):
        return None
    return min((time for time in oldest_by_source if time is not None), default=None)
