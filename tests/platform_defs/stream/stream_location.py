"""A code location of Dagster with the job `stream` only: a process that loads it imports half as long as with all definitions."""

import dagster as dg

from platform_defs.orchestration.daily_partitions import daily_partitions
from platform_defs.pipelines import configured_pipeline
from platform_defs.resources.engine import engine_resource
from platform_defs.resources.spark import SparkResource
from platform_defs.settings import settings
from platform_defs.stream.job import stream_job


@dg.definitions
def defs() -> dg.Definitions:
    """The job, with the resources that it has among all definitions."""
    values = settings()
    pipeline = configured_pipeline(values)
    return dg.Definitions(
        jobs=[stream_job(values, daily_partitions(values, pipeline))],
        resources={"spark": SparkResource(), "engine": engine_resource(values, pipeline)},
        executor=dg.in_process_executor,
    )
