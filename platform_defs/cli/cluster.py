"""The commands for a Spark cluster: the options of `spark-submit`, and the process that Dagster Pipes starts."""

import typer

from operators.errors import TidemarkError
from platform_defs.configured_engine import configured_engine as _engine
from platform_defs.settings import settings
from platform_defs.spark.session import before_start

app = typer.Typer()


class NotLaunchedError(TidemarkError, RuntimeError):
    """The process was not started by Dagster Pipes."""


@app.command("spark-config")
def spark_config() -> None:
    """Print the options that spark-submit needs, as the content of its --properties-file. It starts no Spark."""
    for name, value in before_start(settings()).items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")  # one line of a properties file
        print(f"{name} {escaped}")


@app.command()
def pipes() -> None:
    """Ingest, advance all tables and account for them, once, and report to the Dagster run that started this process by Pipes."""
    from dagster_pipes import PipesEnvVarParamsLoader, open_dagster_pipes  # Dagster is imported only where it is needed

    from platform_defs.stream.pipes import run_launched

    if not PipesEnvVarParamsLoader().is_dagster_pipes_process():
        raise NotLaunchedError(
            "`tidemark pipes` reports to a run of Dagster, and was not started by Dagster Pipes; by hand, run `tidemark ingest`, "
            "`tidemark advance` and `tidemark status --recount`"
        )
    with open_dagster_pipes() as context:
        run_launched(settings(), _engine(), context)


__all__ = ["app"]
