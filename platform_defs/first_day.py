"""The first daily partition of a pipeline's tables."""

from collections.abc import Callable
from datetime import date

from assets.days import day_of
from assets.pipeline import EARLIEST_DAY, Pipeline
from operators.errors import TidemarkError
from operators.timing import length_ms
from platform_defs.engine.engine import wall_clock
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.settings import Settings


def first_day(values: Settings, pipeline: Pipeline, now: Callable[[], int] = wall_clock) -> str:
    """The first daily partition, ISO: that of the setting, else that of the pipeline, else the first day of a year.

    It is the year of the oldest event in the lake, or this year while there is none. A run determines it again when it starts, so it must
    not become later between the load of the code location and the run: the oldest event's own day could.

    Args:
        values: the settings.
        pipeline: the pipeline.
        now: the wall clock, in epoch ms.
    """
    given = values.first_day or pipeline.first_day
    if given is not None:
        return given
    today = now()
    oldest = _oldest_event(values, pipeline, today)
    year = day_of(today if oldest is None else min(oldest, today)).year
    return str(max(date(year, 1, 1), EARLIEST_DAY))


def _oldest_event(values: Settings, pipeline: Pipeline, now: int) -> int | None:
    """The oldest event time in the lake in epoch ms; None if there is none, or if the lake cannot be read: runs report that error."""
    try:
        ledger = Ledger(Lake(values.lake, length_ms(values.lease, "lease") / 1000), lambda: now)
        found = [ledger.source(source.name).oldest for source in pipeline.sources]
    except (TidemarkError, OSError):
        return None
    return min((t for t in found if t is not None), default=None)
