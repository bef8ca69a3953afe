"""The command line: `tidemark`."""

import json
from collections.abc import Callable, Iterable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, cast

import typer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from assets.partitions import end_of
from operators.contract import Upsert
from operators.errors import TidemarkError
from platform_defs.cli import quarantine as quarantine_cli
from platform_defs.cli import render
from platform_defs.cli import tables as tables_cli
from platform_defs.cli.arguments import ArgumentError, interval, one_folder
from platform_defs.cli.failures import Failures
from platform_defs.engine import Engine, MaintenanceError
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.lake.errors import spark_condition
from platform_defs.engine.lake.interrupts import ends_in_order
from platform_defs.engine.operations.advance_all import AdvanceAll, Failed
from platform_defs.paths import canonical, canonical_local
from platform_defs.resources.engine import make_engine
from platform_defs.resources.spark import SparkResource
from platform_defs.safe_text import without_credentials
from platform_defs.settings import settings

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Temporal operators on Spark, every row accounted for."
)
app.add_typer(quarantine_cli.app, name="quarantine")
app.add_typer(tables_cli.app)
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Named = Annotated[list[str] | None, typer.Argument(metavar="[ASSET]...", help="These assets alone; all of them if none is named.")]
Day = Annotated[str, typer.Option(help="A day of final_at, YYYY-MM-DD, UTC.")]
Arrival = Literal["by_time", "as_is"]
_UsageError = cast(type[Exception], typer.BadParameter.__base__)
"""What Typer raises for a command line that it cannot read."""

