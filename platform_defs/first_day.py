"""The first daily partition of a pipeline's tables."""

import time
from datetime import timedelta

from assets.factories.partitions import day_at
from assets.pipeline import Pipeline
from operators.errors import TidemarkError
from operators.timing import length_ms
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.setting_values import EARLIEST_DAY
from platform_defs.settings import Settings

EMPTY_LAKE_DAYS = 31
"""How many days before today the partitions begin while the lake has no event."""


def first_day(values: Settings, pipeline: Pipeline) -> str:
    """The first daily partition, ISO: that of the setting, else that of the pipeline, else the day of the oldest event in the lake.

    It is determined when the code location is loaded: after the first ingest of older events the location must be reloaded for the UI to
    show their days. Results do not depend on it: earlier days are finalized together with the first partition.
    """
    given = values.first_day or pipeline.first_day
    if given is not None:
        return given
    now = time.time_ns() // 1_000_000
    today = day_at(now)
    oldest = _oldest_event(values, pipeline, now)
    return str(today - timedelta(days=EMPTY_LAKE_DAYS) if oldest is None else min(max(day_at(oldest), EARLIEST_DAY), today))


def _oldest_event(values: Settings, pipeline: Pipeline, now: int) -> int | None:
    """The oldest event time in the lake in epoch ms; None if there is none, or the lake cannot be read, as every command will say."""
    try:
        ledger = Ledger(Lake(values.lake, length_ms(values.lease, "lease") / 1000), lambda: now)
        found = [ledger.source(source.name).oldest for source in pipeline.sources]
    except (TidemarkError, OSError):
        return None
    return min((t for t in found if t is not None), default=None)
