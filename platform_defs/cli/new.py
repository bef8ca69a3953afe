"""The command that creates a new pipeline: `tidemark new FOLDER`."""

import random
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from platform_defs.cli import render
from platform_defs.cli.arguments import ArgumentError, Json, canonical_folder
from platform_defs.paths import canonical_local
from platform_defs.settings import Settings
from platform_defs.settings.values import PROJECT

app = typer.Typer()
TEMPLATE = Path(__file__).resolve().parent.parent / "template"
_SETTINGS = {"lake": "lake", "landing": "landing", "dagster_home": "dagster"}
_ZONES = ("north", "south", "airport", "harbour", "centre")
_README = """# A pipeline

`{pipeline}` defines the sources{also_defined}. `landing/` has a day of
made-up rides and fares. Load the settings of this folder first, in each shell; `tidemark` is in {bin}:

    set -a; . ./.env; set +a
    export PATH={bin}:$PATH

    tidemark ingest              # read the files in landing/
    tidemark advance             # make the tables, as far as the watermark allows
    tidemark status --recount    # is every row accounted for?
    tidemark show busy_zones     # the rows of a table
    pytest                       # the tests in test_pipeline.py
    make -C {project} ui         # the same in Dagster

`tidemark query "SELECT * FROM ride_fares"` needs no Spark. For pandas, DuckDB and Spark see {project}/docs/how-to/read-results.md.
"""


@app.command()
def new(
    folder: Annotated[str, typer.Argument(help="The folder to create: absent or empty.")],
    in_yaml: Annotated[bool, typer.Option("--yaml", help="Define the pipeline in YAML instead of Python.")] = False,
    in_sql: Annotated[bool, typer.Option("--sql", help="Define the pipeline in SQL instead of Python.")] = False,
    as_json: Json = False,
) -> None:
    """Create a small working pipeline of your own, with sample rows, settings and a test."""
    target = Path(canonical_folder("folder", folder, canonical_local))
    if in_yaml and in_sql:
        raise ArgumentError.both_given("--yaml", "--sql")
    report = {"folder": str(target), "files": create(target, "pipeline.yaml" if in_yaml else "pipeline.sql" if in_sql else "pipeline.py")}
    render.show(as_json, report, _print_new)


def create(folder: Path, pipeline: str = "pipeline.py") -> list[str]:
    """Write the files of a new pipeline; returns their names.

    Args:
        folder: the folder.
        pipeline: the template of the pipeline: `pipeline.py`, `pipeline.yaml` or `pipeline.sql`.

    Raises:
        ArgumentError: the folder contains something, cannot be read or written to, or has a name that no lake may have.
    """
    _check_absent_or_empty(folder)
    values = {name: str(folder / value) for name, value in {"pipeline": pipeline, **_SETTINGS}.items()}
    try:
        Settings(**values)  # pyright: ignore[reportArgumentType]
    except ValidationError as error:
        # other errors are about environment variables, which the new pipeline does not use
        folder_errors = [fault for fault in error.errors() if {*fault["loc"]} & values.keys()]
        if folder_errors:
            legal = folder_errors[0]["msg"].removeprefix("Value error, ").removeprefix("legal: ")
            raise ArgumentError.bad_value("folder", str(folder), legal) from None
    try:
        _write(folder, pipeline, values)
    except OSError as error:
        legal = f"a folder that can be written to ({error.strerror}); if it has some of the files now, empty it before you try again"
        raise ArgumentError.bad_value("folder", str(folder), legal) from error
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def _check_absent_or_empty(folder: Path) -> None:
    try:
        contains_something = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        legal = f"a folder that can be read and written to ({error.strerror})"
        raise ArgumentError.bad_value("folder", str(folder), legal) from error
    if contains_something:
        raise ArgumentError.bad_value("folder", str(folder), "a folder that is absent or empty; nothing was written")


def _write(folder: Path, pipeline: str, values: Mapping[str, str]) -> None:
    for source, lines in _sample().items():
        (folder / "landing" / source).mkdir(parents=True)
        (folder / "landing" / source / "2026-03-01.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.copyfile(TEMPLATE / pipeline, folder / pipeline)
    test = (TEMPLATE / "test_pipeline.py").read_text("utf-8")
    if not pipeline.endswith(".py"):
        test = test.replace("from pipeline import pipeline\n\n", "from platform_defs.pipelines import load\n")
        test = test.replace("Sandbox(pipeline, tmp_path)", f'Sandbox(load(str(Path(__file__).with_name("{pipeline}"))), tmp_path)')
    (folder / "test_pipeline.py").write_text(test, encoding="utf-8")
    settings = "".join(f"TIDEMARK_{name.upper()}={shlex.quote(value)}\n" for name, value in values.items())
    (folder / ".env").write_text(settings, encoding="utf-8")
    in_sql, in_others = " and the tables that are made of them", ", the tables that are made of them, and the expectations of their rows"
    placeholders = {
        "pipeline": pipeline,
        "also_defined": in_sql if pipeline.endswith(".sql") else in_others,
        "bin": shlex.quote(str(PROJECT / ".venv/bin")),
        "project": shlex.quote(str(PROJECT)),
    }
    (folder / "README.md").write_text(_README.format(**placeholders), encoding="utf-8")


def _sample() -> dict[str, list[str]]:
    """A day of rides and fares, always the same; every ninth ride has no fare."""
    rng, rides, fares = random.Random(3), list[str](), list[tuple[int, str]]()
    for number in range(60):
        start = 8 * 60 + number * 6 + rng.randrange(6)
        paid, ride = start + 5 + rng.randrange(60), f"ride-{number:02d}"
        rides.append(f"{ride},{rng.choice(_ZONES)},{_time(start)}")
        if number % 9 != 4:
            fares.append((paid, f"{ride},{rng.randrange(500, 4_500) / 100:.2f},{_time(paid)}"))
    return {"rides": ["ride_id,zone,started_at", *rides], "fares": ["ride_id,amount,paid_at", *[line for _, line in sorted(fares)]]}


def _time(minute: int) -> str:
    return f"2026-03-01T{minute // 60:02d}:{minute % 60:02d}:00Z"


def _print_new(report: dict[str, Any]) -> None:
    render.out.print(f"Created {render.plain(report['folder'])}:", highlight=False, soft_wrap=True)
    for file in report["files"]:
        render.out.print(f"  {render.plain(file)}", highlight=False)
    render.out.print("README.md says what to do next.", highlight=False)


__all__ = ["app"]
