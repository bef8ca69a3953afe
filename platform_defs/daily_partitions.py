"""The daily partitions of a pipeline's tables: the first and the last one."""

from collections.abc import Callable
from datetime import date

import dagster as dg

from assets.contract_checks import ContractError
from assets.days import day_end, day_of
from assets.factories.partitions import daily
from assets.pipeline import EARLIEST_DAY, Pipeline
from operators.errors import TidemarkError
from platform_defs.configured_lake import lake_of
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
    """The last daily partition of data that end with a day: the last day on which a result of an event of that day can become final.

    The end is not taken from the data. A sensor knows the partitions as of the load of the code location, so it would request no run for
    rows that arrive after the load and are newer.

    Args:
        last_day: the last day of the events, ISO.
        pipeline: the pipeline.
    """
    return day_of(day_end(date.fromisoformat(last_day)) + pipeline.final_after_ms + 1)  # `final_at` is 1 ms after the end of the bound


def first_day(values: Settings, pipeline: Pipeline, now: Callable[[], int] = wall_clock) -> str:
    """The first daily partition, ISO: that of the setting, else that of the pipeline, else the first day of a year.

    It is the year of the oldest event in the lake, or this year while there is none, but never a later year than that of the last day. A
    run determines it again when it starts, so it must not become later between the load of the code location and the run: the oldest
    event's own day could.

    Args:
        values: the settings.
        pipeline: the pipeline.
        now: the wall clock, in epoch ms.
    """
    given = values.first_day or pipeline.first_day
    if given is not None:
        return given
    today, last = now(), values.last_day or pipeline.last_day
    oldest = _oldest_event(values, pipeline, today)
    year = day_of(today if oldest is None else min(oldest, today)).year
    year = year if last is None else min(year, date.fromisoformat(last).year)
    return str(max(date(year, 1, 1), EARLIEST_DAY))


def _oldest_event(values: Settings, pipeline: Pipeline, now: int) -> int | None:
    """The oldest event time in the lake in epoch ms; None if there is none, or if the lake cannot be read: runs report that error."""
    try:
        ledger = Ledger(lake_of(values), lambda: now)
        found = [ledger.source(source.name).oldest for source in pipeline.sources]
    except (TidemarkError, OSError):
        return None
    return min((t for t in found if t is not None), default=None)
