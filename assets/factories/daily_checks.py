"""Check results by day. In Dagster 1.13 an `AssetCheckResult` has no partition, but the event `AssetCheckEvaluation` has one."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster import AssetCheckEvaluation

_MAX_DAYS = 31


def log_days(context: dg.AssetExecutionContext, result: dg.AssetCheckResult, days: Mapping[str, tuple[bool, dict[str, Any]]]) -> None:
    """Log the results of a check by day, so that the UI shows which days failed.

    The UI shows the newest record of a check. If the run's last asset has no partitions, Dagster plans the check without partitions, and
    the newest record is that of the day that is logged last. So failing days are logged last. If the check failed for the run, but passed
    for each day, no day is logged, because a passed day would hide the failure.

    Of more than 31 days only the failing ones are logged, at most the newest 31; the result of the run covers the others.

    Args:
        context: the step.
        result: the check's result for the whole run.
        days: by partition key, whether the check passed, and the metadata to show. They may include days outside of the run.
    """
    assert result.check_name is not None, "the result needs `check_name`, because a step can have several checks"
    if not result.passed and all(passed for passed, _ in days.values()):
        return
    passed_days = sorted(day for day, (passed, _) in days.items() if passed and len(days) <= _MAX_DAYS)
    failed_days = sorted(day for day, (passed, _) in days.items() if not passed)
    for day in [*passed_days, *failed_days][-_MAX_DAYS:]:
        passed, metadata = days[day]
        # the description of a failed run describes its failing days, so a day that passed has none
        description = None if passed and not result.passed else result.description
        evaluation = AssetCheckEvaluation(
            context.asset_key, result.check_name, passed, metadata, severity=result.severity, description=description, partition=day
        )
        context.log_event(evaluation)  # pyright: ignore[reportArgumentType]  # Dagster accepts it, but its type does not allow it
