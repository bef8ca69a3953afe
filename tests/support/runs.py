"""Runs of Dagster that no process executes."""

from collections.abc import Iterable, Mapping
from uuid import uuid4

import dagster as dg


def added_run(
    instance: dg.DagsterInstance,
    job: dg.JobDefinition,
    tags: Mapping[str, str],
    status: dg.DagsterRunStatus = dg.DagsterRunStatus.NOT_STARTED,
    asset_selection: Iterable[dg.AssetKey] | None = None,
) -> dg.DagsterRun:
    """Add a run of a job, without the events that announce each of its assets and checks: sensors read none of them."""
    selected = None if asset_selection is None else frozenset(asset_selection)
    return instance.add_run(dg.DagsterRun(job_name=job.name, run_id=str(uuid4()), tags=tags, status=status, asset_selection=selected))