errors = render.Terminal(stderr=True, emoji=False)


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
    orders: Annotated[int, typer.Option(help="Orders of the simulated day.", min=1, max=10_000_000)] = 2_000,
    parts: Annotated[int, typer.Option(help="Micro-batches to feed it in.", min=1, max=10_000)] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the simulated day.")] = 7,
    arrival: Annotated[Arrival, typer.Option(help="How Olist rows come: sorted by time, or as its files have them.")] = "by_time",
    lake: Annotated[
        str | None, typer.Option(help="The demo's lake, which it empties: absent, empty or a demo's own. By default .tidemark/demo.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Feed a shop day (or Olist's sample) through Dagster in micro-batches, in a lake of its own, and account for every row."""
    folder = one_folder("--lake", lake, canonical_local) if lake is not None else None
    from platform_defs.cli import demo as demos  # Great Expectations and Dagster take seconds to import, and nothing else here needs them

    with _progress() as bar:
        task = bar.add_task("starting", total=parts + 1)
        report = demos.run(
            data,
            orders=orders,
            parts=parts,
            seed=seed,
            arrival=arrival,
            lake=folder,
            tick=lambda step: bar.update(task, description=step, advance=1),
        )
    _show(as_json, report, render.print_demo)


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
    """Ingest what has landed."""
    looks = interval("--every", every)
    engine = _engine()
    advancing = AdvanceAll(partial(engine.steps, checked=True), [*engine.assets], _report_failed)
    with _progress() as bar, ends_in_order():
        task = bar.add_task("ledger batches", total=None)

        def entered(_: object) -> None:
            bar.update(task, advance=1)
            if every:
                advancing()

        try:
            entries, failed = engine.ingest(looks, entered, advancing.retry), None
        except UnreadError as error:  # what was ingested is shown all the same
            entries, failed = error.entries, error
    _show(as_json, {"entries": [render.entry(e) for e in entries]}, render.print_entries)
    if failed is not None:
        raise failed


def _report_failed(asset: str, failed: Failed) -> None:
    error = failed.error
    reason = _without_rows(error) if isinstance(error, (PySparkException, Py4JJavaError)) else str(error) or type(error).__name__
    tries = f"{failed.tries} tries" if failed.tries > 1 else "1 try"
    text = f"{asset} does not advance ({tries}): {reason}. It is tried again in {failed.wait_s:.0f} s; all else goes on"
    errors.print(f"[bold yellow]warning:[/] {escape(text)}", highlight=False, soft_wrap=True)


@app.command()
def advance(assets: Named = None, as_json: Json = False) -> None:
    """Advance derived tables as far as their watermarks allow. Where one fails, those not made of it go on."""
    engine = _engine()
    failures = Failures(engine.assets, _without_rows)
    _show(as_json, {"steps": _advance_all(engine, None, _named(engine, assets), failures)}, render.print_steps)
    failures.check()


def _named(engine: Engine, assets: list[str] | None) -> list[str]:
    for name in assets or []:
        _known("assets", name, engine.assets)
    return assets or [*engine.assets]


def _advance_all(engine: Engine, until: int | None, assets: Iterable[str], failures: Failures) -> list[dict[str, Any]]:
    """The steps made, of every asset that is not made of a failed one; `failures` keeps which failed."""
    steps_made: list[dict[str, Any]] = []
    with _progress() as bar:
        for name in assets:
            if failures.is_blocked(name):
                continue
            with failures.kept(name):
                state = engine.pending.described(name)
                task = bar.add_task(f"{name} (hours of event time)", total=state["lag_ms"] // 3_600_000)
                for step in engine.steps(name, until):
                    steps_made.append(render.step(name, step))
                    bar.update(task, completed=(state["lag_ms"] - engine.pending.described(name)["lag_ms"]) // 3_600_000)
    return steps_made


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
        raise ArgumentError(f"`--from` is {first} and `--to` is {last}; legal: a range of days that does not end before it starts")
    engine = _engine()
    failures, rebuilt = Failures(engine.assets, _without_rows), list[dict[str, Any]]()
    for name in engine.assets if rebuild else ():
        if not failures.is_blocked(name):
            with failures.kept(name):
                rebuilt.append(render.rebuilt(name, engine.rebuild(name, from_day, to_day)))
    steps = _advance_all(engine, end_of(to_day), [n for n in engine.assets if n not in failures.found], failures)
    _show(as_json, {"rebuilt": rebuilt, "steps": steps}, render.print_backfill)
    failures.check()


@app.command()
def rebuild(
    assets: Annotated[list[str], typer.Argument(metavar="ASSET...", help="The tables to make again.")],
    downstream: Annotated[bool, typer.Option(help="Make every table that reads them again too.")] = False,
    as_json: Json = False,
) -> None:
    """Make tables again from the event logs, under the present settings. For days of a table see `backfill --rebuild`."""
    engine = _engine()
    names = _named(engine, assets)
    steps = [render.step(name, step) for name, step in engine.remake(names, downstream=downstream)]
    _show(as_json, {"steps": steps}, render.print_steps)


@app.command()
def drain(assets: Named = None, as_json: Json = False) -> None:
    """Close the end of the input: nothing more will come, so every row's fate is settled. What comes later is late."""
    engine = _engine()
    named = _named(engine, assets)
    entry = engine.drain()
    failures = Failures(engine.assets, _without_rows)
    steps = _advance_all(engine, None, named, failures)
    _show(as_json, {"entries": [render.entry(entry)] if entry else [], "steps": steps}, render.print_drain)
    failures.check()


@app.command()
def maintain(as_json: Json = False) -> None:
    """Compact small files, delete what no version needs, and make checkpoints, beside whatever writes to the lake."""
    engine = _engine()
    done = engine.maintain()
    _show(as_json, {"tables": [render.maintained(m) for m in done]}, render.print_maintained)
    MaintenanceError.check(done)


@app.command()
def status(assets: Named = None, as_json: Json = False) -> None:
    """Sources, watermarks, lag, counts and the conservation law, at a glance."""
    engine = _engine()
    _show(as_json, render.status(engine, _named(engine, assets)), render.print_status)


@app.command()
def publish(
    asset: Annotated[str, typer.Argument(help="An asset whose rows replace each other, e.g. category_leaderboard.")],
    folder: Annotated[str, typer.Argument(help="Where to write, a path or a URI; one folder an asset.")],
    as_json: Json = False,
) -> None:
    """Write what changed in a leaderboard since the last time, as keyed upserts with tombstones, a folder a step."""
    target = one_folder("folder", folder, canonical)
    engine = _engine()
    _known("asset", asset, [name for name, a in engine.assets.items() if isinstance(a.operator.emits, Upsert)])
    published = {"asset": asset, "folder": target, "step": engine.views.publish(asset, target)}
    _show(
        as_json,
        published,
        lambda t: render.out.print(f"{render.plain(t['folder'])} holds {t['asset']} up to step {t['step']}", highlight=False),
    )


@app.command()
def late(
    source: Annotated[str, typer.Argument(help="A source, e.g. payments.")],
    asset: Annotated[str, typer.Option(help="The asset that judges.")] = "payment_order_wide",
    limit: Annotated[int, typer.Option(help="Rows to show.", min=1, max=100_000)] = 20,
    as_json: Json = False,
) -> None:
    """Show the rows of a source that came too late for an asset: how many, and the first of them."""
    engine = _engine()
    _known("asset", asset, [name for name, a in engine.assets.items() if {*a.inputs} & {*engine.sources}])
    _known("source", source, [name for name in engine.assets[asset].inputs if name in engine.sources])
    if not engine.ledger.head and not as_json:
        render.out.print("Nothing has landed yet.")
        return
    _show(as_json, render.late(engine, source, asset, limit), render.print_late)


def _known(argument: str, name: str, legal: Iterable[str]) -> None:
    if name not in legal:
        raise ArgumentError.bad_value(argument, name, ", ".join(legal))


def _day(option: str, text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ArgumentError.bad_value(option, text, "a day, YYYY-MM-DD") from None
    if day.year > 9998:  # the day after a range must be a day too
        raise ArgumentError.bad_value(option, text, "a day up to 9998-12-31")
    return day


def _without_rows(error: PySparkException | Py4JJavaError) -> str:
    """What Spark failed with: the error's class and condition, for its text may quote rows."""
    why = "its text may quote rows, so it is not shown. TIDEMARK_TRACEBACK=1 shows it, with the traceback"
    return f"Spark failed with {spark_condition(error)}; {why}"


def main() -> None:
    """Run the command line; what a user can put right ends in one line, not in a traceback, and so does an error of Spark."""
    try:
        code = typer.main.get_command(app).main(standalone_mode=False)
    except _UsageError as error:
        _end_usage(cast(Any, error))
    except typer.Abort:
        _end("interrupted")
    except (PySparkException, Py4JJavaError) as error:  # first: some of PySpark's are a ValueError too
        if settings().traceback:
            raise
        _end(_without_rows(error))
    except TidemarkError as error:
        _end(str(error))
    else:
        if code:
            raise SystemExit(code)


def _end_usage(error: Any) -> NoReturn:
    """End on a command line that cannot be read; one without a command gets the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        raise SystemExit(error.exit_code)
    _end(error.format_message().replace("\n", " "), error.exit_code)


def _end(message: str, code: int = 1) -> NoReturn:
    errors.print(f"[bold red]error:[/] {escape(without_credentials(message))}", highlight=False, soft_wrap=True)
    raise SystemExit(code) from None


__all__ = ["app", "main"]
