"""The command line: `tidemark`."""

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from assets.days import day_end
from platform_defs.cli import cluster as cluster_cli
from platform_defs.cli import metrics as metrics_cli
from platform_defs.cli import new as new_cli
from platform_defs.cli import quarantine as quarantine_cli
from platform_defs.cli import query as query_cli
from platform_defs.cli import render
from platform_defs.cli import serve as serve_cli
from platform_defs.cli import sql as sql_cli
from platform_defs.cli import status as status_report
from platform_defs.cli import tables as tables_cli
from platform_defs.cli import watch as watch_cli
from platform_defs.cli.arguments import ArgumentError, AssetNames, Json, canonical_folder, day, interval, known_assets
from platform_defs.cli.failures import Failures, StatusError, without_rows
from platform_defs.cli.stream_output import StreamOutput
from platform_defs.configured_engine import configured_engine as _engine
from platform_defs.engine import Engine, MaintenanceError
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.lake.interrupts import ending_on_sigterm
from platform_defs.engine.ledger.ledger import Batch
from platform_defs.engine.operations.in_parallel import advance_in_parallel
from platform_defs.paths import canonical_local
from platform_defs.safe_text import without_credentials
from platform_defs.settings import settings
from platform_defs.settings.stream_trigger import StreamTrigger
from platform_defs.stream.run import StreamRun

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Temporal operators on Spark, every row accounted for."
)
app.add_typer(quarantine_cli.app, name="quarantine")
app.add_typer(tables_cli.app)
app.add_typer(new_cli.app)
app.add_typer(query_cli.app)
app.add_typer(sql_cli.app)
app.add_typer(watch_cli.app)
app.add_typer(serve_cli.app)
app.add_typer(metrics_cli.app)
app.add_typer(cluster_cli.app)
Arrival = Literal["by_time", "as_is"]


def _progress() -> Progress:
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=render.errors, transient=True)


