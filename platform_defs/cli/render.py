"""The output of the command line: the engine's values as plain data for JSON, and as tables."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from assets.ports import TERMS
from platform_defs.engine import DayAccount, Engine, ProgressError
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.days import moment
from platform_defs.engine.ledger.ledger import Entry
from platform_defs.engine.operations.in_parallel import compute_in_parallel
from platform_defs.engine.operations.maintenance import Maintained
from platform_defs.engine.operations.rebuild import Rebuilt
from platform_defs.safe_text import one_line, printable, shortened

COUNTS = ("rows_read", "accepted", "duplicate", "quarantined", "markers", "warned")
USUAL = ("rows_read", "accepted")
"""The counts that a table of batches always shows; the others if one of them is not 0."""
RARE = ("markers", "warned")
LONGEST_CELL = 200
"""The longest value in a table, in characters; JSON shows all of it."""


class Terminal(Console):
    """A console that escapes control sequences in all text."""

    def render_str(self, text: str, *args: Any, **kwargs: Any) -> Text:
        """The text with control characters escaped."""
        return super().render_str(printable(text), *args, **kwargs)


out = Terminal(emoji=False)


def plain(value: object) -> str:
    """A value as text that is neither markup nor a control sequence."""
    return escape(one_line(str(value)))


def instant(epoch_ms: int | None) -> str | None:
    """An instant as text, in ms and UTC."""
    return None if epoch_ms is None else moment(epoch_ms).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def show(as_json: bool, report: dict[str, Any], table: Callable[[dict[str, Any]], None]) -> None:
    """Print a report: as JSON, or by a function that prints it for a terminal."""
    print(json.dumps(report, default=str, indent=2)) if as_json else table(report)


def head_of(rows: DataFrame, limit: int) -> dict[str, Any]:
    """The `total` number of rows, and the first of them as the plain data `rows`."""
    first = rows.limit(limit).select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
    return {"total": rows.count(), "rows": [json.loads(row[0]) for row in first]}


def entry(batch: Entry) -> dict[str, Any]:
    """A ledger batch."""
    sources = {s.source: {c: getattr(s, c) for c in COUNTS} | {"watermark": instant(s.watermark), "idle": s.idle} for s in batch}
    return {"seq": batch[0].seq, "kind": batch[0].kind, "sources": sources}


def step(asset: str, done: Step) -> dict[str, Any]:
    """A step of an asset."""
    return {"asset": asset, "step": done.after.step, "seq": done.after.seq, "closed_to": instant(done.after.closed_to), "rows": done.rows}


def rebuilt(asset: str, done: Rebuilt) -> dict[str, Any]:
    """The result of a rebuild."""
    return {"asset": asset, "days_put_right": [str(d) for d in done.days], "missing": done.missing, "extra": done.extra}


def maintained(done: Maintained) -> dict[str, Any]:
    """The result of a table's maintenance."""
    return asdict(done)


def status(engine: Engine, assets: Iterable[str]) -> dict[str, Any]:
    """The state of the lake and of these assets, from one snapshot."""
    engine = engine.snapshot()
    if engine.ledger.head:
        _ = engine.reading  # the session starts here, and not in several threads
    return {
        "lake": engine.lake.root,
        "ledger_head": engine.ledger.head,
        "sources": {name: _source(engine, name) for name in engine.sources},
        "assets": compute_in_parallel(assets, partial(_asset, engine)),
    }


def late(engine: Engine, source: str, asset: str, limit: int) -> dict[str, Any]:
    """The late rows of a source for an asset: their number, and the first of them."""
    summary: dict[str, Any] = {"source": source, "asset": asset, "total": 0, "rows": []}
    if not engine.ledger.head:
        return summary
    return summary | head_of(engine.views.late(asset, source).orderBy("seq", "arrival"), limit)


def _source(engine: Engine, name: str) -> dict[str, Any]:
    counts, last = engine.ledger.totals(name), engine.ledger.last().get(name)
    times = {"watermark": instant(last and last.watermark), "max_event_time": instant(last and last.max_event_time)}
    return counts | times | {"idle": bool(last and last.idle)}


def _asset(engine: Engine, name: str) -> dict[str, Any]:
    state, reached = engine.pending.described(name), engine.pending.progress(name)
    summary: dict[str, Any] = {
        "operator": reached.operator,
        "steps": reached.step,
        "ledger_entry": reached.seq,
        "closed_to": instant(state["closed_to"]),
        "watermark": instant(state["watermark"]),
        "lag_seconds": state["lag_ms"] / 1000,
        "complete_to": state["complete_to"],
        "waits_for": state["waits_for"],
    }
    if reached.step == 0 and engine.ledger.head == 0:
        return summary | {"pairs": 0, "law": {"holds": True, "broken": []}}
    try:
        accounts, pairs = engine.accounts.days(name), engine.accounts.pairs(name)
    except ProgressError as error:
        return summary | {"law": {"holds": False, "broken": [], "refused": str(error)}}
    counted = (
        {"results": engine.views.table(name).count() if engine.lake.delta(name) is not None else 0} if pairs is None else {"pairs": pairs}
    )
    return summary | counted | {**_by_side(accounts), "law": _law(accounts, engine.accounts.count_differences(name))}


