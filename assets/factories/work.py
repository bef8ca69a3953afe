"""The work of a table's asset: the table is advanced and accounted for, and the asset's step reports both."""

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
        accounts: the accounts, by side and day.
        count_differences: the batches whose row counts in ledger and log differ; see `AccountsPort.count_differences`.
        matches: of a join, the matched rows, by side and day.
    """

    metadata: Mapping[str, Any]
    accounts: Sequence[AccountPort]
    count_differences: Mapping[tuple[str, int], tuple[int, int]]
    matches: Sequence[MatchesPort] = ()

    @property
    def holds(self) -> bool:
        """Whether the conservation law holds, so that tables that read this one may be advanced."""
        return all(account.holds for account in self.accounts) and not self.count_differences


Work = Callable[[EnginePort, Days | None], Advanced]
"""Advances a table, for a run over days or over none."""


class Worker(Protocol):
    """Does the work of tables."""

    def add(self, table: DerivedAsset, work: Work) -> None:
        """Make a table's work known."""
        ...

    def do(self, context: dg.AssetExecutionContext, engine: EnginePort, table: str, days: Days | None) -> Advanced:
        """Do a table's work, or wait for it if it has begun."""
        ...
