"""The command that keeps a Spark session for other commands."""

import os
from pathlib import Path

import typer

from platform_defs.cli.render import out
from platform_defs.settings import settings
from platform_defs.spark.served import check_free
from platform_defs.spark.served import serve as keep
from platform_defs.spark.session import own_session, spark_config

app = typer.Typer()


@app.command()
def serve() -> None:
    """Keep a Spark session until Ctrl-C. Other commands and Dagster runs with the same settings use it, and need not start a JVM."""
    values = settings()
    config, file = spark_config(values), Path(values.session_file)
    check_free(file)
    text = f"Process {os.getpid()} keeps a Spark session with {values.driver_memory} of memory. Ctrl-C ends it."
    keep(own_session(config), config, file, lambda: out.print(text, highlight=False))


__all__ = ["app"]
