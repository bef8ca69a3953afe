"""Makes the Dagster asset of a table of closed ranges, with its daily partitions, checks, metadata and lineage, from the definition."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any

import dagster as dg

from assets.completeness import Completeness
from assets.contracts import DerivedAsset
from assets.days import day_end, day_of, day_start, days_from
from assets.factories.advance_config import AdvanceConfig
from assets.factories.conservation_law import (
    LAW,
    LAW_BY_ROW,
    LAW_BY_TIME,
    law_check,
    log_law,
    results_name_source_rows,
    sums_of_terms,
)
from assets.factories.daily_checks import log_days
from assets.factories.join_completeness import completeness_result, completeness_spec, is_join, poor_days, rows_of_day, shares
from assets.factories.keys import input_keys
from assets.factories.lineage import column_metadata
from assets.factories.metadata import code_metadata, time_metadata
from assets.factories.partitions import Days, days_of_run, range_of
from assets.factories.pool import SPARK
from assets.factories.sentences import day_range, list_text
from assets.factories.work import Advanced, RunDetails, Worker
from assets.ports import AccountPort, EnginePort, MatchesPort
from operators.steps import FOREVER

EVENT_TIMES_IN_PARTITIONS, FINALIZED = "event_times_in_partitions", "days_finalized"
FINALIZED_DESCRIPTION = (
    "All results of the days are final. A day that is not completely finalized fails with a warning. The day passes in the first run "
    "after the watermark has passed its end."
)
IN_PARTITIONS_DESCRIPTION = (
    "No event is before the first or after the last daily partition. A result belongs to the partition of its `final_at`, which may be "
    "later than its events. Results of earlier events are finalized, but may belong to no partition. Runs of Dagster finalize later "
    "results only when their days are partitions. An event on the last day passes, even if its result is later."
)

NO_REQUIRED_SHARES = Completeness()
"""No share of matched rows is required: the check reports the shares, and passes."""


def closed_range_asset(
    derived: DerivedAsset,
    *,
    sources: Sequence[str],
    days: dg.DailyPartitionsDefinition,
    worker: Worker,
    completeness: Completeness = NO_REQUIRED_SHARES,
) -> dg.AssetsDefinition:
    """The Dagster asset of a table of closed ranges, with daily partitions by `final_at` (UTC).

    A run over days advances the table to the end of the last day, or as far as the watermark allows. The conservation law is a blocking
    check: if it is violated, downstream tables do not run. Other checks warn if event times are outside the partitions, and if a day is
    not finalized. A join has a check of its completeness too.

    Args:
        derived: the table's definition.
        sources: the names of the sources; all other inputs are derived tables.
        days: the partitions.
        worker: does the work of steps.
        completeness: for a join, the required shares of matched rows among the matched, unmatched and late ones, for each side and day.
    """
    worker.add(derived.name, derived.inputs, partial(_advance_and_account, derived, sources))
    law = LAW_BY_ROW if results_name_source_rows(derived, sources) else LAW_BY_TIME
    specs = [dg.AssetCheckSpec(LAW, asset=derived.name, blocking=True, description=law)]
    specs.append(dg.AssetCheckSpec(EVENT_TIMES_IN_PARTITIONS, asset=derived.name, description=IN_PARTITIONS_DESCRIPTION))
    specs.append(dg.AssetCheckSpec(FINALIZED, asset=derived.name, description=FINALIZED_DESCRIPTION))
    if is_join(derived):
        specs.append(completeness_spec(derived, completeness))

    @dg.asset(
        name=derived.name,
        deps=input_keys(derived.inputs, sources),
        partitions_def=days,
        backfill_policy=dg.BackfillPolicy.single_run(),
        check_specs=specs,
        group_name=derived.group,
        kinds={"spark", "delta"},
        owners=derived.owners,
        tags=derived.tags,
        metadata={**({} if derived.streams_as == "ranges" else {"streams_as": derived.streams_as}), **code_metadata(derived)},
        pool=SPARK,
        description=derived.description,
    )
    def table(
        context: dg.AssetExecutionContext, config: AdvanceConfig, engine: dg.ResourceParam[EnginePort]
    ) -> Iterator[dg.MaterializeResult]:
        first, last = days_of_run(context)
        rebuilt = _rebuild(engine, derived.name, first, last) if config.rebuild else {}
        advanced: Advanced = worker.do(context, engine, derived.name)
        accounts, closed_to = advanced.accounts, engine.pending.describe_progress(derived.name)["closed_to"]
        finality_by_day = {day: closed_to is not None and closed_to >= day_end(day) for day in days_from(first, last)}
        _add_metadata_of_days(context, derived.name, advanced, finality_by_day)
        result = law_check(advanced)
        log_law(context, result, accounts, {a.day for a in accounts if not a.holds})
        checks = [result, _event_times_check(engine.pending.event_times(derived.name), days)]
        checks.append(_days_finalized_check(context, finality_by_day, closed_to))
        checks += [_completeness_check(context, advanced.matches, completeness)] if is_join(derived) else []
        yield dg.MaterializeResult(metadata={**advanced.metadata, **rebuilt}, check_results=checks)

    return table


def _rebuild(engine: EnginePort, name: str, first: date, last: date) -> dict[str, Any]:
    """Rebuild days; returns metadata.

    These are the days that differed and were repaired, the number of missing and extra results, and the first day that was compared, if
    earlier days were left as they are: `no day` if all were.
    """
    rebuilt = engine.rebuild_days(name, first, last)
    days = list_text([str(day) for day in rebuilt.days]) or "no days"
    metadata = {"rebuilt": days, "rows_repaired": rebuilt.missing + rebuilt.extra}
    if rebuilt.kept_from is not None and rebuilt.kept_from > first:
        metadata["compared_from"] = str(rebuilt.kept_from) if rebuilt.kept_from <= last else "no day"
    return metadata


def _advance_and_account(derived: DerivedAsset, sources: Sequence[str], engine: EnginePort, run: RunDetails) -> Advanced:
    """Advance the table to the end of the last day, account for the rows that this finalizes or corrects, and record the accounts."""
    days = run.days
    assert days is not None, "the asset has partitions"
    first, last = days
    days_to_account = _first_day_to_account(engine, derived, first), last
    steps = list(engine.steps(derived.name, day_end(last)))
    accounts, differences = engine.accounts.account_for(derived.name, days_to_account)
    metadata = _metadata(engine, derived) | {"steps": len(steps), "rows": sum(s.rows for s in steps)}
    return Advanced(metadata, accounts, differences, _matched_rows(engine, derived, sources, accounts, days_to_account))


def _matched_rows(
    engine: EnginePort, derived: DerivedAsset, sources: Sequence[str], accounts: Sequence[AccountPort], days: Days
) -> Sequence[MatchesPort]:
    """The matched, unmatched and late rows of a join, by side and day; empty for other tables.

    If the join's results name rows of sources, its accounts have these numbers already.
    """
    if not is_join(derived):
        return ()
    if results_name_source_rows(derived, sources):
        return accounts
    return engine.accounts.matches(derived.name, days)


def _first_day_to_account(engine: EnginePort, derived: DerivedAsset, first: date) -> date:
    """The first day to account for. It has the oldest row that the run can finalize, or of which it can correct a result.

    A run closes every open range, also those before its own first day, and corrects results within the allowed lateness. A row is
    finalized at most `longest_lookback + watermark_delay` after its event time, so a row can be that much older than its result.
    """
    reads = derived.operator.reads
    longest_wait = reads.longest_lookback + reads.watermark_delay
    # FOREVER: any earlier day may be corrected. This run does not account for these days; `tidemark status --recount` accounts for all.
    corrected = reads.lateness if reads.lateness < FOREVER else 0
    closed_to, times = engine.pending.describe_progress(derived.name)["closed_to"], engine.pending.event_times(derived.name)
    if closed_to is None:
        return day_of(min(day_start(first) - longest_wait, times[0])) if times else day_of(day_start(first) - longest_wait)
    return day_of(min(day_start(first), closed_to + 1 - corrected) - longest_wait)


def _metadata(engine: EnginePort, derived: DerivedAsset) -> dict[str, Any]:
    """The metadata of a table's progress; after its first step also its columns and their lineage."""
    state = engine.pending.describe_progress(derived.name)
    return progress_metadata(state) | (column_metadata(engine, derived) if state["steps"] else {})


