"""The Dagster concurrency pool of the steps that use Spark.

The step of the job `stream` is not in the pool: it runs until it is cancelled, and would block every other step.
"""

SPARK = "spark"
"""The name of the pool. Each run has a Spark session of its own, and Tidemark's `dagster.yaml` allows one run in the pool at a time."""
