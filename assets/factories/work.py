"""The work of a table's asset: it advances the table and accounts for its rows. The asset's step reports both."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import dagster as dg

from assets.contracts import DerivedAsset
from assets.factories.partitions import Days
from assets.ports import AccountPort, EnginePort, MatchesPort


@dataclass(frozen=True)
class Advanced:
    """A table that was advanced and accounted for.

    Args:
        metadata: the metadata of the materialisation.
        accounts: one account for each side and day.
        count_differences: the batches whose row counts in ledger and log differ; see `AccountsPort.count_differences`.
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


Work = Callable[[EnginePort, Days | None], Advanced]
"""Advances a table and accounts for it. The arguments are the engine and the run's days, or None for a table without daily partitions."""


class Worker(Protocol):
    """Does the work of tables: one after the other, or in parallel as `platform_defs.parallel_work.ParallelWork` does."""

    def add(self, table: DerivedAsset, work: Work) -> None:
        """Register a table's work."""
        ...

    def do(self, context: dg.AssetExecutionContext, engine: EnginePort, table: str, days: Days | None) -> Advanced:
        """Do a table's work, or wait for it if it has begun. An error of the work is raised.

        Args:
            context: the table's step.
            engine: the engine.
            table: the name of the table.
            days: the first and the last day of the run; None for a table without daily partitions.
        """
        ...