def progress_metadata(state: Mapping[str, Any]) -> dict[str, Any]:
    """The progress of a table as Dagster metadata, from the values that `PendingPort.describe_progress` returns."""
    metadata = {
        "watermark": time_metadata(state["watermark"]),
        "closed_to": time_metadata(state["closed_to"]),
        "lag_seconds": state["lag_ms"] / 1000,
    }
    if state.get("kept_from"):
        metadata["retained_totals_before"] = str(state["kept_from"])
    if state.get("complete_from"):
        metadata["complete_from"] = str(state["complete_from"])
    if state.get("waits_for"):
        metadata["waits_for"] = f"an advance of {', '.join(state['waits_for'])}"
    if state.get("held_back_by"):
        held_back_ms = state["held_back_ms"]
        metadata["held_back_by"] = state["held_back_by"]
        metadata |= {} if held_back_ms is None else {"held_back_seconds": held_back_ms / 1000}
    return metadata


def _add_metadata_of_days(context: dg.AssetExecutionContext, name: str, advanced: Advanced, finality_by_day: Mapping[date, bool]) -> None:
    """Add to each day's materialization whether the day is finalized, its account, and the shares of a join's matched rows."""
    for day, is_final in finality_by_day.items():
        accounts, matches = [a for a in advanced.accounts if a.day == day], [m for m in advanced.matches if m.day == day]
        metadata = {"finalized": is_final, **sums_of_terms(accounts), **shares(matches)}
        context.add_asset_metadata(metadata, asset_key=name, partition_key=str(day))


