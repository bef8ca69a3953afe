"""The factory of derived assets: days, checks, metadata and lineage from one recipe."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import dagster as dg

from assets.contracts import DerivedAsset
from assets.day_checks import log_days
from assets.keys import input_keys
from assets.lineage import column_lineage
from assets.metadata import moment, table_schema
from assets.partitions import day_at, days_of, end_of, range_of, span, start_of
from assets.ports import TERMS, AccountPort, EnginePort
from operators.contract import ByTimeRange, TracesInputs
from operators.timing import DAY_MS

LAW, COMPLETENESS, IN_DAYS = "conservation_law", "join_completeness", "event_times_in_partitions"
JOINED = "Every accepted row is matched, unmatched, pending or late, once."
COUNTED = "Every accepted row is in what is closed, in what is open, in no window, or late; and the results are those of the log."


OUTSIDE = "No event lies before the first day or after the last: its results are in the table, and in no partition."


class AdvanceConfig(dg.Config):
    """How to materialise days.

    Args:
        rebuild: recompute days that are closed already, and put right what differs; then advance as ever.
    """

    rebuild: bool = False


def event_time_asset(
    derived: DerivedAsset,
    *,
    sources: Sequence[str],
    days: dg.DailyPartitionsDefinition,
    completeness: float = 0.0,
) -> dg.AssetsDefinition:
    """Make a derived table an asset with daily partitions by `final_at`.

    Materialising days advances the table to the end of the last one, or as far as the watermark allows. The conservation law comes
    with it as a check (blocking), and where its results name rows of sources, join completeness (a warning below the threshold).

    Args:
        derived: the recipe.
        sources: which of its inputs are sources; the others are derived assets.
        days: the partitions.
        completeness: the least share of matched rows among those whose fate is settled, by day.
    """
    joins = isinstance(derived.operator, TracesInputs) and {*derived.inputs} <= {*sources}
    specs = [dg.AssetCheckSpec(LAW, asset=derived.name, blocking=True, description=JOINED if joins else COUNTED)]
    specs.append(dg.AssetCheckSpec(IN_DAYS, asset=derived.name, description=OUTSIDE))
    if joins:
        words = f"At least {completeness:.0%} of the settled rows of each side found a match."
        specs.append(dg.AssetCheckSpec(COMPLETENESS, asset=derived.name, description=words))

    @dg.asset(
        name=derived.name,
        deps=input_keys(derived.inputs, sources),
        partitions_def=days,
        backfill_policy=dg.BackfillPolicy.single_run(),
        check_specs=specs,
        group_name=derived.group,
        kinds={"spark", "delta"},
        description=derived.description,
    )
    def table(
        context: dg.AssetExecutionContext, config: AdvanceConfig, engine: dg.ResourceParam[EnginePort]
    ) -> Iterator[dg.MaterializeResult]:
        first, last = days_of(context)
        settled = _settled_from(engine, derived, first), last
        done = _advance(engine, derived.name, first, last, config)
        accounts = engine.accounts.days(derived.name, settled)
        _add_days(context, derived.name, accounts, first, last)
        _log(context, LAW, accounts, {a.day for a in accounts if not a.holds}, dg.AssetCheckSeverity.ERROR)
        checks = [law_check(accounts, engine.accounts.uncounted(derived.name, settled))]
        checks.append(_in_days(engine.pending.event_times(derived.name), days))
        checks += [_completeness(context, accounts, completeness)] if joins else []
        yield dg.MaterializeResult(metadata=_metadata(engine, derived) | done, check_results=checks)

    return table


def _advance(engine: EnginePort, name: str, first: date, last: date, config: AdvanceConfig) -> dict[str, Any]:
    done: dict[str, Any] = {}
    if config.rebuild:
        rebuilt = engine.rebuild(name, first, last)
        done = {"rebuilt": span(rebuilt.days), "rows_put_right": rebuilt.missing + rebuilt.extra}
    steps = list(engine.steps(name, end_of(last)))
    return done | {"steps": len(steps), "rows": sum(s.rows for s in steps)}


def _settled_from(engine: EnginePort, derived: DerivedAsset, first: date) -> date:
    """The first day of rows whose fate a run decides: it closes all that is open, also before its own first day."""
    closed_to, times = engine.pending.described(derived.name)["closed_to"], engine.pending.event_times(derived.name)
    oldest = closed_to if closed_to is not None else times[0] if times else None
    start = first if oldest is None else min(first, day_at(oldest + 1))
    return max(start, date.min + _reach(derived)) - _reach(derived)


def _reach(derived: DerivedAsset) -> timedelta:
    """How far before a day of `final_at` the rows that it settles may lie."""
    reads = derived.operator.reads
    return timedelta(days=-(-max(reads.reach) // DAY_MS)) if isinstance(reads, ByTimeRange) else timedelta(0)


def _metadata(engine: EnginePort, derived: DerivedAsset) -> dict[str, Any]:
    state = engine.pending.described(derived.name)
    metadata = {"watermark": moment(state["watermark"]), "closed_to": moment(state["closed_to"]), "lag_seconds": state["lag_ms"] / 1000}
    if state.get("waits_for"):
        metadata["waits_for"] = f"{', '.join(state['waits_for'])}: all of its sources are idle"
    if not state["steps"]:
        return metadata
    frame = engine.views.table(derived.name)
    schema, lineage = table_schema(frame.schema), column_lineage(engine, derived, frame.columns)
    return metadata | {"dagster/column_schema": schema, "dagster/column_lineage": lineage}


def _totals(accounts: Sequence[AccountPort]) -> dict[tuple[str, str], int]:
    names = sorted({a.side for a in accounts})
    return {(side, term): sum(getattr(a, term) for a in accounts if a.side == side) for side in names for term in TERMS}


def _add_days(context: dg.AssetExecutionContext, name: str, accounts: Sequence[AccountPort], first: date, last: date) -> None:
    for day in sorted({a.day for a in accounts if first <= a.day <= last}):
        context.add_asset_metadata(_sum([a for a in accounts if a.day == day]), asset_key=name, partition_key=str(day))


def law_check(accounts: Sequence[AccountPort], uncounted: Mapping[tuple[str, int], tuple[int, int]]) -> dg.AssetCheckResult:
    """The law over accounts, and the ledger's totals held to the log."""
    broken = [a for a in accounts if not a.holds]
    differing = [
        f"{source}, entry {seq}: the ledger counts {in_ledger} rows, the log holds {held}"
        for (source, seq), (in_ledger, held) in uncounted.items()
    ]
    return dg.AssetCheckResult(
        check_name=LAW,
        passed=not broken and not differing,
        severity=dg.AssetCheckSeverity.ERROR,
        description=", ".join([*(f"{a.side} {a.day}" for a in broken[:10]), *differing[:10]]) or "every row is accounted for",
        metadata={
            "broken": dg.MetadataValue.json([_row(a) for a in broken[:10]]),
            "days": len({a.day for a in accounts}),
            **_sum(accounts),
        },
    )


