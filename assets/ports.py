"""The interfaces through which assets and checks use the engine; `platform_defs` provides the resource `engine`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from assets.contracts import DerivedAsset, SourceContract

TERMS = ("accepted", "matched", "unmatched", "pending", "late", "filtered", "missing", "extra")
"""The terms of an account, which are attributes of `AccountPort`."""


MOVED_BACK = "keys_moved_back"
"""The metric of a Top-N with `monotonic`: the number of keys that break the promise."""


class SourceBatchPort(Protocol):
    """What a ledger batch records about one source; see `platform_defs.engine.ledger.ledger.SourceBatch`."""

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
    """The differences that a rebuild found; see `platform_defs.engine.operations.rebuild.Rebuilt`."""

    days: tuple[date, ...]
    missing: int
    extra: int
    kept_from: date | None
    is_compared: bool


class MatchesPort(Protocol):
    """The matched rows of one side of a join and one day; see `platform_defs.engine.accounting.matches.DayMatches`."""

    side: str
    day: date
    matched: int
    unmatched: int
    late: int

    @property
    def completeness(self) -> float:
        """The share of matched rows among the matched, unmatched and late ones, from 0 to 1; 1 if there are none."""
        ...


class AccountPort(Protocol):
    """One side's rows of one day; see `platform_defs.engine.accounting.day_accounts.DayAccount`."""

    side: str
    day: date
    accepted: int
    matched: int
    unmatched: int
    pending: int
    late: int
    filtered: int
    missing: int
    extra: int

    @property
    def holds(self) -> bool:
        """Whether every row is accounted for exactly once, and the results are right."""
        ...

    @property
    def completeness(self) -> float:
        """As `MatchesPort.completeness`."""
        ...


class AccountsPort(Protocol):
    """The accounts of assets; see `platform_defs.engine.accounting.accounts.Accounts`."""

    def account_for(
        self, asset: str, days: tuple[date, date] | None = None
    ) -> tuple[Sequence[AccountPort], Mapping[tuple[str, int], tuple[int, int]]]:
        """Account for every row of days (None: of all days) by side and day, and keep the account, so that `tidemark status` shows it.

        Returns:
            The accounts; and the batches of the asset's sources whose row counts differ: (source, seq) to the ledger's count and the log's.
        """
        ...

    def matches(self, asset: str, days: tuple[date, date] | None = None) -> Sequence[MatchesPort]:
        """The matched, unmatched and late rows of a join, by side and day."""
        ...


class LogPort(Protocol):
    """A source's event log as of a ledger batch; see `platform_defs.engine.operations.views.Log`."""

    id: str
    schema: StructType
    head: int

    def time_of(self, seq: int) -> int | None:
        """The time of a ledger batch in epoch ms; None if there is no such batch."""
        ...

    def rows(self, after: int) -> DataFrame:
        """The rows of the batches after a batch; all rows for 0."""
        ...


class UpsertedPort(Protocol):
    """An upserted table, and the changes that lead to it; see `platform_defs.engine.operations.time_travel.UpsertedSnapshot`."""

    table: DataFrame
    changelog: DataFrame
    since: int
    state: Mapping[str, Any] | None


class PublishedPort(Protocol):
    """What was published to a topic; see `platform_defs.engine.operations.publish_to_topic.Published`."""

    topic: str
    step: int
    steps: int
    records: int


class ViewsPort(Protocol):
    """Reads the lake's tables; see `platform_defs.engine.operations.views.Views`."""

    def naming_lost_files(self) -> AbstractContextManager[None]:
        """A context in which frames of tables are computed.

        An error for a missing or damaged file names the table and the file, and says what to do.
        """
        ...

    def table(self, name: str) -> DataFrame:
        """A table of the lake."""
        ...

    def log(self, source: str) -> LogPort | None:
        """A snapshot of a source's event log; None if it does not exist yet."""
        ...

    def newest_snapshot(self, asset: str, earlier_state: Mapping[str, Any] | None = None) -> UpsertedPort | None:
        """A snapshot of an upserted table and its changelog, since an earlier state if one is given; None if there is no step yet."""
        ...

    def metrics(self, asset: str) -> Mapping[str, int | float]:
        """The metrics of an upserted table."""
        ...

    def publish_to_topic(self, asset: str) -> PublishedPort:
        """Write the steps of a table that its Kafka topic does not have yet."""
        ...


class PendingPort(Protocol):
    """The progress of assets; see `platform_defs.engine.advance.pending_work.PendingWork`."""

    def event_times(self, asset: str) -> tuple[int, int] | None:
        """The oldest and the newest event time of an asset's sources, in epoch ms; None if there are no events."""
        ...

    def describe_progress(self, asset: str) -> dict[str, Any]:
        """The progress of an asset; see `PendingWork.describe_progress`."""
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
        """The accounts of assets."""
        ...

    @property
    def views(self) -> ViewsPort:
        """Reads the lake's tables."""
        ...

    @property
    def pending(self) -> PendingPort:
        """The progress of assets."""
        ...

    def ingest(self) -> Sequence[Sequence[SourceBatchPort]]:
        """Ingest new files and new records of topics, and record sources that became idle; returns the new ledger batches."""
        ...

    def steps(self, asset: str, until: int | None = None) -> Iterator[StepPort]:
        """Advance an asset, one committed step after the other, up to the watermark `until` (epoch ms), or to its own watermark."""
        ...

    def rebuild_days(self, asset: str, first: date | None = None, last: date | None = None) -> RebuiltPort:
        """Recompute finalized results of days (by default all), and repair those that differ; an upserted table is recomputed whole."""
        ...
