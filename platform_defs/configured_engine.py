"""The engine of a pipeline, configured by the settings."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from assets.pipeline import Pipeline
from operators.timing import length_ms
from platform_defs.connections import connections
from platform_defs.connections.lake import lake_of
from platform_defs.engine import Engine
from platform_defs.engine.operations.retention import LakeRetention
from platform_defs.pipelines import configured_pipeline
from platform_defs.settings import Settings, settings
from platform_defs.spark.session import session


def make_engine(
    values: Settings,
    pipeline: Pipeline | None = None,
    connect: Callable[[], SparkSession] | None = None,
    earlier: Engine | None = None,
    with_topics: bool = True,
) -> Engine:
    """The engine of a pipeline.

    Args:
        values: the settings.
        pipeline: the pipeline; by default the one that the settings name.
        connect: returns the Spark session; called when one is first needed. By default it returns the session of this process.
        earlier: an earlier engine on the same lake, whose cached ledger and folder listings are used.
        with_topics: whether sources read topics, and tables are published to topics, as the connections say.
    """
    pipeline = configured_pipeline(values) if pipeline is None else pipeline
    connected = connections(values) if with_topics else None
    return Engine(
        lake_of(values),
        pipeline.sources_by_name,
        pipeline.tables_by_name,
        connect or (lambda: session(values)),
        max_step=values.max_step,
        folders=folders_of(values, pipeline),
        max_files=values.max_files,
        topics=connected.topics(pipeline) if connected else {},
        sinks=connected.sinks(pipeline) if connected else {},
        lake_retention=LakeRetention(_ms(values.changelog_retention), _ms(values.quarantine_retention), _ms(values.ledger_retention)),
        earlier=earlier,
    )


def folders_of(values: Settings, pipeline: Pipeline) -> dict[str, str]:
    """The folder of input files of each source."""
    return {source.name: f"{values.landing_root}/{source.name}" for source in pipeline.sources}


def _ms(duration: str | None) -> int | None:
    return None if duration is None else length_ms(duration, "duration")


def configured_engine() -> Engine:
    """The engine of this process's settings, as the command line uses it."""
    return make_engine(settings())
