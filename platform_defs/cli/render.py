"""The output of the command line: converts the engine's values to plain data for JSON, and prints them as tables."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from assets.days import moment
from assets.factories.sentences import count
from platform_defs.engine import Engine, ProgressError
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.formats.json_values import from_json, to_json
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.first_rows import first_rows
from platform_defs.engine.ledger.ledger import Batch
from platform_defs.engine.operations.export import View
from platform_defs.engine.operations.maintenance import Maintained, retention_of
from platform_defs.engine.operations.rebuild import Rebuilt
from platform_defs.safe_text import one_line, printable, shortened

COUNTS = ("rows_read", "accepted", "duplicate", "quarantined", "markers", "warned")
USUAL = ("rows_read", "accepted")
"""The counts that a table of batches always shows; it leaves out each other count that is 0 in every batch."""
RARE = ("markers", "warned")
"""The counts that a table of sources leaves out if they are 0 for every source."""
LONGEST_CELL = 200
"""The longest value in a table, in characters; JSON shows all of it."""
_ANY_WIDTH = 10_000


class Terminal(Console):
    """A console that escapes control sequences in all text."""

    def render_str(self, text: str, *args: Any, **kwargs: Any) -> Text:
        """The text with control characters escaped."""
        return super().render_str(printable(text), *args, **kwargs)


out = Terminal(emoji=False)
errors = Terminal(stderr=True, emoji=False)


def plain(value: object) -> str:
    """A value as text that is neither markup nor a control sequence."""
    return escape(one_line(str(value)))


def instant(epoch_ms: int | None) -> str | None:
    """An instant as text, with milliseconds and in UTC; None for None."""
    return None if epoch_ms is None else moment(epoch_ms).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def short_instant(instant_text: str | None) -> str | None:
    """An instant's text without milliseconds and zone, so that printed tables fit 80 columns. JSON has the whole text."""
    return instant_text and instant_text[:19]


def heading(count: str) -> str:
    """The heading of a count in a table of sources."""
    return "read" if count == "rows_read" else count


def print_warning(text: str) -> None:
    """Print a warning to standard error."""
    errors.print(f"[bold yellow]warning:[/] {escape(text)}", highlight=False, soft_wrap=True)


def show(as_json: bool, report: dict[str, Any], table: Callable[[dict[str, Any]], None]) -> None:
    """Print a report: as JSON, or by a function that prints it for a terminal."""
    print(to_json(report, indent=2)) if as_json else table(report)


def head_of(rows: DataFrame, limit: int) -> dict[str, Any]:
    """`total`, the number of a frame's rows, and `rows`, the first of them as plain data."""
    first = rows.limit(limit).select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).collect()
    return {"total": rows.count(), "rows": [from_json(row[0]) for row in first]}


def batch_report(batch: Batch) -> dict[str, Any]:
    """A ledger batch as plain data."""
    sources = {s.source: {c: getattr(s, c) for c in COUNTS} | {"watermark": instant(s.watermark), "idle": s.idle} for s in batch}
    return {"seq": batch[0].seq, "kind": batch[0].kind, "sources": sources}


def step(asset: str, committed: Step) -> dict[str, Any]:
    """A step of an asset as plain data."""
    after = committed.after
    return {"asset": asset, "step": after.step, "seq": after.seq, "closed_to": instant(after.closed_to), "rows": committed.rows}


def rebuild_outcome(asset: str, outcome: Rebuilt) -> dict[str, Any]:
    """The result of a rebuild of days as plain data."""
    kept_from = {} if outcome.kept_from is None else {"kept_from": str(outcome.kept_from)}
    differences = {"days_corrected": [str(d) for d in outcome.days], "missing": outcome.missing, "extra": outcome.extra}
    return {"asset": asset, **differences, **kept_from, **({} if outcome.is_compared else {"compared": False})}


def maintenance_outcome(outcome: Maintained) -> dict[str, Any]:
    """The result of a table's maintenance as plain data."""
    return asdict(outcome)


def rows_of_view(engine: Engine, view: View, limit: int) -> dict[str, Any]:
    """The number of rows of a view, and the first rows. For present rows it needs no session, unless only Spark can convert them."""
    if view.is_present and (count_and_rows := first_rows(engine.lake, view.table, limit)) is not None:
        total, first = count_and_rows
        return {"table": view.table, "total": total, "rows": first}
    return {"table": view.table} | head_of(engine.views.show(view), limit)


