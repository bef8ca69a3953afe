"""The commands that show, export or publish a table, show late rows, or land the changes of another Delta table."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from platform_defs.cli import render
from platform_defs.cli.arguments import ArgumentError, Json, canonical_folder, require_known
from platform_defs.configured_engine import configured_engine as _engine
from platform_defs.engine.operations.export import view_of
from platform_defs.paths import canonical

app = typer.Typer()
Table = Annotated[str, typer.Argument(help="A derived table, e.g. category_leaderboard.")]
Early = Annotated[bool, typer.Option("--early", help="Add the early results of open windows or pairs, and a column is_final.")]
AsOf = Annotated[
    str | None, typer.Option(help="For an upserted table: its state at this time of the ledger's clock, e.g. 2026-11-22T08:30:00Z.")
]
EventTimesTo = Annotated[
    str | None, typer.Option(help="For an upserted table: its state from all rows up to this event time, including late ones.")
]


@app.command()
def show(
    table: Table,
    limit: Annotated[int, typer.Option(help="The number of rows to show.", min=1, max=100_000)] = 20,
    early: Early = False,
    as_of: AsOf = None,
    event_times_to: EventTimesTo = None,
    as_json: Json = False,
) -> None:
    """Show rows of a table in its present or an earlier state, or with early results.

    The present rows are read without Spark, unless only Spark can convert a column's type or value, such as a map with dates as keys.
    """
    view, engine = view_of(table, early, as_of, event_times_to), _engine()
    view.check(engine.lake, engine.assets)  # first, so that a wrong argument starts no Spark session
    render.show(as_json, render.rows_of_view(engine, view, limit), render.print_rows)


@app.command()
def export(
    table: Table,
    folder: Annotated[str, typer.Argument(help="The target folder, a path or a URI outside the lake; its content is replaced.")],
    early: Early = False,
    as_of: AsOf = None,
    event_times_to: EventTimesTo = None,
    as_json: Json = False,
) -> None:
    """Write a table to a separate Delta table: in its present or an earlier state, or with early results."""
    target = canonical_folder("folder", folder, canonical)
    view, engine = view_of(table, early, as_of, event_times_to), _engine()
    view.check(engine.lake, engine.assets)
    outcome = engine.views.export(view, target)
    render.show(as_json, {"table": table, **outcome}, _print_export)


@app.command(name="land-changes")
def land_changes(
    table: Annotated[str, typer.Argument(help="A Delta table with a change data feed, a path or a URI.")],
    source: Annotated[str, typer.Argument(help="The source that ingests the changes; its schema has a column `change`.")],
    first: Annotated[int, typer.Option("--from-version", help="The first version to land; landed ones are left out.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Land the changes of a Delta table since the last run, as input files of a source; `tidemark ingest` reads them."""
    engine = _engine()
    if source not in engine.sources:
        raise ArgumentError.bad_value("source", source, ", ".join(engine.sources))
    landed = engine.ingestion.land_changes(table, source, first=first)
    report = {"source": source, "versions": [{"version": version.version, "rows": version.rows} for version in landed]}
    render.show(as_json, report, _print_landed)


@app.command()
def publish(
    asset: Annotated[str, typer.Argument(help="An upserted asset, e.g. category_leaderboard; with --kafka, a table that has a sink.")],
    folder: Annotated[str | None, typer.Argument(help="The target folder, a path or a URI; one folder for each asset.")] = None,
    kafka: Annotated[bool, typer.Option("--kafka", help="Publish to the Kafka topic that TIDEMARK_CONNECTIONS gives the table.")] = False,
    as_json: Json = False,
) -> None:
    """Write the changes of an upserted table since the last publish: keyed upserts and tombstones, in one folder for each step.

    With --kafka, write the changes of an upserted table, or the results of another table, to its Kafka topic.
    """
    if folder is None and not kafka:
        raise ArgumentError("Missing argument `folder`; legal: a folder, or the option --kafka")
    if folder is not None and kafka:
        raise ArgumentError.bad_value("folder", folder, "a folder, or the option --kafka, and not both")
    engine = _engine()
    if folder is None:
        if not engine.sinks:
            legal = "a table with a topic, and no table has one; name it under kafka.sinks in the file of TIDEMARK_CONNECTIONS"
            raise ArgumentError.bad_value("asset", asset, legal)
        require_known("asset", asset, [*engine.sinks])
        render.show(as_json, {"asset": asset, **asdict(engine.views.publish_to_topic(asset))}, _print_published_records)
        return
    target = canonical_folder("folder", folder, canonical)
    require_known("asset", asset, [name for name, a in engine.assets.items() if a.operator.emits.upserts])
    published = {"asset": asset, "folder": target, "step": engine.views.publish(asset, target)}
    render.show(
        as_json,
        published,
        lambda t: render.out.print(
            f"{render.plain(t['folder'])} contains {t['asset']} up to step {t['step']}", highlight=False, soft_wrap=True
        ),
    )


@app.command()
def late(
    source: Annotated[
        str | None, typer.Argument(help="A source, e.g. payments; without it, the late rows of all sources are counted.")
    ] = None,
    asset: Annotated[
        str | None,
        typer.Option(
            help="The asset for which rows are late; by default the first asset that reads the source. Without a source, all assets."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="The number of rows to show; without a source, none are shown.", min=1, max=100_000)] = 20,
    as_json: Json = False,
) -> None:
    """Show how many rows of a source are late for an asset, and the first of them. Without a source, count late rows of all sources.

    It starts Spark only for windows with gaps, your own operators without `BoundsLateness`, prepared rows, and types or values that only
    Spark converts.
    """
    engine = _engine()
    if source is not None:
        require_known("source", source, [name for name in engine.sources if any(name in a.inputs for a in engine.assets.values())])
    readers = [name for name, a in engine.assets.items() if (engine.sources.keys() if source is None else {source}) & {*a.inputs}]
    if asset is not None:
        require_known("asset", asset, readers)
    if not engine.ledger.head and not as_json:
        render.out.print("Nothing was ingested yet.")
    elif source is None:
        render.show(as_json, render.late_counts(engine, readers if asset is None else [asset]), render.print_late_counts)
    else:
        render.show(as_json, render.late_rows(engine, source, asset or readers[0], limit), render.print_late)


def _print_export(report: dict[str, Any]) -> None:
    render.out.print(f"{render.plain(report['folder'])} contains {render.plain(report['table'])}: {report['rows']:,} rows", highlight=False)


def _print_published_records(report: dict[str, Any]) -> None:
    written_now = f"{report['steps']:,} steps, {report['records']:,} records"
    render.out.print(
        f"The topic {report['topic']} has {report['asset']} up to step {report['step']}; written now: {written_now}", highlight=False
    )


def _print_landed(report: dict[str, Any]) -> None:
    if not report["versions"]:
        render.out.print("The table has not changed since the last landing.")
    for version in report["versions"]:
        render.out.print(
            f"{render.plain(report['source'])}: version {version['version']} of the table, {version['rows']:,} rows", highlight=False
        )


__all__ = ["app"]
