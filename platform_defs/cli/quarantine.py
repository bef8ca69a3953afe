"""The commands of the quarantine: `tidemark quarantine list | retry | release`."""

from typing import Annotated, Any
from urllib.parse import unquote

import typer

from platform_defs.cli import render
from platform_defs.cli.arguments import Json, require_known
from platform_defs.configured_engine import configured_engine as _engine
from platform_defs.engine import Engine
from platform_defs.engine.ingest.quarantine_list import QuarantinedFile

app = typer.Typer(help="List quarantined files and rows, and ingest them again after a repair.")
Source = Annotated[str, typer.Argument(help="A source, e.g. payments.")]
Files = Annotated[list[str] | None, typer.Argument(metavar="FILE", help="The files, by path or by the end of a path; by default all.")]


@app.command(name="list")
def list_(source: Annotated[str | None, typer.Argument(help="A source; by default all.")] = None, as_json: Json = False) -> None:
    """List the quarantined files, from which no row was read, and the rejected rows by reason. It starts no Spark."""
    engine = _engine()
    names = [source] if source is not None else [*engine.sources]
    render.show(as_json, {"sources": {name: _rows_of_source(engine, name) for name in names}}, _print_list)


@app.command()
def retry(source: Source, files: Files = None, as_json: Json = False) -> None:
    """Request that quarantined files are read again, after their cause was repaired; the next `tidemark ingest` treats them as new."""
    engine = _engine()
    require_known("source", source, [*engine.sources])
    files_to_retry = engine.ingestion.quarantine.retry(source, files or [])
    render.show(as_json, {"source": source, "files": [_file(f) for f in files_to_retry]}, _print_retry)


@app.command()
def release(
    source: Source,
    reason: Annotated[list[str] | None, typer.Option(help="Only rows whose reason starts with this text; can be repeated.")] = None,
    file: Annotated[list[str] | None, typer.Option(help="Only rows of this file; can be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Write rejected rows to new input files, each row once, after the contract was corrected; `tidemark ingest` reads them."""
    engine = _engine()
    require_known("source", source, [*engine.sources])
    files = engine.ingestion.quarantine.release(source, reason or [], file or [])
    released = {"source": source, "folder": engine.folders[source], "files": [{"file": r.name, "rows": r.rows} for r in files]}
    render.show(as_json, released, _print_release)


def _rows_of_source(engine: Engine, name: str) -> dict[str, Any]:
    rows = engine.ingestion.quarantine_list.rows(name)
    return {
        "files": [_file(f) for f in engine.ingestion.quarantine_list.files(name)],
        "rows": [{"reason": r.reason, "rows": r.rows, "released": r.released} for r in rows],
    }


def _file(quarantined: QuarantinedFile) -> dict[str, Any]:
    return {
        "file": unquote(quarantined.file.path),
        "seq": quarantined.seq,
        "reason": quarantined.reason,
        "asked": quarantined.is_retry_requested,
    }


def _print_list(report: dict[str, Any]) -> None:
    quarantined = {name: content for name, content in report["sources"].items() if content["files"] or content["rows"]}
    if not quarantined:
        render.out.print(f"Nothing is in quarantine: {render.plain(', '.join(report['sources']))}.")
    for name, content in quarantined.items():
        if content["files"]:
            rows = [[f["file"], f["reason"] + (" (to be read again)" if f["asked"] else ""), f["seq"]] for f in content["files"]]
            render.print_table(f"{name}: files of which no row was read", ["file", "reason", "batch"], rows)
        if content["rows"]:
            render.print_table(f"{name}: rejected rows", ["reason", "rows", "released"], [list(r.values()) for r in content["rows"]])


def _print_retry(report: dict[str, Any]) -> None:
    if not report["files"]:
        render.out.print("There is no file to read again.")
        return
    render.print_table(f"{report['source']}: to be read again by the next ingest", ["file"], [[f["file"]] for f in report["files"]])


def _print_release(released: dict[str, Any]) -> None:
    if not released["files"]:
        render.out.print("There are no matching rows to release.")
        return
    render.print_table(
        f"{released['source']}: to be read by the next ingest", ["file", "rows"], [list(f.values()) for f in released["files"]]
    )


__all__ = ["app"]
