"""The state of a lake, as plain data and as printed tables, with the recorded accounts or with a new account of every row."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any

from rich.markup import escape

from assets.days import day_end, day_of
from assets.factories.sentences import count, duration
from assets.ports import TERMS
from platform_defs.cli import monitored, uncompared
from platform_defs.cli.render import COUNTS, RARE, heading, instant, out, plain, print_table, short_instant
from platform_defs.cli.unreadable import state_or_reason
from platform_defs.engine import DayAccount, Engine, ProgressError
from platform_defs.engine.accounting.day_accounts import longest_wait
from platform_defs.engine.accounting.recorded_account import RecordedAccount
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.operations.in_parallel import compute_in_parallel

_DIFFERS = "ledger_differs_from_log"
_RARE_TERMS = ("filtered", "missing", "extra")
"""The terms that a printed table of rows by side leaves out if they are 0 on every side, since not all terms fit in 80 columns."""
_EQUAL = "[green]The table equals a recomputation[/] from the changelog that it reads."


def recorded_status(engine: Engine, assets: Iterable[str]) -> dict[str, Any]:
    """The state of the lake and of some tables, from one snapshot, with the newest recorded accounts. It needs no Spark session."""
    engine = engine.snapshot()
    return _lake(engine) | {"assets": {name: state_or_reason(_recorded_table, engine, name) for name in assets}}


def recounted_status(engine: Engine, assets: Iterable[str]) -> dict[str, Any]:
    """The state of the lake and of some tables, from one snapshot. It accounts for every row, and records the accounts."""
    engine = engine.snapshot()
    if engine.ledger.head:
        _ = engine.workspace  # start the session now, so that several threads do not start it at once
    return _lake(engine) | {"assets": compute_in_parallel(assets, partial(state_or_reason, _recounted_table, engine))}


def _lake(engine: Engine) -> dict[str, Any]:
    sources = {name: _source(engine, name) for name in engine.sources}
    failure = monitored.failure(engine.failures.of_ingest())
    sinks = {name: error for name in engine.sinks if (error := monitored.failure(engine.failures.of_sink(name))) is not None}
    failures = {"ingest_failure": failure, "sink_failures": sinks}
    ledger = {"ledger_head": engine.ledger.head, "ledger_retention": _ledger_retention(engine)}
    return {"lake": engine.lake.root, **ledger, "sources": sources, **failures}


def _ledger_retention(engine: Engine) -> dict[str, Any] | None:
    """The first batch that the ledger keeps, how many rows the next maintenance can remove, and why not more; None if it keeps all."""
    planned = engine.ledger_retention.plan() if engine.ledger.head else None
    if planned is None:
        return None
    return {"first_batch": engine.ledger.history.summarized + 1, "removable_rows": planned.rows, "held_back": planned.held_back}


def _source(engine: Engine, name: str) -> dict[str, Any]:
    counts, last = engine.ledger.totals(name), engine.ledger.newest_rows().get(name)
    times = {"watermark": instant(last and last.watermark), "max_event_time": instant(last and last.max_event_time)}
    failure = monitored.failure(engine.failures.of_source(name))
    removed = engine.pending.removed_rows(name)
    retained = {} if removed is None else {"retention": {"removed_before": instant(removed.before), "rows_removed": removed.rows}}
    return counts | times | {"idle": bool(last and last.idle), **monitored.of_source(engine, name), "last_failure": failure} | retained


def _progress(engine: Engine, name: str) -> dict[str, Any]:
    state, progress = engine.pending.describe_progress(name), engine.pending.progress(name)
    return {
        "operator": progress.operator,
        "streams_as": engine.assets[name].streams_as,
        "steps": progress.step,
        "ledger_entry": progress.seq,
        "closed_to": instant(state["closed_to"]),
        "watermark": instant(state["watermark"]),
        "lag_seconds": state["lag_ms"] / 1000,
        "complete_to": state["complete_to"],
        "waits_for": state["waits_for"],
        **monitored.of_table(engine, name),
        **_retained_totals(engine, name),
        **uncompared.of_table(engine.assets[name]),
    }


def _retained_totals(engine: Engine, name: str) -> dict[str, Any]:
    """If retention has removed rows: the first day of a table that can still be computed, and the retained totals of earlier days."""
    kept_days = engine.pending.kept_days(name)
    if kept_days is None:
        return {}
    days = () if kept_days.totals is None else kept_days.totals.days
    totals = {
        side: {term: sum(day.terms.get(term, 0) for day in days if day.side == side) for term in TERMS}
        for side in sorted({day.side for day in days})
    }
    complete = None if kept_days.complete_from is None else instant(kept_days.complete_from)
    return {
        "retention": {
            "kept_from": str(day_of(kept_days.first)),
            "complete_from": complete,
            "days": len({day.day for day in days}),
            "totals": totals,
        }
    }


def _recorded_table(engine: Engine, name: str) -> dict[str, Any]:
    refused, last = engine.pending.refusal_reason(name), engine.accounts.recorded_account(name)
    law: dict[str, Any] = {"holds": None, "broken": [], _DIFFERS: []}
    if last is not None:
        law = {"holds": last.holds, "broken": _violations(last), _DIFFERS: [_difference(*values) for values in last.differences]}
    law |= _days_to_rebuild(engine, name, law["broken"]) if refused is None else {"holds": False, "refused": refused}
    return _progress(engine, name) | {"law": law, "last_account": None if last is None else _account(last)}


def _account(last: RecordedAccount) -> dict[str, Any]:
    return {"at": instant(last.at), "oldest_at": instant(last.oldest_at), "days": len({day.day for day in last.days}), **last.terms}


def _violations(last: RecordedAccount) -> list[dict[str, Any]]:
    return [{"side": day.side, "day": day.day, **day.terms} for day in last.violations]


def _recounted_table(engine: Engine, name: str) -> dict[str, Any]:
    summary = _progress(engine, name)
    if not summary["steps"] and engine.ledger.head == 0:
        number = {"pairs" if engine.accounts.has_pairs(name) else "results": 0}
        return summary | number | {**_by_side([]), "law": _law([], {})}
    try:
        (accounts, differences), pairs = engine.accounts.account_for(name), engine.accounts.pairs(name)
    except (ProgressError, LakeError) as error:
        return summary | {"law": {"holds": False, "broken": [], _DIFFERS: [], "refused": str(error)}}
    results = {"results": engine.views.table(name).count() if engine.lake.exists(name) else 0} if pairs is None else {"pairs": pairs}
    law = _law(accounts, differences)
    return summary | results | {**_by_side(accounts), "law": law | _days_to_rebuild(engine, name, law["broken"])}


def _by_side(accounts: Sequence[DayAccount]) -> dict[str, dict[str, int]]:
    names = sorted({a.side for a in accounts})
    return {term: {side: sum(getattr(a, term) for a in accounts if a.side == side) for side in names} for term in TERMS}


def _law(accounts: Sequence[DayAccount], count_differences: dict[tuple[str, int], tuple[int, int]]) -> dict[str, Any]:
    violations = [{"side": a.side, "day": str(a.day), **{t: getattr(a, t) for t in TERMS}} for a in accounts if not a.holds]
    differences = [_difference(source, batch, *counts) for (source, batch), counts in sorted(count_differences.items())]
    return {"holds": not violations and not differences, "broken": violations, _DIFFERS: differences}


def _days_to_rebuild(engine: Engine, name: str, violations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The days to rebuild, if the law is violated: from the first day with affected rows to the last on which their results are final."""
    if not violations:
        return {}
    days = [date.fromisoformat(str(account["day"])) for account in violations]
    last = day_of(day_end(max(days)) + longest_wait(engine.assets[name]))
    return {"days_to_rebuild": {"first": str(min(days)), "last": str(last)}}


