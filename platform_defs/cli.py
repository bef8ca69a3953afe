"""The command line: `tidemark`."""

import json
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from assets.partitions import end_of
from operators.contract import Upsert
from operators.errors import OperatorError
from platform_defs import quarantine_cli, report
from platform_defs.engine import Engine, IngestError, LawError, LedgerError, ProgressError
from platform_defs.engine.ingest_error import UnreadError
from platform_defs.engine.quarantine_error import QuarantineError
from platform_defs.resources.engine import make_engine
from platform_defs.resources.jars import JarError
from platform_defs.resources.java import JavaNotFound
from platform_defs.resources.lake import LakeError
from platform_defs.resources.spark import SparkResource
from platform_defs.settings import settings

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Temporal operators on Spark, every row accounted for."
)
app.add_typer(quarantine_cli.app, name="quarantine")
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Named = Annotated[list[str] | None, typer.Argument(metavar="[ASSET]...", help="These assets alone; all of them if none is named.")]
Day = Annotated[str, typer.Option(help="A day of final_at, YYYY-MM-DD, UTC.")]
Arrival = Literal["by_time", "as_is"]
EXPECTED = (
    OperatorError,
    IngestError,
    LawError,
    ProgressError,
    LedgerError,
    QuarantineError,
    LakeError,
    JavaNotFound,
    JarError,
    ValueError,
    FileExistsError,
)

errors = Console(stderr=True)


def _engine() -> Engine:
    return make_engine(settings(), SparkResource())


def _show(as_json: bool, value: dict[str, Any], table: Callable[[dict[str, Any]], None]) -> None:
    print(json.dumps(value, default=str, indent=2)) if as_json else table(value)


def _progress() -> Progress:
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=errors, transient=True)


@app.command()
def demo(
    data: Annotated[
        Path | None, typer.Option(help="Folder of Olist's CSV files; without it, a simulated shop day.", exists=True, file_okay=False)
    ] = None,
    orders: Annotated[int, typer.Option(help="Orders of the simulated day.", min=1)] = 2_000,
    parts: Annotated[int, typer.Option(help="Micro-batches to feed it in.", min=1)] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the simulated day.")] = 7,
    arrival: Annotated[Arrival, typer.Option(help="How Olist rows come: sorted by time, or as its files have them.")] = "by_time",
    as_json: Json = False,
) -> None:
    """Feed a shop day (or Olist's sample) through Dagster in micro-batches, and account for every row."""
    from platform_defs import demo as demos  # Great Expectations and Dagster take seconds to import, and nothing else here needs them

    with _progress() as bar:
        task = bar.add_task("starting", total=parts + 1)
        told = demos.run(
            data, orders=orders, parts=parts, seed=seed, arrival=arrival, tick=lambda what: bar.update(task, description=what, advance=1)
        )
    _show(as_json, told, report.print_demo)


