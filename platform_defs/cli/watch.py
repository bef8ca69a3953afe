"""The command that shows the state of a lake, and refreshes it."""

import time
from contextlib import suppress
from typing import Annotated

import typer
from deltalake.exceptions import DeltaError
from rich.live import Live
from rich.text import Text

from operators.errors import TidemarkError
from operators.timing import length_ms
from platform_defs.cli import status
from platform_defs.cli.arguments import AssetNames, interval, known_assets
from platform_defs.cli.render import Terminal, out, plain
from platform_defs.configured_engine import configured_engine as _engine
from platform_defs.engine import Engine

app = typer.Typer()


@app.command()
def watch(
    assets: AssetNames = None,
    every: Annotated[str, typer.Option(help="How often to look, e.g. '10 seconds'.")] = "2 seconds",
) -> None:
    """Show what `tidemark status` shows, and refresh it until Ctrl-C. It starts no Spark."""
    interval("--every", every)
    seconds, engine = length_ms(every, "--every") / 1000, _engine()
    names = known_assets(engine.assets, assets)
    screen = Terminal(emoji=False)  # not `out`: a live display adds its text to all that its console prints, and `_report` prints to `out`
    with Live(console=screen, auto_refresh=False, vertical_overflow="visible") as live, suppress(KeyboardInterrupt):
        while True:
            live.update(Text.from_ansi(_report(engine, names)), refresh=True)
            time.sleep(seconds)


def _report(engine: Engine, assets: list[str]) -> str:
    """The printed state of the lake. If the lake cannot be read now, the error as text, since the next look may succeed."""
    with out.capture() as captured:
        try:
            status.print_recorded(status.recorded_status(engine, assets))
        except (TidemarkError, DeltaError, OSError) as error:
            out.print(f"[bold red]error:[/] {plain(error)}", highlight=False, soft_wrap=True)
    return captured.get()


__all__ = ["app"]