def _difference(source: str, batch: int, in_ledger: int, in_log: int) -> dict[str, Any]:
    return {"source": source, "seq": batch, "ledger": in_ledger, "log": in_log}


def print_recorded(report: dict[str, Any]) -> None:
    """Print the state of the lake, with the recorded accounts."""
    _print_lake(report)
    tables: dict[str, dict[str, Any]] = report["assets"]
    print_table("Tables", ["table", "finalized up to", "lag", "law", "accounted at"], [_row(name, table) for name, table in tables.items()])
    for name, asset in tables.items():
        _print_retained(name, asset)
        if "refused" in asset["law"]:
            _print_refused(name, asset["law"]["refused"])
        elif asset["waits_for"]:
            out.print(f"{plain(name)} waits for an advance of {plain(', '.join(asset['waits_for']))}", soft_wrap=True)
        _print_violations(name, asset["law"])
    monitored.print_report(report)
    uncompared.print_uncompared(report["assets"])
    out.print("`tidemark status --recount` accounts for every row now.", markup=False, highlight=False, soft_wrap=True)


def _row(name: str, asset: dict[str, Any]) -> list[object]:
    if asset["steps"] is None:  # the table cannot be read
        return [name, *["unknown"] * 4]
    progress = asset["closed_to"] or (f"batch {asset['ledger_entry']}" if asset["steps"] and asset["ledger_entry"] else "nothing yet")
    last, law = asset["last_account"], "holds"
    if last is None or "refused" in asset["law"]:
        law = "unknown"
    elif asset["law"]["broken"] or asset["law"][_DIFFERS]:
        law = "violated"
    return [name, short_instant(progress), duration(asset["lag_seconds"]), law, "never" if last is None else last["oldest_at"][:16]]


