"""Records given accounts of a table."""

from collections.abc import Mapping, Sequence

from platform_defs.engine import Engine
from platform_defs.engine.accounting.account import CountedBatches, Differences
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.accounting.days_of_step import Days
from platform_defs.engine.accounting.recorded_account import record


def record_accounts(
    engine: Engine,
    table: str,
    accounts: Sequence[DayAccount],
    differences: Differences | None = None,
    days: Days | None = None,
    *,
    compared: Mapping[str, tuple[int, int]] | None = None,
) -> None:
    """Record accounts of days, as if they had just been computed; only the batches that differ were compared, unless others are given."""
    found = differences or {}
    counted = CountedBatches(compared or {source: (batch, batch) for source, batch in found}, found)
    record(engine.lake, engine.assets[table], accounts, counted, days, engine.clock())
