"""A workload for Tidemark: its sources, its derived table, and a summary of the results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from great_expectations.expectations.expectation import Expectation
from pyspark.sql import DataFrame

from assets.contracts import DerivedAsset, SourceContract
from benchmarks.contenders import Job

WATERMARK_BOUND = "5 seconds"
"""The watermark's bound. Rows are out of order by less than 3 s, so none is late."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A workload.

    Args:
        sources: returns the sources for a job.
        asset: returns the derived table for a job.
        outcome: summarizes the rows of the derived table: `found` (their number), and `checksum` if their number alone proves little.
        expectations: the expectations of sources and of the derived table, by name.
    """

    sources: Callable[[Job], list[SourceContract]]
    asset: Callable[[Job], DerivedAsset]
    outcome: Callable[[DataFrame], dict[str, Any]]
    expectations: Mapping[str, Sequence[Expectation]] = field(default_factory=dict)


def workload_of(job: Job) -> Workload:
    """The workload of a job."""
    return import_module(f"benchmarks.{job.workload}").WORKLOAD
