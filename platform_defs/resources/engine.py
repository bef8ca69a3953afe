"""The engine as a Dagster resource, configured by the settings."""

from collections.abc import Callable, Iterator

import dagster as dg

from assets.pipeline import Pipeline
from platform_defs.configured_engine import make_engine
from platform_defs.engine import Engine
from platform_defs.paths import is_in_s3
from platform_defs.settings import Settings


def engine_resource(
    values: Settings, pipeline: Pipeline | None = None, at_end: Callable[[str | None], None] = lambda _: None
) -> dg.ResourceDefinition:
    """The engine as a resource. It uses the resource `spark`, whose session starts when it is first needed.

    Dagster creates the resource again for each tick of a sensor. A later engine uses the cached ledger and folder listings of the first
    engine. For a lake in another store than S3 it does not, since a ledger that was deleted and created again cannot be recognized there.

    Args:
        values: the settings.
        pipeline: the pipeline; by default the one that the settings name.
        at_end: called with the run's id when the resource is no longer needed, however the run has ended.
    """
    first: list[Engine] = []

    @dg.resource(required_resource_keys={"spark"}, description="The engine over the lake. It starts Spark only when a run needs it.")
    def engine(context: dg.InitResourceContext) -> Iterator[Engine]:
        created = make_engine(values, pipeline, lambda: context.resources.spark.spark_session, first[0] if first else None)
        if (created.lake.is_local or is_in_s3(created.lake.root)) and not first:
            first.append(created)
        try:
            yield created
        finally:
            at_end(context.run.run_id if context.run is not None else None)

    return engine
