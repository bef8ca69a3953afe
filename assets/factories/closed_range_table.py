"""Makes the Dagster asset of a table of closed ranges, with its daily partitions, checks, metadata and lineage, from the definition."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field

from assets.completeness import Completeness
from assets.contracts import DerivedAsset
from assets.days import day_end, day_of, day_start, days_from
from assets.factories.daily_checks import log_days
from assets.factories.join_completeness import completeness_result, completeness_spec, is_join, poor_days, rows_of_day, shares
from assets.factories.keys import input_keys
from assets.factories.lineage import column_metadata
from assets.factories.metadata import code_metadata, moment
from assets.factories.partitions import Days, days_of_run, range_of
from assets.factories.pool import SPARK
from assets.factories.sentences import count, day_range, list_text, sides_and_days
from assets.factories.work import Advanced, RunDetails, Worker
from assets.ports import TERMS, AccountPort, EnginePort, MatchesPort
from operators.accounting import TracesInputs
from operators.steps import FOREVER

LAW, IN_DAYS, FINALIZED = "conservation_law", "event_times_in_partitions", "days_finalized"
LAW_BY_ROW = "Every accepted row is exactly one of matched, unmatched, pending, late or filtered."
LAW_BY_TIME = "Every accepted row is finalized, pending, in no window, late, or filtered. The results equal those computed from the log."
FINALIZED_DESCRIPTION = (
    "All results of the days are final. A day that is not finalized, or only in part, fails with a warning, until a run after the "
    "watermark has passed it."
)
IN_DAYS_DESCRIPTION = (
    "No event is before the first or after the last daily partition. Results of earlier events are finalized, but belong to no partition. "
    "Runs of Dagster finalize results of later events only when their days are partitions."
)

REPORTED = Completeness()
"""No share of matched rows is required: the check only reports the shares."""


class AdvanceConfig(dg.Config):
    """The configuration of a run over days."""

    rebuild: bool = Field(
        default=False,
        description="whether to recompute the results of the run's days that are already finalized, or all rows of an upserted table, and "
        "repair those that differ, before the advance",
    )


def event_time_asset(
    derived: DerivedAsset,
    *,
    sources: Sequence[str],
    days: dg.DailyPartitionsDefinition,
    worker: Worker,
    completeness: Completeness = REPORTED,
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
    joins, names_rows = is_join(derived), isinstance(derived.operator, TracesInputs) and {*derived.inputs} <= {*sources}
    specs = [dg.AssetCheckSpec(LAW, asset=derived.name, blocking=True, description=LAW_BY_ROW if names_rows else LAW_BY_TIME)]
    specs.append(dg.AssetCheckSpec(IN_DAYS, asset=derived.name, description=IN_DAYS_DESCRIPTION))
    specs.append(dg.AssetCheckSpec(FINALIZED, asset=derived.name, description=FINALIZED_DESCRIPTION))
    if joins:
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
        is_final = {day: closed_to is not None and closed_to >= day_end(day) for day in days_from(first, last)}
        _add_days(context, derived.name, advanced, is_final)
        law = law_check(advanced)
        _log_law(context, law, accounts, {a.day for a in accounts if not a.holds})
        checks = [law, _event_times_check(engine.pending.event_times(derived.name), days)]
        checks.append(_days_finalized_check(context, is_final, closed_to))
        checks += [_completeness_check(context, advanced.matches, completeness)] if joins else []
        yield dg.MaterializeResult(metadata={**advanced.metadata, **rebuilt}, check_results=checks)

    return table


def _rebuild(engine: EnginePort, name: str, first: date, last: date) -> dict[str, Any]:
    """Rebuild days; returns metadata: the days that differed and were repaired, and the number of missing and extra results."""
    rebuilt = engine.rebuild_days(name, first, last)
    return {"rebuilt": day_range(rebuilt.days), "rows_repaired": rebuilt.missing + rebuilt.extra}


def _advance_and_account(derived: DerivedAsset, sources: Sequence[str], engine: EnginePort, run: RunDetails) -> Advanced:
    """Advance the table to the end of the last day, account for the rows that this finalizes or corrects, and record the accounts."""
    days = run.days
    assert days is not None, "the asset has partitions"
    first, last = days
    accounted = _first_day_to_account(engine, derived, first), last
    steps = list(engine.steps(derived.name, day_end(last)))
    accounts, differences = engine.accounts.account_for(derived.name, accounted)
    metadata = _metadata(engine, derived) | {"steps": len(steps), "rows": sum(s.rows for s in steps)}
    return Advanced(metadata, accounts, differences, _matched_rows(engine, derived, sources, accounts, accounted))


def _matched_rows(
    engine: EnginePort, derived: DerivedAsset, sources: Sequence[str], accounts: Sequence[AccountPort], days: Days
) -> Sequence[MatchesPort]:
    """The matched, unmatched and late rows of a join, by side and day; empty for other tables.

    If the join's results name rows of sources, its accounts have these numbers already.
    """
    if not is_join(derived):
        return ()
    if isinstance(derived.operator, TracesInputs) and {*derived.inputs} <= {*sources}:
        return accounts
    return engine.accounts.matches(derived.name, days)


def _first_day_to_account(engine: EnginePort, derived: DerivedAsset, first: date) -> date:
    """The first day with rows that a run finalizes, or whose finalized results it corrects within the allowed lateness.

    A run closes every open range, also those before its own first day, and corrects results within the allowed lateness. A row is
    finalized at most `longest_lookback + watermark_delay` after its event time, so the rows are up to that long before the results.
    """
    reads = derived.operator.reads
    longest_wait = reads.longest_lookback + reads.watermark_delay
    corrected = reads.lateness if reads.lateness < FOREVER else 0  # FOREVER: any day may be corrected; `status --recount` does all
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
    metadata = {"watermark": moment(state["watermark"]), "closed_to": moment(state["closed_to"]), "lag_seconds": state["lag_ms"] / 1000}
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


def _totals(accounts: Sequence[AccountPort]) -> dict[tuple[str, str], int]:
    """The sums of the terms over all days, by side and term."""
    sides = sorted({a.side for a in accounts})
    return {(side, term): sum(getattr(a, term) for a in accounts if a.side == side) for side in sides for term in TERMS}


def _add_days(context: dg.AssetExecutionContext, name: str, advanced: Advanced, is_final: Mapping[date, bool]) -> None:
    """Add to each day's materialization whether the day is finalized, its account, and the shares of a join's matched rows."""
    for day, passed in is_final.items():
        accounts, matches = [a for a in advanced.accounts if a.day == day], [m for m in advanced.matches if m.day == day]
        context.add_asset_metadata({"finalized": passed, **_terms(accounts), **shares(matches)}, asset_key=name, partition_key=str(day))


def law_check(advanced: Advanced) -> dg.AssetCheckResult:
    """The result of the check of the conservation law: a table's accounts, and the ledger's row counts compared with the logs' rows."""
    accounts = advanced.accounts
    violations = [a for a in accounts if not a.holds]
    return dg.AssetCheckResult(
        check_name=LAW,
        passed=advanced.holds,
        severity=dg.AssetCheckSeverity.ERROR,
        description=_law_sentence(violations, advanced.count_differences),
        metadata={
            "broken": dg.MetadataValue.json([_account_row(a) for a in violations[:10]]),
            "days": len({a.day for a in accounts}),
            **_terms(accounts),
        },
    )


