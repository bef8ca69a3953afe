"""The command that queries the tables of a lake by SQL, without Spark."""

from typing import Annotated

import typer

from platform_defs.cli import render
from platform_defs.cli.arguments import Json
from platform_defs.configured_engine import configured_engine as _engine
from platform_defs.engine.operations.query import Query

app = typer.Typer()


@app.command()
def query(
    sql: Annotated[str, typer.Argument(help='For example "SELECT * FROM hot_items WHERE rank = 1 ORDER BY window_end DESC".')],
    limit: Annotated[int, typer.Option(help="The maximum number of rows to show.", min=1, max=100_000)] = 20,
    as_json: Json = False,
) -> None:
    """Query derived tables, event logs (by their source's name), the ledger, quarantine_SOURCE and changelog_TABLE. It starts no Spark."""
    engine = _engine().snapshot()
    rows, has_more = Query(engine.lake, engine.ledger, engine.sources, engine.assets)(sql, limit)
    render.show(as_json, {"rows": rows, "has_more": has_more}, render.print_result)


__all__ = ["app"]
