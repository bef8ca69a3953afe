"""The engine as a Dagster resource, configured by the settings."""

from collections.abc import Callable, Iterator

import dagster as dg

from assets.pipeline import Pipeline
from operators.timing import length_ms
from platform_defs.engine import Engine
from platform_defs.engine.lake.tables import Lake
from platform_defs.pipelines import configured_pipeline
from platform_defs.resources.spark import SparkResource
from platform_defs.settings import Settings, settings


def make_engine(values: Settings, spark: SparkResource, pipeline: Pipeline | None = None, earlier: Engine | None = None) -> Engine:
    """The engine of a pipeline.

    Args:
        values: the settings.
        spark: the session, which starts when it is first needed.
        pipeline: the pipeline; by default the one that the settings name.
        earlier: an earlier engine on the same lake, whose cached ledger and folder listings are used.
    """
    pipeline = configured_pipeline(values) if pipeline is None else pipeline
    return Engine(
        Lake(values.lake, length_ms(values.lease, "lease") / 1000),
        pipeline.sources_by_name,
        pipeline.tables_by_name,
        lambda: spark.spark_session,
        max_step=values.max_step,
        folders={s.name: f"{values.landing_root}/{s.name}" for s in pipeline.sources},
        max_files=values.max_files,
        earlier=earlier,
    )


def configured_engine() -> Engine:
    """The engine of this process's settings, as the command line uses it."""
    return make_engine(settings(), SparkResource())


def engine_resource(
    values: Settings, pipeline: Pipeline | None = None, at_end: Callable[[str | None], None] = lambda _: None
) -> dg.ResourceDefinition:
    """The engine as a resource; it uses the resource `spark`, which starts when it is first needed.

    Dagster creates the resource again for each tick of a sensor. A later engine uses the cached ledger and folder listings of the first
    one, except for a lake behind a URI: a ledger that was deleted and created again cannot be distinguished there.

    Args:
        values: the settings.
        pipeline: the pipeline; by default the one that the settings name.
        at_end: called with the run's id when the resource is no longer needed, however the run has ended.
    """
    first: list[Engine] = []

    @dg.resource(required_resource_keys={"spark"})
    def engine(context: dg.InitResourceContext) -> Iterator[Engine]:
        made = make_engine(values, context.resources.spark, pipeline, first[0] if first else None)
        if made.lake.is_local and not first:
            first.append(made)
        try:
            yield made
        finally:
            at_end(context.run.run_id if context.run is not None else None)

    return engine