@app.command()
def demo(
    data: Annotated[
        Path | None, typer.Option(help="Folder of Olist's CSV files; without it, a simulated shop day.", exists=True, file_okay=False)
    ] = None,
    orders: Annotated[int, typer.Option(help="Orders of the simulated day; --data ignores it.", min=1, max=10_000_000)] = 2_000,
    parts: Annotated[int, typer.Option(help="Number of micro-batches.", min=1, max=10_000)] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the simulated day; --data ignores it.")] = 7,
    arrival: Annotated[Arrival, typer.Option(help="With --data: the order of Olist's rows, by time or as in the files.")] = "by_time",
    lake: Annotated[
        str | None,
        typer.Option(help="The demo's lake, emptied first: a new or empty folder, or one of an earlier demo. By default .tidemark/demo."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a simulated shop day (or Olist's sample) through Dagster in a separate lake, and account for every row."""
    folder = canonical_folder("--lake", lake, canonical_local) if lake is not None else None
    from platform_defs.cli import demo as demos  # here, since it imports Great Expectations and Dagster, which takes seconds

    with _progress() as bar:
        task = bar.add_task("starting", total=parts + 1)
        report = demos.run(
            data,
            orders=orders,
            parts=parts,
            seed=seed,
            arrival=arrival,
            lake=folder,
            on_step=lambda step: bar.update(task, description=step, advance=1),
        )
    render.show(as_json, report, status_report.print_demo)


@app.command()
def ingest(
    every: Annotated[
        str | None,
        typer.Option(
            help="Run continuously: look for new files and records at this interval, e.g. '30 seconds', advance all tables after each "
            "batch, and publish those with a Kafka topic. Changed tables are checked in turn for the conservation law, in up to 15% of the "
            "time. A violation, or Ctrl-C, ends it."
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="With --every: serve the metrics of `tidemark metrics`, step times and failed steps at this port; 0 for any free one.",
            min=0,
            max=65535,
        ),
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="The address at which --metrics-port listens.")] = "127.0.0.1",
    as_json: Json = False,
) -> None:
    """Ingest the files that have landed, and the new records of Kafka topics."""
    every_text = interval("--every", every)
    if metrics_port is not None and not every:
        raise ArgumentError.bad_value("--metrics-port", str(metrics_port), "a port together with --every; else use `tidemark metrics`")
    engine = _engine()
    with _progress() as bar, ending_on_sigterm():
        task = bar.add_task("ledger batches", total=None)

        def on_batch(_: Batch) -> None:
            bar.update(task, advance=1)

        try:
            if every is not None and every_text is not None:
                batches, unread_error = _stream(engine, on_batch, every, every_text, host=metrics_host, port=metrics_port), None
            else:
                batches, unread_error = engine.ingest(on_batch=on_batch), None
        except UnreadError as error:  # show the batches that were ingested, too
            batches, unread_error = error.batches, error
    render.show(as_json, {"entries": [render.batch_report(b) for b in batches]}, render.print_batches)
    if unread_error is not None:
        raise unread_error


def _stream(engine: Engine, on_batch: Callable[[Batch], None], every: str, every_text: str, *, host: str, port: int | None) -> list[Batch]:
    """Run a stream, and print its reports; returns the newest batches.

    Args:
        engine: the engine.
        on_batch: called with each batch.
        every: the interval as the user wrote it.
        every_text: the interval as the engine reads it.
        host: the address at which metrics are served.
        port: their port; None for no metrics.
    """
    from platform_defs.monitoring.stream_metrics import metrics_of_stream  # here, since the import takes time, and only this needs it

    output = StreamOutput(engine, _print_line, render.print_warning, on_batch)
    measured, endpoint = metrics_of_stream(engine, host, port, _print_line)
    with endpoint, output.framed(without_credentials(settings().landing_root), " ".join(every.split())):
        return StreamRun(engine, output, measured.measure_steps).run(StreamTrigger(every_text))


def _print_line(text: str) -> None:
    render.errors.print(escape(text), highlight=False, soft_wrap=True)


@app.command()
def advance(assets: AssetNames = None, as_json: Json = False) -> None:
    """Advance derived tables as far as their watermarks allow. If one fails, only the tables that read it are skipped."""
    engine = _engine()
    failures = Failures(engine.assets, without_rows)
    steps = _advance_all(engine, None, known_assets(engine.assets, assets), failures)
    render.show(as_json, {"steps": steps}, partial(render.print_steps, complete=not failures.reasons))
    failures.check()


def _reads(engine: Engine) -> dict[str, Sequence[str]]:
    """The inputs of each asset."""
    return {name: asset.inputs for name, asset in engine.assets.items()}


def _advance_all(engine: Engine, until: int | None, assets: Iterable[str], failures: Failures) -> list[dict[str, Any]]:
    """Advance assets, except those that read a failed one, and record those that fail in `failures`; returns the steps."""
    steps_made = {name: list[dict[str, Any]]() for name in assets}
    _ = engine.workspace  # start the session now, so that several threads do not start it at once

    def steps(name: str) -> Generator[Step]:
        if failures.is_blocked(name):
            return
        with failures.recording(name):
            state = engine.pending.describe_progress(name)
            task = bar.add_task(f"{name} (hours of event time)", total=state["lag_ms"] // 3_600_000)
            for step in engine.steps(name, until):
                steps_made[name].append(render.step(name, step))
                bar.update(task, completed=(state["lag_ms"] - engine.pending.describe_progress(name)["lag_ms"]) // 3_600_000)
                yield step

    with _progress() as bar:
        advance_in_parallel(_reads(engine), steps_made, steps)
    return [step for steps_of_asset in steps_made.values() for step in steps_of_asset]


@app.command()
def backfill(
    first: Annotated[str, typer.Option("--from", metavar="DAY", help="The first day to rebuild (of final_at), YYYY-MM-DD, UTC.")],
    last: Annotated[str, typer.Option("--to", metavar="DAY", help="The last day; tables are advanced to its end.")],
    rebuild: Annotated[bool, typer.Option(help="Recompute days that are already finalized, and repair results that differ.")] = False,
    as_json: Json = False,
) -> None:
    """Advance every derived table to the end of a day; with --rebuild, first recompute the days of a range that are already finalized.

    The rows of an upserted table have no day: it is advanced by all ingested rows, and recomputed completely.
    """
    from_day, to_day = day("--from", first), day("--to", last)
    if from_day > to_day:
        raise ArgumentError(f"`--from` is {first} and `--to` is {last}; legal: a range of days that does not end before it starts")
    engine = _engine()
    failures, rebuilt = Failures(engine.assets, without_rows), list[dict[str, Any]]()
    for name in engine.assets if rebuild else ():
        if not failures.is_blocked(name):
            with failures.recording(name):
                rebuilt.append(render.rebuild_outcome(name, engine.rebuild_days(name, from_day, to_day)))
    steps = _advance_all(engine, day_end(to_day), [n for n in engine.assets if n not in failures.reasons], failures)
    render.show(as_json, {"rebuilt": rebuilt, "steps": steps}, partial(render.print_backfill, complete=not failures.reasons))
    failures.check()


@app.command()
def rebuild(
    assets: Annotated[list[str], typer.Argument(metavar="ASSET", help="The tables to rebuild.")],
    downstream: Annotated[bool, typer.Option(help="Also rebuild the tables that read them; required if any of these has rows.")] = False,
    from_kept: Annotated[
        bool, typer.Option("--from-kept", help="Give up results of rows that retention has removed, which cannot be computed again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Empty tables, and make them again from the event logs, with the present settings.

    To rebuild only some days, use `tidemark backfill --from DAY --to DAY --rebuild`.
    """
    engine = _engine()
    names = known_assets(engine.assets, assets)
    steps = [render.step(name, step) for name, step in engine.rebuild_tables(names, downstream=downstream, from_kept=from_kept)]
    render.show(as_json, {"steps": steps}, render.print_rebuild)


@app.command()
def drain(assets: AssetNames = None, as_json: Json = False) -> None:
    """Declare the end of the input: raise watermarks so that every row is finalized, and advance the tables. Later rows are late.

    If assets are named, only the watermarks of their sources are raised. This also affects other tables that read these sources.
    The watermark of a source with processing time is raised to the present time only.
    """
    engine = _engine()
    names = known_assets(engine.assets, assets)
    batch = engine.drain(assets or None)
    failures = Failures(engine.assets, without_rows)
    steps = _advance_all(engine, None, names, failures)
    render.show(
        as_json,
        {"entries": [render.batch_report(batch)] if batch else [], "steps": steps},
        partial(render.print_drain, complete=not failures.reasons),
    )
    failures.check()


@app.command()
def maintain(as_json: Json = False) -> None:
    """Remove what retention does not keep, compact small files, delete files that no version needs, and write checkpoints.

    Other processes may write at the same time.
    """
    engine = _engine()
    outcomes = engine.maintain()
    render.show(as_json, {"tables": [render.maintenance_outcome(outcome) for outcome in outcomes]}, render.print_maintained)
    MaintenanceError.check(outcomes)


@app.command()
def status(
    assets: AssetNames = None,
    recount: Annotated[bool, typer.Option("--recount", help="Account for every row now, with Spark, and record the result.")] = False,
    as_json: Json = False,
) -> None:
    """Show sources, watermarks, lag and the last account of each table.

    Exits with 1 if the conservation law does not hold for a table, or a table is refused or cannot be read.
    """
    engine = _engine()
    names = known_assets(engine.assets, assets)
    report = (status_report.recounted_status if recount else status_report.recorded_status)(engine, names)
    render.show(as_json, report, status_report.print_recounted if recount else status_report.print_recorded)
    StatusError.check({name: asset["law"] for name, asset in report["assets"].items()})


__all__ = ["app"]