def _event_times_check(times: tuple[int, int] | None, days: dg.DailyPartitionsDefinition) -> dg.AssetCheckResult:
    """The check that no event is outside the partitions; `times` are the oldest and newest event time of the sources, in epoch ms."""
    partitions, problems = range_of(days), list[str]()
    if times is not None and (partitions is None or times[0] < day_start(partitions[0])):
        problems.append("some events are before the first daily partition: their results are in the table, but may be in no partition")
    if times is not None and (partitions is None or times[1] > day_end(partitions[1])):
        problems.append(
            "some events are after the last daily partition: no run of Dagster finalizes their results until their days are partitions"
        )
    return dg.AssetCheckResult(
        check_name=EVENT_TIMES_IN_PARTITIONS,
        passed=not problems,
        severity=dg.AssetCheckSeverity.WARN,
        description="; ".join(problems) or "all events are in the daily partitions",
        metadata={
            "oldest_event_time": time_metadata(times[0] if times else None),
            "newest_event_time": time_metadata(times[1] if times else None),
            "days": day_range(partitions or ()),
        },
    )


def _days_finalized_check(
    context: dg.AssetExecutionContext, finality_by_day: Mapping[date, bool], closed_to: int | None
) -> dg.AssetCheckResult:
    """The check that the days of a run are finalized, also logged for each day.

    Without it, a day that is not finalized would look complete: Dagster shows every day of a run as materialized.
    """
    metadata: dict[str, dg.MetadataValue] = {"finalized_up_to": time_metadata(closed_to)}
    open_days = [day for day, is_final in finality_by_day.items() if not is_final]
    verb = "is" if len(open_days) == 1 else "are"
    result = dg.AssetCheckResult(
        check_name=FINALIZED,
        passed=not open_days,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{day_range(open_days)} {verb} not finalized" if open_days else "all days are finalized",
        metadata=metadata,
    )
    log_days(context, result, {str(day): (is_final, dict(metadata)) for day, is_final in finality_by_day.items()})
    return result


def _completeness_check(context: dg.AssetExecutionContext, matches: Sequence[MatchesPort], required: Completeness) -> dg.AssetCheckResult:
    """The check of a join's completeness, also logged for each day of the run, and for each other day that fails."""
    result, poor = completeness_result(matches, required), {match.day for match in poor_days(matches, required)}
    first, last = days_of_run(context)
    days = sorted({match.day for match in matches if first <= match.day <= last or match.day in poor})
    log_days(context, result, {str(day): (day not in poor, rows_of_day([match for match in matches if match.day == day])) for day in days})
    return result
