"""A workload for Tidemark: the sources, the derived table, and the summary of its result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from great_expectations import ExpectationSuite
from pyspark.sql import DataFrame

from assets.contracts import DerivedAsset, SourceContract
from benchmarks.contenders import Job

BOUND = "5 seconds"
"""Rows are out of order by less than 3 s; with this bound none is late."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A workload.

    Args:
        sources: the sources, of a job.
        asset: the derived table, of a job.
        outcome: `found`, and `checksum` if the number of results is not conclusive, of the table's rows.
        suites: the expectations of logs, by source.
    """

    sources: Callable[[Job], list[SourceContract]]
    asset: Callable[[Job], DerivedAsset]
    outcome: Callable[[DataFrame], dict[str, Any]]
    suites: Mapping[str, Callable[[], ExpectationSuite]] = field(default_factory=dict)


def of(job: Job) -> Workload:
    """A job's workload."""
    return import_module(f"benchmarks.{job.workload}").WORKLOAD