def _law_sentence(violations: Sequence[AccountPort], differences: Mapping[tuple[str, int], tuple[int, int]]) -> str:
    """The sides and days that violate the law, and the batches whose numbers of rows in the ledger and in the log differ."""
    batches = [
        f"{source}, batch {seq} ({count(in_ledger, 'row')} in the ledger, {count(in_log, 'row')} in the log)"
        for (source, seq), (in_ledger, in_log) in differences.items()
    ]
    sentences = [f"the account does not add up: {sides_and_days(violations)}"] if violations else []
    sentences += [f"ledger and log differ: {list_text(batches)}"] if batches else []
    return "; ".join(sentences) or "every row is accounted for"


def _event_times_check(times: tuple[int, int] | None, days: dg.DailyPartitionsDefinition) -> dg.AssetCheckResult:
    """The check that no event is outside the partitions; `times` are the oldest and newest event time of the sources, in epoch ms."""
    partitions, problems = range_of(days), list[str]()
    if times is not None and (partitions is None or times[0] < day_start(partitions[0])):
        problems.append("some events are before the first daily partition: their results are in the table, but in no partition")
    if times is not None and (partitions is None or times[1] > day_end(partitions[1])):
        problems.append(
            "some events are after the last daily partition: no run of Dagster finalizes their results until their days are partitions"
        )
    return dg.AssetCheckResult(
        check_name=IN_DAYS,
        passed=not problems,
        severity=dg.AssetCheckSeverity.WARN,
        description="; ".join(problems) or "all events are in the daily partitions",
        metadata={
            "oldest_event_time": moment(times[0] if times else None),
            "newest_event_time": moment(times[1] if times else None),
            "days": day_range(partitions or ()),
        },
    )