@app.command()
def ingest(
    every: Annotated[
        str | None,
        typer.Option(
            help="Stay, and look for files at this interval, e.g. '30 seconds'; advance after each entry, each step held to the law."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Let in what has landed."""
    engine = _engine()
    with _progress() as bar:
        task = bar.add_task("ledger entries", total=None)

        def entered(_: object) -> None:
            bar.update(task, advance=1)
            for name in engine.assets if every else ():
                list(engine.lawful_steps(name))

        try:
            entries, failed = engine.let_in(every, entered), None
        except UnreadError as error:  # what was ingested beside is told all the same
            entries, failed = error.entries, error
    _show(as_json, {"entries": [report.entry(e) for e in entries]}, report.print_entries)
    if failed is not None:
        raise failed


@app.command()
def advance(assets: Named = None, as_json: Json = False) -> None:
    """Advance derived tables as far as their watermarks allow."""
    engine = _engine()
    _show(as_json, {"steps": _advance_all(engine, None, _named(engine, assets))}, report.print_steps)


def _named(engine: Engine, assets: list[str] | None) -> list[str]:
    for name in assets or []:
        _known("assets", name, engine.assets)
    return assets or [*engine.assets]


def _advance_all(engine: Engine, until: int | None, assets: Iterable[str]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    with _progress() as bar:
        for name in assets:
            state = engine.described(name)
            task = bar.add_task(f"{name} (hours of event time)", total=state["lag_ms"] // 3_600_000)
            for step in engine.steps(name, until):
                told.append(report.step(name, step))
                bar.update(task, completed=(state["lag_ms"] - engine.described(name)["lag_ms"]) // 3_600_000)
    return told


@app.command()
def backfill(
    first: Annotated[str, typer.Option("--from", help="The first day of final_at, YYYY-MM-DD, UTC.")],
    last: Annotated[str, typer.Option("--to", help="The last day.")],
    rebuild: Annotated[bool, typer.Option(help="Recompute days that are closed already, and put right what differs.")] = False,
    as_json: Json = False,
) -> None:
    """Advance every derived table to the end of a range of days; with --rebuild, recompute its closed days first."""
    from_day, to_day = _day("--from", first), _day("--to", last)
    if from_day > to_day:
        raise ValueError(f"`--from` is {first} and `--to` is {last}; legal: a range of days that does not end before it starts")
    engine = _engine()
    rebuilt = [report.rebuilt(name, engine.rebuild(name, from_day, to_day)) for name in engine.assets] if rebuild else []
    steps = _advance_all(engine, end_of(to_day), engine.assets)
    _show(as_json, {"rebuilt": rebuilt, "steps": steps}, report.print_backfill)


@app.command()
def drain(assets: Named = None, as_json: Json = False) -> None:
    """Close the end of the input: nothing more will come, so every row's fate is settled. What comes later is late."""
    engine = _engine()
    named = _named(engine, assets)
    entry = engine.drain()
    steps = _advance_all(engine, None, named)
    _show(as_json, {"entries": [report.entry(entry)] if entry else [], "steps": steps}, report.print_drain)


@app.command()
def maintain(as_json: Json = False) -> None:
    """Compact small files, delete what no version needs, and make checkpoints, beside whatever writes to the lake."""
    engine = _engine()
    _show(as_json, {"tables": [report.maintained(m) for m in engine.maintain()]}, report.print_maintained)


@app.command()
def status(assets: Named = None, as_json: Json = False) -> None:
    """Sources, watermarks, lag, counts and the conservation law, at a glance."""
    engine = _engine()
    _show(as_json, report.status(engine, _named(engine, assets)), report.print_status)


@app.command()
def publish(
    asset: Annotated[str, typer.Argument(help="An asset whose rows replace each other, e.g. category_leaderboard.")],
    folder: Annotated[str, typer.Argument(help="Where to write, a path or a URI; one folder an asset.")],
    as_json: Json = False,
) -> None:
    """Write what changed in a leaderboard since the last time, as keyed upserts with tombstones, a folder a step."""
    engine = _engine()
    _known("asset", asset, [name for name, a in engine.assets.items() if isinstance(a.operator.emits, Upsert)])
    told = {"asset": asset, "folder": folder, "step": engine.publish(asset, folder)}
    _show(as_json, told, lambda t: report.out.print(f"{t['folder']} holds {t['asset']} up to step {t['step']}", highlight=False))


@app.command()
def late(
    source: Annotated[str, typer.Argument(help="A source, e.g. payments.")],
    asset: Annotated[str, typer.Option(help="The asset that judges.")] = "payment_order_wide",
    limit: Annotated[int, typer.Option(help="Rows to show.")] = 20,
) -> None:
    """Show the rows of a source that came too late for an asset: the view `late/<asset>`."""
    engine = _engine()
    _known("asset", asset, engine.assets)
    _known("source", source, [name for name in engine.assets[asset].inputs if name in engine.sources])
    if not engine.ledger.head:
        report.out.print("Nothing has landed yet.")
        return
    engine.late(asset, source).orderBy("seq", "arrival").show(limit, truncate=False)


def _known(what: str, name: str, legal: Iterable[str]) -> None:
    if name not in legal:
        raise ValueError(f"`{what}` is {name!r}; legal: {', '.join(legal)}")


def _day(option: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"`{option}` is {text!r}; legal: a day, YYYY-MM-DD") from None


def _without_rows(error: PySparkException | Py4JJavaError) -> str:
    """What Spark failed with: the error's class and condition, for its text may quote rows."""
    if isinstance(error, PySparkException):
        named = " ".join(filter(None, (type(error).__name__, error.getCondition())))
    else:
        named = error.java_exception.getClass().getName()
    return f"Spark failed with {named}; its text may quote rows, so it is not shown. TIDEMARK_TRACEBACK=1 shows it, with the traceback"


def main() -> None:
    """Run the command line; what a user can put right ends in one line, not in a traceback, and so does an error of Spark."""
    try:
        app()
    except (PySparkException, Py4JJavaError) as error:  # first: some of PySpark's are a ValueError too
        if settings().traceback:
            raise
        _end(_without_rows(error))
    except EXPECTED as error:
        _end(str(error))


def _end(told: str) -> NoReturn:
    errors.print(f"[bold red]error:[/] {escape(told)}", highlight=False, soft_wrap=True)
    raise SystemExit(1) from None


__all__ = ["app", "main"]
