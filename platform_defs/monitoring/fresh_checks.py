"""The check `fresh` of each table with a freshness limit, and the sensor that evaluates these checks between runs. Neither needs Spark.

Dagster's own freshness policies compare the age of the newest materialization with a limit. A table whose sources send nothing is not
materialized, so it would be overdue every night. This check measures how long rows have waited for the table.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import dagster as dg
from dagster import AssetCheckEvaluation
from deltalake.exceptions import DeltaError

from assets.days import moment
from assets.factories.sentences import duration
from assets.pipeline import FRESH, Pipeline
from operators.errors import TidemarkError
from platform_defs.engine import Engine
from platform_defs.engine.operations.freshness import Staleness
from platform_defs.safe_text import one_line, without_credentials

SENSOR = "freshness"
_UNREADABLE = (TidemarkError, DeltaError, OSError)
_AT_LEAST_EVERY_S = 3600
"""A state that does not change is reported once an hour, so that the event store grows little."""


def limits_of(pipeline: Pipeline) -> Mapping[str, int]:
    """The limit of each table that has one, in ms."""
    limits = {table.name: pipeline.freshness_of(table.name) for table in pipeline.tables}
    return {name: limit for name, limit in limits.items() if limit is not None}


def fresh_checks(limits: Mapping[str, int]) -> dg.AssetChecksDefinition:
    """The checks of the tables with a limit.

    Args:
        limits: for each table, how long it may wait to reflect rows, in ms.
    """
    specs = [dg.AssetCheckSpec(FRESH, asset=name, description=_description(limit), blocking=False) for name, limit in limits.items()]

    @dg.multi_asset_check(name="fresh_tables", specs=specs, can_subset=True)
    def checks(context: dg.AssetCheckExecutionContext, engine: dg.ResourceParam[Engine]) -> Iterator[dg.AssetCheckResult]:
        selected = [key.asset_key.to_user_string() for key in context.selected_asset_check_keys]
        for name, result in evaluate_limits(engine, {table: limits[table] for table in limits if table in selected}).items():
            yield dg.AssetCheckResult(asset_key=dg.AssetKey(name), check_name=FRESH, **result)

    return checks


def fresh_sensor(limits: Mapping[str, int]) -> dg.SensorDefinition:
    """The sensor that evaluates the checks, without a run. It reports a result that differs from Dagster's newest one, and once an hour.

    Args:
        limits: for each table, how long it may wait to reflect rows, in ms.
    """

    @dg.sensor(
        name=SENSOR,
        minimum_interval_seconds=60,
        description="Evaluates the checks `fresh` of tables between runs. Reports a result when it has changed, and once an hour.",
    )
    def freshness(context: dg.SensorEvaluationContext, engine: dg.ResourceParam[Engine]) -> dg.SensorResult:
        now_s, reported = engine.clock() / 1000, json.loads(context.cursor or "{}")
        results, shown_results = evaluate_limits(engine, limits), _newest_results(context.instance, limits)
        events = list[AssetCheckEvaluation]()
        for name, result in results.items():
            if shown_results.get(name) != result["passed"] or now_s - reported.get(name, 0.0) >= _AT_LEAST_EVERY_S:
                events.append(AssetCheckEvaluation(dg.AssetKey(name), FRESH, **result))
                reported[name] = now_s
        stale = [name for name, result in results.items() if not result["passed"]]
        state = f"stale: {', '.join(stale)}" if stale else "all tables are fresh"
        cursor = {name: at for name, at in reported.items() if name in results}
        return dg.SensorResult(asset_events=events, cursor=json.dumps(cursor), skip_reason=state)

    return freshness


def _newest_results(instance: dg.DagsterInstance, limits: Mapping[str, int]) -> dict[str, bool]:
    """By table, whether its check passed in the newest result that Dagster has, which may be from the sensor or a run."""
    newest = instance.event_log_storage.get_latest_asset_check_execution_by_key([dg.AssetCheckKey(dg.AssetKey(n), FRESH) for n in limits])
    events = {key.asset_key.to_user_string(): record.event.dagster_event for key, record in newest.items() if record.event}
    ended = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    return {name: event.asset_check_evaluation_data.passed for name, event in events.items() if event and event.event_type == ended}


def evaluate_limits(engine: Engine, limits: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """The result of each table's check: `passed`, `severity`, `description` and `metadata`, from one snapshot of the lake.

    The check of a table fails if this table, a table that it reads, or the ledger cannot be read.
    """
    with suppress(*_UNREADABLE):  # a passing fault of the store is no reason for an alert of each table
        return _results(engine, limits)
    try:
        return _results(engine, limits)
    except _UNREADABLE as error:
        return {name: _unknown(limit, error) for name, limit in limits.items()}


def _results(engine: Engine, limits: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """The result of each table's check. Raises one of `_UNREADABLE` if the ledger cannot be read."""
    snapshot = engine.snapshot()
    freshness, now = snapshot.freshness, snapshot.clock()
    results = dict[str, dict[str, Any]]()
    for name, limit in limits.items():
        try:
            results[name] = _metadata_and_result(name, limit, freshness.waiting(name), now)
        except _UNREADABLE as error:  # other tables are still evaluated
            results[name] = _unknown(limit, error)
    return results


def _unknown(limit: int, error: Exception) -> dict[str, Any]:
    return {
        "passed": False,
        "severity": dg.AssetCheckSeverity.ERROR,
        "description": f"It is not known how long rows have waited: {without_credentials(one_line(str(error)))}",
        "metadata": {"limit_seconds": limit / 1000},
    }


def _metadata_and_result(name: str, limit: int, waiting: Staleness | None, now: int) -> dict[str, Any]:
    waited = 0 if waiting is None else max(0, now - waiting.since)
    metadata: dict[str, Any] = {"waited_seconds": waited / 1000, "limit_seconds": limit / 1000}
    if waiting is not None:
        metadata |= {"waits_since": dg.MetadataValue.timestamp(moment(waiting.since))}
        metadata |= {} if waiting.held_back_by is None else {"held_back_by": waiting.held_back_by}
    return {
        "passed": waited <= limit,
        "severity": dg.AssetCheckSeverity.ERROR,
        "description": _sentence(name, limit, waited, waiting),
        "metadata": metadata,
    }


def _sentence(name: str, limit: int, waited: int, waiting: Staleness | None) -> str:
    if waiting is None:
        return "The table reflects all rows of its sources that it can reflect now."
    reason = f"source {waiting.held_back_by} holds back its watermark" if waiting.held_back_by else f"{waiting.behind} was not advanced"
    if waiting.behind == name:
        reason = "it was not advanced"
    return f"Rows have waited for {duration(waited / 1000)}, with a limit of {duration(limit / 1000)}: {reason}."


def _description(limit: int) -> str:
    return f"Rows of the table's sources wait at most {duration(limit / 1000)} for it. The check passes while the sources send nothing."