def _days_finalized_check(context: dg.AssetExecutionContext, is_final: Mapping[date, bool], closed_to: int | None) -> dg.AssetCheckResult:
    """The check that the days of a run are finalized, also logged for each day.

    Without it, a day that is not finalized would look complete: Dagster shows every day of a run as materialized.
    """
    metadata: dict[str, dg.MetadataValue] = {"finalized_up_to": moment(closed_to)}
    open_days = [day for day, is_finalized in is_final.items() if not is_finalized]
    result = dg.AssetCheckResult(
        check_name=FINALIZED,
        passed=not open_days,
        severity=dg.AssetCheckSeverity.WARN,
        description=_not_finalized(open_days) if open_days else "all days are finalized",
        metadata=metadata,
    )
    log_days(context, result, {str(day): (is_finalized, dict(metadata)) for day, is_finalized in is_final.items()})
    return result


def _not_finalized(open_days: Sequence[date]) -> str:
    return f"{day_range(open_days)} {'is' if len(open_days) == 1 else 'are'} not finalized"


def _completeness_check(context: dg.AssetExecutionContext, matches: Sequence[MatchesPort], required: Completeness) -> dg.AssetCheckResult:
    """The check of a join's completeness, also logged for each day of the run, and for each other day that fails."""
    result, poor = completeness_result(matches, required), {match.day for match in poor_days(matches, required)}
    first, last = days_of_run(context)
    days = sorted({match.day for match in matches if first <= match.day <= last or match.day in poor})
    log_days(context, result, {str(day): (day not in poor, rows_of_day([match for match in matches if match.day == day])) for day in days})
    return result


def _log_law(context: dg.AssetExecutionContext, result: dg.AssetCheckResult, accounts: Sequence[AccountPort], violated: set[date]) -> None:
    """Log the result of the law for each day of the run, and for each earlier day that failed: a run accounts for earlier days too."""
    first, last = days_of_run(context)
    days = sorted({a.day for a in accounts if first <= a.day <= last or a.day in violated})
    by_day = {
        str(day): (day not in violated, {"rows": dg.MetadataValue.json([_account_row(a) for a in accounts if a.day == day])})
        for day in days
    }
    log_days(context, result, by_day)


def _account_row(account: AccountPort) -> dict[str, Any]:
    return {"side": account.side, "day": str(account.day), **{term: getattr(account, term) for term in TERMS}}


def _terms(accounts: Sequence[AccountPort]) -> dict[str, int]:
    """The totals as metadata that Dagster plots, named `<term> <side>`."""
    return {f"{term} {side}": n for (side, term), n in _totals(accounts).items()}
