"""Check results by day. Dagster 1.13's public `AssetCheckResult` has no partition, but the event that it is logged as has one."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster import AssetCheckEvaluation

_MOST_DAYS = 31


def log_days(context: dg.AssetExecutionContext, result: dg.AssetCheckResult, days: Mapping[str, tuple[bool, dict[str, Any]]]) -> None:
    """Log one evaluation a day, so that the UI shows which day failed.

    The UI shows the newest record of a check. The record of the whole run is older than those of the days if Dagster plans the check
    without partitions, as it does in a run whose last asset has none. So the failing days are logged last; and if the run fails, but
    no day does, no day is logged.

    A run over more than 31 days logs only the failing days, the newest 31 of them; the result of the run covers the others.

    Args:
        context: the step.
        result: the check's result for the whole run.
        days: by partition key, whether the check passed, and the metadata to show.
    """
    assert result.check_name is not None, "a step has several checks"
    if not result.passed and all(passed for passed, _ in days.values()):
        return
    logged = [(passed, day, metadata) for day, (passed, metadata) in days.items() if len(days) <= _MOST_DAYS or not passed]
    for passed, day, metadata in sorted(logged, key=lambda result_of_day: (not result_of_day[0], result_of_day[1]))[-_MOST_DAYS:]:
        words = result.description if result.passed or not passed else None
        evaluation = AssetCheckEvaluation(
            context.asset_key, result.check_name, passed, metadata, severity=result.severity, description=words, partition=day
        )
        context.log_event(evaluation)  # pyright: ignore[reportArgumentType]  # Dagster accepts it, but its type does not allow it
