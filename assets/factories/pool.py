"""The Dagster concurrency pool of all steps that use Spark."""

SPARK = "spark"
"""Each run has a Spark session of its own. The `dagster.yaml` that Tidemark writes allows one run of this pool at a time."""