def late_rows(engine: Engine, source: str, asset: str, limit: int) -> dict[str, Any]:
    """The late rows of a source for an asset: their number, and the first of them."""
    summary: dict[str, Any] = {"source": source, "asset": asset, "total": 0, "rows": []}
    if not engine.ledger.head:
        return summary
    if (count_and_rows := engine.late_rows(asset, source, limit)) is not None:
        total, rows = count_and_rows
        return summary | {"total": total, "rows": rows}
    return summary | head_of(engine.views.late(asset, source).orderBy("seq", "arrival"), limit)


def late_counts(engine: Engine, assets: Sequence[str]) -> dict[str, Any]:
    """By source and asset, the number of late rows; None if the asset is refused, or a table cannot be read."""
    engine = engine.snapshot()
    pairs = [(source, asset) for source in engine.sources for asset in assets if source in engine.assets[asset].inputs]
    return {"late": [{"source": source, "asset": asset, "total": _late_count(engine, source, asset)} for source, asset in pairs]}


def _late_count(engine: Engine, source: str, asset: str) -> int | None:
    try:
        return late_rows(engine, source, asset, 0)["total"]
    except (ProgressError, LakeError):
        return None


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below a title and the columns' names, with spaces in place of underscores."""
    _print_title(title)
    out.print(_as_table([column.replace("_", " ") for column in columns], rows))
    out.print()


def _print_title(title: str) -> None:
    """Print a title on a line of its own: a table's own title would be wrapped to the table's width."""
    out.print(Text(one_line(title), style="bold"), soft_wrap=True)


def _as_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for n, column in enumerate(columns):
        table.add_column(plain(column), justify="right" if n and rows and isinstance(rows[0][n], int | float) else "left")
    for row in rows:
        table.add_row(*["" if v is None else f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else plain(v) for v in row])
    table.collapse_padding = out.measure(table, options=out.options.update_width(_ANY_WIDTH)).maximum > out.width
    return table


def print_batches(report: dict[str, Any], without: str = "Nothing new has landed.") -> None:
    """Print ledger batches; if there are none, the text `without`."""
    source_rows = [(batch, name, counts) for batch in report["entries"] for name, counts in batch["sources"].items()]
    if not source_rows:
        out.print(without)
        return
    columns = [column for column in COUNTS if column in USUAL or any(counts[column] for _, _, counts in source_rows)]
    kinds = ["kind"] if any(batch["kind"] != "rows" for batch, _, _ in source_rows) else []
    rows = [
        [batch["seq"], *[batch[kind] for kind in kinds], name, *[counts[column] for column in columns], short_instant(counts["watermark"])]
        for batch, name, counts in source_rows
    ]
    print_table("Ledger batches", ["seq", *kinds, "source", *map(heading, columns), "watermark"], rows)


def batch_line(batch: Batch) -> str:
    """A ledger batch as one line: the counts of each source that are not 0, and its watermark."""
    source_lines = [_source_line(name, counts) for name, counts in batch_report(batch)["sources"].items() if any(counts[c] for c in COUNTS)]
    return f"batch {batch[0].seq}: {'; '.join(source_lines) or batch[0].kind}"


def _source_line(name: str, counts: dict[str, Any]) -> str:
    shown_counts = ", ".join(f"{counts[c]:,} {c.replace('_', ' ')}" for c in COUNTS if counts[c])
    return f"{name} {shown_counts}, watermark {counts['watermark'] or 'none yet'}"


def print_steps(report: dict[str, Any], *, complete: bool = True) -> None:
    """Print steps. If there are none and all tables were advanced (`complete`), print that there was nothing to do."""
    rows = [list(s.values()) for s in report["steps"]]
    if rows:
        print_table("Steps", ["asset", "step", "seq", "closed to", "rows"], rows)
    elif complete:
        out.print("Nothing to do: every table is at its watermark.")


def print_rebuild(report: dict[str, Any]) -> None:
    """Print the steps of rebuilt tables."""
    print_steps(report, complete=False)
    if not report["steps"]:
        out.print("The tables are empty: no result is final yet.")


