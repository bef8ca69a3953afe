"""The Dagster concurrency pool of all steps that use Spark, except that of the job `stream`, which would hold it for ever."""

SPARK = "spark"
"""Each run has a Spark session of its own. The `dagster.yaml` that Tidemark writes allows one run of this pool at a time."""
