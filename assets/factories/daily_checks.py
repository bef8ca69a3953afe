"""Check results by day. Dagster 1.13's public `AssetCheckResult` has no partition, but the event that it is logged as has one."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster import AssetCheckEvaluation

_MOST_DAYS = 31


def log_days(
    context: dg.AssetExecutionContext, check: str, days: Mapping[str, tuple[bool, dict[str, Any]]], severity: dg.AssetCheckSeverity
) -> None:
    """Log one evaluation a day, so that the UI shows which day failed.

    A run over more than a month logs only the failing days; the summary covers the others.

    Args:
        context: the step.
        check: the check's name.
        days: by partition key, whether the check passed, and the metadata to show.
        severity: the severity of a failure.
    """
    shown = {day: evaluation for day, evaluation in days.items() if len(days) <= _MOST_DAYS or not evaluation[0]}
    for day, (passed, metadata) in sorted(shown.items())[-_MOST_DAYS:]:
        evaluation = AssetCheckEvaluation(context.asset_key, check, passed, metadata, severity=severity, partition=day)
        context.log_event(evaluation)  # pyright: ignore[reportArgumentType]  # Dagster accepts it, but its type does not allow it
