"""The engine: the one object through which assets, sensors, the CLI and tests work on a lake."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache, cached_property, partial
from typing import Any

from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset, SourceContract
from assets.pipeline_checks import checked_tables
from operators.contract import Early
from platform_defs.engine.accounting.accounts import Accounts
from platform_defs.engine.accounting.traced_rows import names_every_row
from platform_defs.engine.advance.advance import Advance, Step
from platform_defs.engine.advance.pending_work import PendingWork
from platform_defs.engine.advance.running_queries import RunningQueries
from platform_defs.engine.advance.snapshot import snapshot
from platform_defs.engine.advance.step_error import naming_step_errors
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.ingest.ingestion import Ingestion
from platform_defs.engine.ingest.stream import OnBatch, OnQuiet
from platform_defs.engine.inputs.folder_checks import check_folders
from platform_defs.engine.inputs.handled_batches import require_handled_batches
from platform_defs.engine.inputs.input import input_named
from platform_defs.engine.inputs.progress import results_table
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.errors import UnreadableLogError
from platform_defs.engine.lake.missing_files import naming_lost_files
from platform_defs.engine.lake.tables import Lake, LakeSnapshot
from platform_defs.engine.lake.waits import Purpose
from platform_defs.engine.ledger.ledger import Batch, Ledger
from platform_defs.engine.ledger.snapshot import LedgerSnapshot
from platform_defs.engine.operations.failures import Failures, first_time
from platform_defs.engine.operations.freshness import Freshness
from platform_defs.engine.operations.late_rows import LateRows
from platform_defs.engine.operations.ledger_retention import LedgerRetention
from platform_defs.engine.operations.maintenance import Maintained, Maintenance
from platform_defs.engine.operations.rebuild import Rebuilt, empty_tables, rebuild_days
from platform_defs.engine.operations.retention import KEEP_ALL, LakeRetention
from platform_defs.engine.operations.sink import Sink
from platform_defs.engine.operations.step_law import check_step
from platform_defs.engine.operations.views import Views


def wall_clock() -> int:
    """The time in epoch ms."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Engine:
    """Event logs, a ledger, and the tables computed from them, in one lake.

    The methods of this class change the lake, except `snapshot`. Its parts do the rest, such as `ingestion` (files, watermarks,
    quarantine), `pending` (the progress of assets), `accounts` (the accounting of rows) and `views` (the tables that users read).

    Args:
        lake: the lake.
        sources: the sources, by name.
        assets: the derived assets, by name.
        connect: returns the Spark session; called when the session is first needed.
        clock: the wall clock, in epoch ms.
        max_step: the approximate number of rows that a step may read.
        folders: each source's folder of input files.
        max_files: the maximum number of files of a source in one micro-batch.
        topics: the topics of the sources that read from Kafka, besides their folders.
        sinks: the topics to which tables are published, by table.
        lake_retention: how long changelogs and quarantines keep their rows.
        earlier: an engine on the same lake and folders, whose cached ledger and folder listings this engine uses.
    """

    lake: Lake
    sources: Mapping[str, SourceContract]
    assets: Mapping[str, DerivedAsset]
    connect: Callable[[], SparkSession]
    clock: Callable[[], int] = wall_clock
    max_step: int = 5_000_000
    folders: Mapping[str, str] = field(default_factory=dict)
    max_files: int = 64
    topics: Mapping[str, Topics] = field(default_factory=dict, repr=False)
    sinks: Mapping[str, Sink] = field(default_factory=dict, repr=False)
    lake_retention: LakeRetention = KEEP_ALL
    earlier: "Engine | None" = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "assets", checked_tables(self.sources, self.assets))
        check_folders(self.lake.root, {name: folder for name, folder in self.folders.items() if name in self.sources}, self.assets)

    @property
    def spark(self) -> SparkSession:
        """The Spark session; the first access connects it."""
        return self._session()

    @cached_property
    def _session(self) -> Callable[[], SparkSession]:
        """Returns the session; the first call connects it."""
        return cache(self.connect)

    @cached_property
    def ledger(self) -> Ledger:
        """The lake's ledger."""
        return self.earlier.ledger if self.earlier else Ledger(self.lake, self.clock)

    @cached_property
    def workspace(self) -> Workspace:
        """The session, the lake and its ledger, and the definitions of sources and tables."""
        return Workspace(self.spark, self.lake, self.ledger, self.sources, self.assets)

    @cached_property
    def ingestion(self) -> Ingestion:
        """Finds new files, and commits batches to the ledger."""
        earlier_finders = self.earlier.ingestion.file_finders if self.earlier else None
        inputs = self.sources, self.assets, self.folders, self.max_files
        topics = self.topics, self.max_step, self.failures.record_sources
        require_batches = partial(require_handled_batches, self.lake, self.ledger, self.assets)
        return Ingestion(self._session, self.lake, self.ledger, *inputs, require_batches, *topics, earlier_finders)

    @cached_property
    def queries(self) -> RunningQueries:
        """The streaming queries of tables with `streams_as="query"`, which a stream starts and ends."""
        return RunningQueries()

    @property
    def pending(self) -> PendingWork:
        """The progress of assets, and the work of the next advance; needs no session."""
        return PendingWork(self._workspace_without_session)

    @property
    def ledger_retention(self) -> LedgerRetention:
        """Replaces old batches of the ledger by a summary; its plan needs no session."""
        return LedgerRetention(self._workspace_without_session, self.lake_retention.ledger)

    @property
    def late_rows(self) -> LateRows:
        """Finds late rows; needs no session."""
        return LateRows(lambda asset: snapshot(Advance(self._workspace_without_session, self.assets[asset], self.max_step)))

    @property
    def accounts(self) -> Accounts:
        """Accounts for the rows of every source."""
        return Accounts(self._snapshot, self._naming_lost_files, self.lake, self.assets, self.clock)

    @property
    def failures(self) -> Failures:
        """The newest failures of tables and of the ingest; needs no session."""
        return Failures(self._workspace_without_session, self.clock)

    @property
    def freshness(self) -> Freshness:
        """Reports since when tables wait; needs no session. It caches its results, so use it on a snapshot."""
        return Freshness(self._workspace_without_session)

    @property
    def views(self) -> Views:
        """The tables that users read."""
        return Views(self.workspace, self._snapshot, self._naming_lost_files, self.sinks, self.failures.recorded_of_sink)

    def ingest(
        self,
        every: str | None = None,
        on_batch: OnBatch = lambda _: None,
        on_quiet: OnQuiet = lambda: None,
        on_start: OnQuiet = lambda: None,
    ) -> list[Batch]:
        """Ingest new files and new records of topics, and record the sources that have become idle.

        Args:
            every: run continuously, and look for new input at this interval, such as `'30 seconds'`; None to return when all is ingested.
            on_batch: called after each batch of rows is committed; with `every`, also after a control batch for idle sources and the clock.
            on_quiet: with `every`, called after each interval in which no batch was committed.
            on_start: called once, before the first batch, when this process holds the lock of the folders.

        Raises:
            LedgerError: the ledger lacks a batch that an asset has handled.
            UnreadError: some input could not be read, and `every` is None; all other input was ingested.
        """
        quiet = first_time(self.failures.forget_ingest, on_quiet)  # a stream without new input is not failing
        with self.failures.recorded_of_ingest(), self._naming_lost_files():
            return self.ingestion.run(every, on_batch, quiet, on_start)

    def drain(self, assets: Sequence[str] | None = None) -> Batch | None:
        """Declare the end of the input: raise watermarks so far that every row is finalized.

        A source with processing time has no end: its watermark is the ledger's clock, and its rows are finalized as the clock advances.

        Args:
            assets: the tables whose sources have ended; None for all sources. A source has one watermark for all tables that read it, so
                rows of these sources that arrive later are late in every table.

        Returns:
            The batch; None if no source has rows, or if the watermarks need not be raised; see `ControlBatches.drain`.

        Raises:
            LedgerError: the ledger lacks a batch that an asset has handled.
        """
        longest_delay = sum(asset.operator.reads.longest_lookback + asset.operator.reads.watermark_delay for asset in self.assets.values())
        ended_sources = (
            None
            if assets is None
            else sorted({source for name in assets for source in input_named(name, self.sources, self.assets).sources})
        )
        return self.ingestion.control_batches.drain(longest_delay, ended_sources)

    def steps(self, asset: str, until: int | None = None, *, checked: bool = False, purpose: Purpose = "write") -> Generator[Step]:
        """Advance an asset step by step; each step is committed before it is yielded.

        Args:
            asset: the asset.
            until: the watermark up to which results are finalized (epoch ms); None for the asset's own watermark.
            checked: whether to check the conservation law after each step, before the next one. Only an asset whose inputs are all
                sources, and whose results name the rows of every input, is checked.
            purpose: the purpose of the table's lock. A `stream` does not wait for another writer, and ends after a step if one waits.

        Raises:
            LawError: a step broke the conservation law.
            LakeBusy: another process writes the asset; or this is a stream, and another process waits to write it.
        """
        if checked and names_every_row(self.assets[asset], self.assets):
            yield from self._checked_steps(asset, until, purpose)
            return
        with self.failures.recorded_of(asset), naming_step_errors(asset), self._naming_lost_files():
            queries = self.queries if purpose == "stream" else None
            yield from replace(self._advance(asset), queries=queries)(until, purpose)

    def advance(self, asset: str, until: int | None = None) -> list[Step]:
        """Advance an asset as far as its watermark allows, or up to `until` (epoch ms)."""
        return list(self.steps(asset, until))

    def rebuild_days(self, asset: str, first: date | None = None, last: date | None = None) -> Rebuilt:
        """Recompute results of days (default: all; of an upserted table all rows), and write what differs: `backfill --rebuild`."""
        with naming_step_errors(asset), self._naming_lost_files():
            rebuilt = rebuild_days(self._advance(asset), first or date.min, last or date.max)
        if rebuilt.missing or rebuilt.extra:
            self.accounts.forget(asset)
        return rebuilt

    def rebuild_tables(self, names: Sequence[str], *, downstream: bool = False, from_kept: bool = False) -> Generator[tuple[str, Step]]:
        """Empty tables, and compute all rows again with the present settings: `tidemark rebuild`; see `operations.rebuild.empty_tables`."""
        with self._naming_lost_files():
            emptied = empty_tables({name: self._advance(name) for name in self.assets}, names, downstream=downstream, from_kept=from_kept)
        for name in emptied:
            for step in self.steps(name):
                yield name, step

    def maintain(self, **limits: Any) -> list[Maintained]:
        """Remove what retention does not keep, compact small files, delete files that no version needs, and write checkpoints.

        See `Maintenance`.
        """
        require_handled_batches(self.lake, self.ledger, self.assets)
        return self._maintenance(**limits)()

    def snapshot(self) -> "Engine":
        """This engine on a snapshot of the lake, so that several tables can be read in one consistent state."""
        lake = LakeSnapshot.of(self.lake)
        # early results before their table, each table before its inputs, all before the ledger: none is newer than what it is compared with
        for asset in reversed([*self.assets.values()]):
            with suppress(UnreadableLogError):  # raised again when this table is read; the status of other tables is still shown
                for table in (
                    *([asset.early] if isinstance(asset.operator, Early) and asset.operator.early else []),
                    results_table(asset),
                    asset.name,
                ):
                    lake.delta_for_reading(table)
        engine = replace(self, lake=lake)
        engine.__dict__["ledger"] = LedgerSnapshot.of(self.ledger)
        return engine

    @cached_property
    def _workspace_without_session(self) -> Workspace:
        """A workspace that reads commits and the ledger, but no rows."""
        return Workspace(None, self.lake, self.ledger, self.sources, self.assets)  # pyright: ignore[reportArgumentType]

    def _maintenance(self, **limits: Any) -> Maintenance:
        settings = {"lake_retention": self.lake_retention, "folders": self.folders, "sinks": self.sinks}
        return Maintenance(self.spark, self.lake, self.ledger, self.sources, self.assets, **settings, **limits)

    def _checked_steps(self, asset: str, until: int | None, purpose: Purpose) -> Generator[Step]:
        with closing(self.steps(asset, until, purpose=purpose)) as steps:
            for step in steps:
                with self.failures.recorded_of_account(asset):
                    check_step(self.accounts, asset, step)
                yield step

    def _naming_lost_files(self) -> AbstractContextManager[None]:
        sources = [table for source in self.sources.values() for table in (source.log, source.quarantine)]
        derived = [
            table for asset in self.assets.values() for table in (asset.name, asset.changelog, asset.decisions, asset.kept, asset.early)
        ]
        return naming_lost_files(self.lake, [*sources, *derived])

    def _advance(self, asset: str) -> Advance:
        return Advance(self.workspace, self.assets[asset], self.max_step)

    def _snapshot(self, asset: str) -> Advance:
        return snapshot(self._advance(asset))
