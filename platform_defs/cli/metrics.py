"""The command that serves the metrics of a lake to Prometheus."""

import threading
from contextlib import suppress
from typing import Annotated

import typer

from platform_defs.cli.render import out, plain
from platform_defs.configured_engine import configured_engine as _engine

PORT = 9473
app = typer.Typer()


@app.command()
def metrics(
    port: Annotated[int, typer.Option(help="The port; 0 for any free one.", min=0, max=65535)] = PORT,
    host: Annotated[str, typer.Option(help="The address to listen at. 0.0.0.0 lets other machines read the metrics.")] = "127.0.0.1",
    once: Annotated[bool, typer.Option("--once", help="Print the metrics and end.")] = False,
) -> None:
    """Serve the metrics of the lake in Prometheus' text format until Ctrl-C. It starts no Spark."""
    from prometheus_client import CollectorRegistry, generate_latest  # here, since the import takes time, and only this needs it

    from platform_defs.monitoring.endpoint import serving_metrics
    from platform_defs.monitoring.lake_metrics import LakeMetrics

    registry = CollectorRegistry(auto_describe=False)
    registry.register(LakeMetrics(_engine()))
    if once:
        print(generate_latest(registry).decode(), end="")
        return
    with serving_metrics(registry, host, port) as url, suppress(KeyboardInterrupt):
        out.print(f"Serving metrics at {plain(url)}. Ctrl-C ends it.", highlight=False, soft_wrap=True)
        threading.Event().wait()


__all__ = ["app"]
