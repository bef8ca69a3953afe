"""The options of a run that advances a table."""

import dagster as dg
from pydantic import Field


class AdvanceConfig(dg.Config):
    """Options of one run."""

    rebuild: bool = Field(
        default=False,
        description="Before the advance, recompute the finalized results of the run's days, and repair those that differ. An upserted "
        "table is recomputed whole.",
    )
