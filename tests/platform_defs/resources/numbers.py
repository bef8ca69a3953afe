"""An asset with a check, and a process that materializes it. The process imports this module, so it imports Dagster only."""

from typing import Any

import dagster as dg


@dg.asset(check_specs=[dg.AssetCheckSpec("is_counted", asset="numbers")])
def numbers() -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"rows": 3}, check_results=[dg.AssetCheckResult(check_name="is_counted", passed=True)])


def materialize_numbers(home: str, is_ready: Any) -> None:
    with dg.DagsterInstance.from_config(home) as instance:
        is_ready.set()
        assert dg.materialize([numbers], instance=instance).success