def print_recounted(report: dict[str, Any]) -> None:
    """Print the state of the lake, with an account of every row."""
    _print_lake(report)
    for name, asset in report["assets"].items():
        _print_asset(name, asset)
    monitored.print_report(report)
    uncompared.print_uncompared(report["assets"])


def _print_lake(report: dict[str, Any]) -> None:
    out.print(f"[bold]Lake[/] {plain(report['lake'])}, {count(report['ledger_head'], 'ledger batch')}", highlight=False, soft_wrap=True)
    columns = [column for column in COUNTS if column not in RARE or any(counts[column] for counts in report["sources"].values())]
    rows = [
        [name, *[counts[column] for column in columns], short_instant(counts["watermark"]) or "none yet"]
        for name, counts in report["sources"].items()
    ]
    print_table("Sources", ["source", *map(heading, columns), "watermark"], rows)
    for name, source in report["sources"].items():
        if (retention := source.get("retention")) is not None:
            removed = f"{retention['rows_removed']:,} rows with event times before {short_instant(retention['removed_before'])}"
            out.print(f"{plain(name)}: retention has removed {removed}", highlight=False, soft_wrap=True)
    if (retention := report["ledger_retention"]) is not None:
        _print_ledger_retention(**retention)
    if idle := [name for name, counts in report["sources"].items() if counts["idle"]]:
        out.print(f"Idle sources: {plain(', '.join(idle))}", highlight=False, soft_wrap=True)


def _print_ledger_retention(first_batch: int, removable_rows: int, held_back: str | None) -> None:
    parts = [f"kept from batch {first_batch} on"]
    parts += [f"the next maintenance can remove {count(removable_rows, 'row')}"] if removable_rows else []
    parts += [] if held_back is None else [f"held back: {held_back}"]
    out.print(plain(f"ledger: {'; '.join(parts)}"), highlight=False, soft_wrap=True)


def _print_refused(name: str, reason: str) -> None:
    out.print(f"[bold]{plain(name)}[/]: [red]cannot be accounted for:[/] {escape(reason)}", highlight=False, soft_wrap=True)