def _by_side(accounts: Sequence[DayAccount]) -> dict[str, dict[str, int]]:
    names = sorted({a.side for a in accounts})
    return {term: {side: sum(getattr(a, term) for a in accounts if a.side == side) for side in names} for term in TERMS}


def _law(accounts: Sequence[DayAccount], count_differences: dict[tuple[str, int], tuple[int, int]]) -> dict[str, Any]:
    broken = [{"side": a.side, "day": str(a.day), **{t: getattr(a, t) for t in TERMS}} for a in accounts if not a.holds]
    entries = [{"source": s, "seq": n, "ledger": in_ledger, "log": held} for (s, n), (in_ledger, held) in sorted(count_differences.items())]
    return {"holds": not broken and not entries, "broken": broken, "ledger_differs_from_log": entries}


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    out.print(_as_table(title, columns, rows))
    out.print()


def _as_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    table = Table(
        title=plain(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1)
    )
    for n, column in enumerate(columns):
        table.add_column(plain(column.replace("_", " ")), justify="right" if n and rows and isinstance(rows[0][n], int | float) else "left")
    for row in rows:
        table.add_row(*["" if v is None else f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else plain(v) for v in row])
    return table


def print_entries(report: dict[str, Any]) -> None:
    """Ledger batches."""
    found = [(e, name, s) for e in report["entries"] for name, s in e["sources"].items()]
    if not found:
        out.print("Nothing new has landed.")
        return
    shown = [c for c in COUNTS if c in USUAL or any(s[c] for _, _, s in found)]
    kinds = ["kind"] if any(e["kind"] != "rows" for e, _, _ in found) else []
    rows = [[e["seq"], *[e[kind] for kind in kinds], name, *[s[c] for c in shown], s["watermark"]] for e, name, s in found]
    _table("Ledger batches", ["seq", *kinds, "source", *shown, "watermark"], rows)


def batch_line(batch: Entry) -> str:
    """A ledger batch as one line: the counts of each source that are not 0, and its watermark."""
    parts = [_source_line(name, counts) for name, counts in entry(batch)["sources"].items() if any(counts[c] for c in COUNTS)]
    return f"batch {batch[0].seq}: {'; '.join(parts) or batch[0].kind}"


def _source_line(name: str, counts: dict[str, Any]) -> str:
    found = ", ".join(f"{counts[c]:,} {c.replace('_', ' ')}" for c in COUNTS if counts[c])
    return f"{name} {found}, watermark {counts['watermark'] or 'none yet'}"


def print_steps(report: dict[str, Any]) -> None:
    """Steps."""
    rows = [list(s.values()) for s in report["steps"]]
    _table("Steps", ["asset", "step", "seq", "closed to", "rows"], rows) if rows else out.print(
        "Nothing to do: every table is at its watermark."
    )


def print_backfill(report: dict[str, Any]) -> None:
    """The result of a backfill."""
    for done in report["rebuilt"]:
        days, missing, extra = ", ".join(done["days_put_right"]) or "the whole table", done["missing"], done["extra"]
        repaired = f"repaired: {days} ({missing} rows missing, {extra} extra)" if missing or extra else "rebuilt, no difference"
        out.print(f"{plain(done['asset'])}: {repaired}")
    print_steps(report)


def print_drain(report: dict[str, Any]) -> None:
    """The result of a drain."""
    print_entries(report)
    print_steps(report)


def print_late(report: dict[str, Any]) -> None:
    """Late rows and their number."""
    if not report["rows"]:
        out.print(f"No row of {plain(report['source'])} is late for {plain(report['asset'])}.", highlight=False)
        return
    _print_rows(f"Late rows of {report['source']} for {report['asset']}", report)


def print_rows(report: dict[str, Any]) -> None:
    """Rows of a table and their number."""
    if not report["rows"]:
        out.print(f"{plain(report['table'])} has no such rows.", highlight=False)
        return
    _print_rows(f"Rows of {report['table']}", report)


