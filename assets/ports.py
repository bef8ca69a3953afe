"""What assets and checks need of the engine; `platform_defs` provides it as the resource `engine`."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Protocol

from pyspark.sql import DataFrame

from assets.contracts import DerivedAsset, SourceContract

TERMS = ("accepted", "matched", "unmatched", "pending", "late", "missing", "extra")
"""The terms of an account, as `AccountPort` has them."""


class SourceEntryPort(Protocol):
    """What a ledger batch says of one source; see `platform_defs.engine.ledger.ledger.SourceEntry`."""

    seq: int
    source: str
    watermark: int | None
    rows_read: int
    accepted: int
    duplicate: int
    quarantined: int


class StepPort(Protocol):
    """One committed step; see `platform_defs.engine.advance.advance.Step`."""

    rows: int


class RebuiltPort(Protocol):
    """What a rebuild found; see `platform_defs.engine.operations.rebuild.Rebuilt`."""

    days: tuple[date, ...]
    missing: int
    extra: int


class AccountPort(Protocol):
    """One side's rows of one day; see `platform_defs.engine.accounting.account.DayAccount`."""

    side: str
    day: date
    accepted: int
    matched: int
    unmatched: int
    pending: int
    late: int
    missing: int
    extra: int

    @property
    def holds(self) -> bool:
        """Whether every row is accounted for, once."""
        ...

    @property
    def completeness(self) -> float:
        """The share of matched rows among those whose fate is settled."""
        ...


class AccountsPort(Protocol):
    """The accounts of assets; see `platform_defs.engine.accounting.accounts.Accounts`."""

    def days(self, asset: str, days: tuple[date, date] | None = None) -> Sequence[AccountPort]:
        """Account for every row of the asset's sources, by side and day."""
        ...

    def uncounted(self, asset: str, days: tuple[date, date] | None = None) -> Mapping[tuple[str, int], tuple[int, int]]:
        """Where ledger and log disagree about an asset's sources: (source, seq) to accepted and held."""
        ...


class ViewsPort(Protocol):
    """What is read of a lake; see `platform_defs.engine.operations.views.Views`."""

    def table(self, name: str) -> DataFrame:
        """A table of the lake."""
        ...

    def newest(self, asset: str) -> tuple[DataFrame, DataFrame] | None:
        """An upserted table and its changelog, both up to its newest step; None where there is none yet."""
        ...

    def metrics(self, asset: str) -> Mapping[str, int | float]:
        """The metrics of an upserted table."""
        ...


class PendingPort(Protocol):
    """How far assets are; see `platform_defs.engine.advance.pending_work.PendingWork`."""

    def event_times(self, asset: str) -> tuple[int, int] | None:
        """The oldest and the newest event time of an asset's sources, in epoch ms; None where no row arrived."""
        ...

    def described(self, asset: str) -> dict[str, Any]:
        """How far an asset has come: `steps`, `closed_to`, `watermark` (epoch ms or None), `lag_ms`, `complete_to` (date), `waits_for`."""
        ...


class EnginePort(Protocol):
    """The engine, as far as assets and checks use it; see `platform_defs.engine.Engine`."""

    @property
    def sources(self) -> Mapping[str, SourceContract]:
        """The sources, by name."""
        ...

    @property
    def assets(self) -> Mapping[str, DerivedAsset]:
        """The derived assets, by name."""
        ...

    @property
    def accounts(self) -> AccountsPort:
        """Accounts for every row."""
        ...

    @property
    def views(self) -> ViewsPort:
        """What users read of the lake."""
        ...

    @property
    def pending(self) -> PendingPort:
        """How far assets are."""
        ...

    def ingest(self) -> Sequence[Sequence[SourceEntryPort]]:
        """Ingest what has landed, and record the sources that have become idle; returns the ledger batches made."""
        ...

    def steps(self, asset: str, until: int | None = None) -> Iterator[StepPort]:
        """Advance an asset, one committed step after the other."""
        ...

    def rebuild(self, asset: str, first: date | None = None, last: date | None = None) -> RebuiltPort:
        """Recompute what is finalized on days, all by default, and correct what differs. An upserted table is recomputed whole."""
        ...