def _print_asset(name: str, asset: dict[str, Any]) -> None:
    if not asset["steps"] and asset["law"]["holds"]:
        waits = f"; it waits for an advance of {', '.join(asset['waits_for'])}" if asset["waits_for"] else ""
        out.print(f"[bold]{plain(name)}[/]: nothing is finalized yet{plain(waits)}", highlight=False, soft_wrap=True)
        return
    if "refused" in asset["law"]:
        _print_refused(name, asset["law"]["refused"])
        return
    terms = [term for term in TERMS if term in asset and (term not in _RARE_TERMS or any(asset[term].values()))]
    if names := sorted(asset["accepted"]):
        print_table(f"{name}: rows by side", ["side", *terms], [[side, *[asset[term][side] for term in terms]] for side in names])
    else:  # the table reads the changelog of another table, so it has no accounts by side
        out.print(f"[bold]{plain(name)}[/]", highlight=False)
    number_of_results = count(asset["pairs"], "pair") if "pairs" in asset else count(asset["results"], "result")
    closed = f"finalized up to {asset['closed_to']}, lag {asset['lag_seconds']:,} s, days complete to {asset['complete_to']}"
    handled = f"handled up to ledger batch {asset['ledger_entry']}" if asset["steps"] else "nothing is finalized yet"
    progress = closed if asset["closed_to"] else handled
    out.print(f"  {number_of_results}; {progress}", highlight=False, soft_wrap=True)
    if asset["waits_for"]:
        out.print(f"  It waits for an advance of {plain(', '.join(asset['waits_for']))}", highlight=False, soft_wrap=True)
    _print_retained(name, asset)
    law = asset["law"]
    if law["holds"]:
        equation = f"accepted = matched + unmatched + pending + late{' + filtered' if 'filtered' in terms else ''}"
        holds = f"[green]The conservation law holds:[/] {equation}, on every side and day." if names else _EQUAL
        out.print(f"  {holds}", soft_wrap=True)
    _print_violations(name, law)


def _print_retained(name: str, asset: dict[str, Any]) -> None:
    """Print the number of days of which only totals are retained, and for a table that was made later from when on it is complete."""
    retention = asset.get("retention")
    if retention is None:
        return
    note = f"can be computed from {retention['kept_from']} on; older rows of its inputs have been removed"
    if retention["days"]:
        note = f"the totals of {count(retention['days'], 'day')} before {retention['kept_from']} are retained; their rows have been removed"
    if retention["complete_from"] is not None:
        note = f"complete from {short_instant(retention['complete_from'])} on, since older rows had been removed when it was made"
    out.print(f"  {plain(name)}: {note}", highlight=False, soft_wrap=True)


def _print_violations(name: str, law: dict[str, Any]) -> None:
    """Print each batch whose row counts differ, and each side and day that violates the conservation law."""
    for batch in law.get(_DIFFERS, []):
        counts = f"batch {batch['seq']}: {batch['ledger']:,} rows in the ledger, {batch['log']:,} in the log"
        out.print(f"  {plain(name)}: [red]ledger and log differ[/] for {plain(batch['source'])}, {counts}", highlight=False, soft_wrap=True)
    for account in law["broken"]:
        terms = ", ".join(f"{term} {account[term]:,}" for term in TERMS if term in account)
        out.print(
            f"  {plain(name)}: [red]the law is violated[/] for {plain(account['side'])} on {account['day']}: {terms}",
            highlight=False,
            soft_wrap=True,
        )


def print_demo(report: dict[str, Any]) -> None:
    """Print the result of the demo: the status, the simulated rows, the tables' paths, and the command that opens the UI."""
    print_recounted(report["status"])
    if report["planned"]:
        kinds = sorted({k for counts in report["planned"].values() for k in counts})
        rows = [[kind.replace("_", " "), *[counts.get(kind, 0) for counts in report["planned"].values()]] for kind in kinds]
        print_table("Rows that the simulator has written", ["rows", *report["planned"]], rows)
    out.print("[bold]Tables[/]")
    for name, path in report["tables"].items():
        out.print(f"  {name:<22} {plain(path)}", highlight=False, soft_wrap=True)
    out.print()
    out.print(f"Open the UI with: [bold]{plain(report['ui'])}[/]", highlight=False, soft_wrap=True)
