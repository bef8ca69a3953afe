"""The work of a run's steps: the step of a table advances it and accounts for its rows, and a step of checks evaluates them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import dagster as dg

from assets.factories.partitions import Days, days_in_tags
from assets.ports import AccountPort, EnginePort, MatchesPort


@dataclass(frozen=True)
class Advanced:
    """A table that was advanced and accounted for.

    Args:
        metadata: the metadata of the materialization.
        accounts: one account for each side and day.
        count_differences: the batches whose row counts in ledger and log differ; see `AccountsPort.account_for`.
        matches: for a join, the matched, unmatched and late rows of each side and day; empty for other tables.
    """

    metadata: Mapping[str, Any]
    accounts: Sequence[AccountPort]
    count_differences: Mapping[tuple[str, int], tuple[int, int]]
    matches: Sequence[MatchesPort] = ()

    @property
    def holds(self) -> bool:
        """Whether the conservation law holds. If not, the tables that read this one must not be advanced."""
        return all(account.holds for account in self.accounts) and not self.count_differences


StepContext = dg.AssetExecutionContext | dg.AssetCheckExecutionContext


@dataclass(frozen=True)
class RunDetails:
    """The details of a Dagster run on which its steps' work depends.

    Args:
        tags: the run's tags.
        instance: Dagster's instance.
    """

    tags: Mapping[str, str]
    instance: dg.DagsterInstance

    @classmethod
    def of(cls, context: StepContext) -> "RunDetails":
        """The details of a step's run."""
        return cls(context.run.tags, context.instance)

    @property
    def days(self) -> Days | None:
        """The first and the last day of the run's partitions; None for a run without partitions."""
        return days_in_tags(self.tags)


Work = Callable[[EnginePort, RunDetails], Any]
"""Does the work of a step, and returns what the step reports: `Advanced` for a table."""


class Worker(Protocol):
    """Does the work of steps: one after the other, or in parallel as `platform_defs.orchestration.parallel_work.ParallelWork` does."""

    def add(self, step: str, inputs: Sequence[str], work: Work) -> None:
        """Register a step's work.

        Args:
            step: the name of the step.
            inputs: what its work reads; the work of steps with these names is done first.
            work: does the work.
        """
        ...

    def do(self, context: StepContext, engine: EnginePort, step: str) -> Any:
        """Do a step's work, or wait for it if it has begun; returns its result. An error of the work is raised.

        Args:
            context: the step.
            engine: the engine.
            step: the name of the step.
        """
        ...
