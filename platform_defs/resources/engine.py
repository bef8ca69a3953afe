"""The engine as a Dagster resource: made of the settings, on the platform's Spark."""

from dataclasses import replace

import dagster as dg

from operators.timing import length_ms
from platform_defs.engine import Engine
from platform_defs.engine.lake.tables import Lake
from platform_defs.pipeline import shop
from platform_defs.resources.spark import SparkResource
from platform_defs.settings import Settings


def make_engine(values: Settings, spark: SparkResource) -> Engine:
    """The shop's engine."""
    sources, derived = shop(values)
    return Engine(
        Lake(values.lake, length_ms(values.lease, "lease") / 1000),
        {s.name: s for s in sources},
        {d.name: d for d in derived},
        lambda: spark.spark_session,
        max_step=values.max_step,
        folders={s.name: f"{values.landing_root}/{s.name}" for s in sources},
        max_files=values.max_files,
    )


def engine_resource(values: Settings) -> dg.ResourceDefinition:
    """The engine as a resource, on the resource `spark`, which starts when it is first needed.

    Dagster makes it anew for each tick of a sensor; what the first one has read of the ledger and the folders serves those after it. Not
    behind a URI: there nothing tells a ledger that was deleted and made anew from one that goes on.
    """
    first: list[Engine] = []

    @dg.resource(required_resource_keys={"spark"})
    def engine(context: dg.InitResourceContext) -> Engine:
        made = make_engine(values, context.resources.spark)
        if not made.lake.is_local:
            return made
        if not first:
            first.append(made)
            return made
        return replace(made, earlier=first[0])

    return engine
