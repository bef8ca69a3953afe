"""The run configuration of a table's asset."""

import dagster as dg
from pydantic import Field


class AdvanceConfig(dg.Config):
    """The run configuration of a table's asset."""

    rebuild: bool = Field(
        default=False,
        description="before the advance, recompute the finalized results of the run's days (of an upserted table: all rows), and repair "
        "those that differ",
    )
