"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from platform_defs.settings import HOME, PROJECT

Work = Annotated[Path, typer.Option(help="Folder for the data, the lakes and the results.")]
Flink = Annotated[Path, typer.Option(help="Folder of the Flink benchmark; Flink is skipped if it is not set up.")]
Cores = Annotated[int, typer.Option(help="Cores that each contender uses.", min=1)]
Timeout = Annotated[float, typer.Option(help="Maximum seconds of one run.", min=1)]
Again = Annotated[bool, typer.Option("--again", help="Repeat runs that already have a result; the newest result counts.")]
Runs = Annotated[int, typer.Option(help="Runs of each contender and size; the report shows medians.", min=1)]
Scale = Annotated[float, typer.Option(help="Factor for every number of rows.", min=0.0001)]
WORK, FLINK = HOME / "bench", PROJECT.parent / "shared" / "peers" / "flink"