def print_backfill(report: dict[str, Any], *, complete: bool = True) -> None:
    """Print the result of a backfill; for `complete` see `print_steps`."""
    for table in report["rebuilt"]:
        days, missing, extra = ", ".join(table["days_corrected"]) or "the whole table", table["missing"], table["extra"]
        repaired = f"repaired: {days} ({missing} rows missing, {extra} extra)" if missing or extra else "rebuilt, no difference"
        if "compared" in table:
            reason = "not compared, since it has neither a changelog nor `final_at`. After a change of its operator, run"
            repaired = f"{reason} `tidemark rebuild {plain(table['asset'])} --downstream`"
        out.print(f"{plain(table['asset'])}: {repaired}", soft_wrap=True)
        if "kept_from" in table:
            note = f"results before {table['kept_from']} are left as they are, since retention has removed rows of them"
            out.print(f"  {note}", highlight=False, soft_wrap=True)
    print_steps(report, complete=complete)


def print_drain(report: dict[str, Any], *, complete: bool = True) -> None:
    """Print the result of a drain; for `complete` see `print_steps`."""
    print_batches(report, "No watermark was raised: there are no events, or an earlier drain has raised the watermarks.")
    print_steps(report, complete=complete)


def print_late(report: dict[str, Any]) -> None:
    """Print late rows and their number."""
    if not report["rows"]:
        out.print(f"No row of {plain(report['source'])} is late for {plain(report['asset'])}.", highlight=False)
        return
    _print_rows(f"Late rows of {report['source']} for {report['asset']}", report)


def print_late_counts(report: dict[str, Any]) -> None:
    """Print the number of late rows of each source and asset, and the command that shows the rows."""
    rows = [[n["source"], n["asset"], "unknown" if n["total"] is None else n["total"]] for n in report["late"]]
    if not rows:
        out.print("No asset reads a source, so no row is late.")
        return
    print_table("Late rows", ["source", "asset", "rows"], rows)
    if refused := [n["asset"] for n in report["late"] if n["total"] is None]:
        out.print(f"Not counted: {plain(', '.join(dict.fromkeys(refused)))}. `tidemark status` gives the reason.", soft_wrap=True)
    out.print("`tidemark late SOURCE --asset ASSET` shows the rows.", markup=False, highlight=False, soft_wrap=True)


def print_rows(report: dict[str, Any]) -> None:
    """Print rows of a table and their number."""
    if not report["rows"]:
        out.print(f"{plain(report['table'])} has no matching rows.", highlight=False)
        return
    _print_rows(f"Rows of {report['table']}", report)


def print_result(report: dict[str, Any]) -> None:
    """Print the rows of a query's result, and whether there are more."""
    rows = report["rows"]
    more_note = ", and more (--limit)" if report["has_more"] else ""
    _print_cells(f"Result: {count(len(rows), 'row')}{more_note}", rows) if rows else out.print("The result has no rows.")


def _print_rows(title: str, report: dict[str, Any]) -> None:
    """Print the first rows, and the total number."""
    rows, total = report["rows"], report["total"]
    _print_cells(f"{title}: {total:,}" + (f", of which {len(rows):,} are shown" if total > len(rows) else ""), rows)


def _print_cells(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table if the terminal is wide enough, otherwise with one column in each line."""
    columns, cells = list(rows[0]), [[_cell(row[column]) for column in row] for row in rows]
    _print_title(title)
    table = _as_table(columns, cells)
    if Measurement.get(out, out.options.update(max_width=100_000), table).maximum <= out.width:
        out.print(table)
        return
    for number, row in enumerate(cells, 1):
        out.print(f"[bold]{number}[/]", highlight=False)
        for column, cell in zip(columns, row, strict=True):
            out.print(f"  {plain(column)}: {plain(cell)}", highlight=False)


def _cell(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else to_json(value, ensure_ascii=False)
    return shortened(text, LONGEST_CELL)


def print_maintained(report: dict[str, Any]) -> None:
    """Print the results of maintenance."""
    rows = [
        [table["table"], table["before"], table["after"], table["removed"], table["left"] or table["failed"]] for table in report["tables"]
    ]
    if not rows:
        out.print("No tables yet.")
        return
    print_table("Maintained", ["table", "files before", "after", "deleted", "skipped, and why"], rows)
    for table in report["tables"]:
        if (note := retention_of(table["rows_removed"], table["kept_from"], table["held_back"])) is not None:
            out.print(f"{plain(table['table'])}: {plain(note)}", highlight=False, soft_wrap=True)