def _in_days(times: tuple[int, int] | None, days: dg.DailyPartitionsDefinition) -> dg.AssetCheckResult:
    """Report events outside of the partitions, by the ledger: they are handled as all others, and shown on no day."""
    known = range_of(days)
    outside = times is not None and (known is None or times[0] < start_of(known[0]) or times[1] > end_of(known[1]))
    description = (
        "events lie outside of the days: their results are in the table, and in no partition" if outside else "all events lie in the days"
    )
    return dg.AssetCheckResult(
        check_name=IN_DAYS,
        passed=not outside,
        severity=dg.AssetCheckSeverity.WARN,
        description=description,
        metadata={
            "oldest_event_time": moment(times[0] if times else None),
            "newest_event_time": moment(times[1] if times else None),
            "days": span(known or ()),
        },
    )


def _completeness(context: dg.AssetExecutionContext, accounts: Sequence[AccountPort], least: float) -> dg.AssetCheckResult:
    poor = [a for a in accounts if a.completeness < least]
    _log(context, COMPLETENESS, accounts, {a.day for a in poor}, dg.AssetCheckSeverity.WARN)
    worst = min(accounts, key=lambda a: a.completeness, default=None)
    return dg.AssetCheckResult(
        check_name=COMPLETENESS,
        passed=not poor,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{len(poor)} days and sides below {least:.0%}" if poor else f"no day below {least:.0%}",
        metadata={
            "worst": f"{worst.side} {worst.day}: {worst.completeness:.1%}" if worst else "no rows",
            "poor": [_row(a) for a in poor[:10]],
        },
    )


def _log(
    context: dg.AssetExecutionContext, check: str, accounts: Sequence[AccountPort], failed: set[date], severity: dg.AssetCheckSeverity
) -> None:
    first, last = days_of(context)
    days = sorted({a.day for a in accounts if first <= a.day <= last})
    by_day = {str(day): (day not in failed, {"rows": dg.MetadataValue.json([_row(a) for a in accounts if a.day == day])}) for day in days}
    log_days(context, check, by_day, severity)


def _row(account: AccountPort) -> dict[str, Any]:
    return {"side": account.side, "day": str(account.day), **{term: getattr(account, term) for term in TERMS}}


def _sum(accounts: Sequence[AccountPort]) -> dict[str, int]:
    return {f"{term} {side}": n for (side, term), n in _totals(accounts).items()}