def _print_rows(title: str, report: dict[str, Any]) -> None:
    """The first rows and the total number; as a table if the terminal is wide enough, else with one column in each line."""
    rows, total = report["rows"], report["total"]
    columns, cells = list(rows[0]), [[_cell(row[column]) for column in row] for row in rows]
    title += f": {total:,}" + (f", of which {len(rows):,} are shown" if total > len(rows) else "")
    table = _as_table(title, columns, cells)
    if Measurement.get(out, out.options.update(max_width=100_000), table).maximum <= out.width:
        out.print(table)
        return
    out.print(Text(one_line(title), style="bold"))
    for number, row in enumerate(cells, 1):
        out.print(f"[bold]{number}[/]", highlight=False)
        for column, cell in zip(columns, row, strict=True):
            out.print(f"  {plain(column)}: {plain(cell)}", highlight=False)


def _cell(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, LONGEST_CELL)


def print_maintained(report: dict[str, Any]) -> None:
    """The results of maintenance."""
    rows = [[t["table"], t["before"], t["after"], t["removed"], t["left"] or t["failed"]] for t in report["tables"]]
    _table("Maintained", ["table", "files before", "after", "deleted", "skipped, and why"], rows) if rows else out.print("No tables yet.")


def print_status(report: dict[str, Any]) -> None:
    """The state of the lake."""
    out.print(f"[bold]Lake[/] {plain(report['lake'])}, {report['ledger_head']} ledger batches", highlight=False)
    shown = [c for c in COUNTS if c not in RARE or any(s[c] for s in report["sources"].values())]
    rows = [
        [name, *[s[c] for c in shown], f"{s['watermark'] or 'none yet'}{', idle' if s['idle'] else ''}"]
        for name, s in report["sources"].items()
    ]
    _table("Sources", ["source", *shown, "watermark"], rows)
    for name, asset in report["assets"].items():
        _print_asset(name, asset)


def _print_asset(name: str, asset: dict[str, Any]) -> None:
    if not asset["steps"] and asset["law"]["holds"]:
        waits = f"; it waits for {', '.join(asset['waits_for'])}, whose sources are all idle" if asset["waits_for"] else ""
        out.print(f"[bold]{plain(name)}[/]: nothing is finalized yet{plain(waits)}", highlight=False, soft_wrap=True)
        return
    if "refused" in asset["law"]:
        out.print(
            f"[bold]{plain(name)}[/]: [red]cannot be accounted for:[/] {escape(asset['law']['refused'])}", highlight=False, soft_wrap=True
        )
        return
    filters = any(asset.get("filtered", {}).values())
    terms = [t for t in TERMS if t in asset and (filters or t != "filtered")]
    names = sorted(asset["accepted"])
    _table(f"{name}: rows by side", ["side", *terms], [[side, *[asset[t][side] for t in terms]] for side in names])
    made = f"{asset['pairs']:,} pairs" if "pairs" in asset else f"{asset['results']:,} results"
    closed = f"finalized up to {asset['closed_to']}, lag {asset['lag_seconds']:,} s, days complete to {asset['complete_to']}"
    handled = f"all of ledger batch {asset['ledger_entry']} handled" if asset["steps"] else "nothing is finalized yet"
    progress = closed if asset["closed_to"] else handled
    out.print(f"  {made}; {progress}", highlight=False, soft_wrap=True)
    if asset["waits_for"]:
        out.print(f"  It waits for {plain(', '.join(asset['waits_for']))}, whose sources are all idle", highlight=False, soft_wrap=True)
    law = asset["law"]
    if law["holds"]:
        out.print(
            "  [green]The conservation law holds:[/] accepted = matched + unmatched + pending + late"
            f"{' + filtered' if filters else ''}, on every side and day.",
            soft_wrap=True,
        )
    for broken in law["broken"]:
        out.print(f"  [red]The law is violated[/] for {plain(broken['side'])} on {broken['day']}: {plain(broken)}", highlight=False)
    for differs in law.get("ledger_differs_from_log", []):
        out.print(f"  [red]Ledger and log differ:[/] {plain(differs)}", highlight=False)


def print_demo(report: dict[str, Any]) -> None:
    """The result of the demo: the status, the simulated rows, the tables' paths, and the command that opens the UI."""
    print_status(report["status"])
    if report["planned"]:
        kinds = sorted({k for counts in report["planned"].values() for k in counts})
        rows = [[kind.replace("_", " "), *[counts.get(kind, 0) for counts in report["planned"].values()]] for kind in kinds]
        _table("Rows that the simulator has written", ["rows", *report["planned"]], rows)
    out.print("[bold]Tables[/]")
    for name, path in report["tables"].items():
        out.print(f"  {name:<22} {plain(path)}", highlight=False, soft_wrap=True)
    out.print()
    out.print(f"Open the UI with: [bold]{plain(report['ui'])}[/]", highlight=False, soft_wrap=True)
