"""All ways to commit batches to a lake's ledger: files, watermarks, idle sources, replays, and retries from the quarantine."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset, SourceContract
from platform_defs.engine.formats.delta_change_feed import LandedVersion, land_changes
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.engine.ingest.alignment import SourceAhead, sources_ahead
from platform_defs.engine.ingest.change_feed import check_feed
from platform_defs.engine.ingest.clock import waits_of
from platform_defs.engine.ingest.control_batches import ControlBatches
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.file_finders import file_finders
from platform_defs.engine.ingest.ingest import Ingest
from platform_defs.engine.ingest.looks import Look
from platform_defs.engine.ingest.new_files import FileFinder
from platform_defs.engine.ingest.new_records import NewRecords, new_records
from platform_defs.engine.ingest.quarantine import Quarantine
from platform_defs.engine.ingest.quarantine_list import QuarantineList
from platform_defs.engine.ingest.replay import Replay
from platform_defs.engine.ingest.stream import OnBatch, OnQuiet, Stream, writer_name
from platform_defs.engine.ingest.topic_ranges import topic_ranges
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Batch, Ledger


@dataclass(frozen=True)
class Ingestion:
    """Commits batches to a ledger.

    Args:
        connect: returns the Spark session; called when the session is first needed.
        lake: the lake.
        ledger: its ledger.
        sources: the sources, by name.
        assets: the derived assets, by name.
        folders: each source's folder of input files.
        max_files: the maximum number of files of a source in one micro-batch.
        require: raises `LedgerError` unless the ledger has every batch that a table has handled.
        topics: the topics of the sources that read from Kafka.
        at_once: about how many offsets of a source's topics one micro-batch has at most; see `TopicRanges`.
        failing: called with the reason for each source of which some input cannot be read, whenever sources or reasons have changed.
        known: the `file_finders` of an earlier object, whose folder listings are used again; None to list the folders anew.
    """

    connect: Callable[[], SparkSession]
    lake: Lake
    ledger: Ledger
    sources: Mapping[str, SourceContract]
    assets: Mapping[str, DerivedAsset]
    folders: Mapping[str, str]
    max_files: int
    require: Callable[[], None]
    topics: Mapping[str, Topics] = field(default_factory=dict, repr=False)
    at_once: int = 5_000_000
    failing: Callable[[Mapping[str, str]], None] = lambda _: None
    known: Mapping[str, FileFinder] | None = field(default=None, repr=False)

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The newest look of a running stream for the input of each source; empty if none runs."""
        return {}

    @cached_property
    def batches(self) -> Ingest:
        """Ingests micro-batches of given files."""
        return Ingest(*self._writes, require=self.require, topics=self.topics, looks=self.looks)

    @cached_property
    def control_batches(self) -> ControlBatches:
        """Writes batches without rows."""
        return ControlBatches(*self._writes, require=self.require, waits=waits_of(self.sources, self.assets))

    @cached_property
    def replay(self) -> Replay:
        """Ingests a recorded sequence of batches."""
        return Replay(*self._writes, require=self.require)

    @cached_property
    def quarantine(self) -> Quarantine:
        """Ingests quarantined files and rows again."""
        return Quarantine(*self._writes, require=self.require, listed=self.quarantine_list)

    @cached_property
    def quarantine_list(self) -> QuarantineList:
        """Lists quarantined files and rows. Needs no session."""
        return QuarantineList(self.lake, self.ledger, self.sources, self.folders)

    @cached_property
    def file_finders(self) -> Mapping[str, FileFinder]:
        """The finders of new files, by source."""
        return self.known if self.known is not None else file_finders(self.folders, self.ledger, self.lake.storage_options)

    def unlisted(self, source: str) -> Mapping[str, str]:
        """Why the newest look for new files could not examine a folder or a file of a source, by its path."""
        return self.file_finders[source].unlisted

    def can_list(self, source: str) -> bool:
        """Whether the files of a source's folder can be listed without Spark: the folder is local or in S3."""
        return not self.file_finders[source].needs_spark

    @property
    def stream(self) -> Stream:
        """Ingests new files in the sources' folders, and new records of their topics."""
        folders = self.folders, self.max_files, self.file_finders
        ranges = topic_ranges(self.topics, self.ledger, self.at_once)
        return Stream(self.connect(), self.lake, self.batches, *folders, self._record_idle, ranges=ranges, failing=self.failing)

    def _record_idle(self) -> Batch | None:
        return self.control_batches.record_idle_sources(self.looks)

    def run(
        self,
        every: str | None = None,
        on_batch: OnBatch = lambda _: None,
        on_quiet: OnQuiet = lambda: None,
        on_start: OnQuiet = lambda: None,
    ) -> list[Batch]:
        """Ingest new files and new records, and record the sources that have become idle; see `Stream.run`."""
        try:
            batches = self.stream.run(every, on_batch, on_quiet, on_start)
            idle_batch = self._record_idle()
        except UnreadError as error:  # an unreadable file does not keep other sources from being recorded as idle
            idle_batch = self._record_idle()
            error.batches = [*error.batches, *([idle_batch] if idle_batch else [])]
            raise
        finally:
            self.looks.clear()
        return [*batches, idle_batch] if idle_batch else batches

    def new_files(self, source: str) -> list[File]:
        """The files in a source's folder that the ledger does not record in their present state. Needs no session.

        Empty for a folder that only Spark can list: a folder behind the URI of another store than S3. See `unlisted`.
        """
        return self.file_finders[source].new()

    @property
    def ahead(self) -> Mapping[str, SourceAhead]:
        """The sources that are not read now because they are ahead of their alignment groups. Needs no session; see `alignment`."""
        return sources_ahead(self.ledger, self.sources)

    def new_records(self, ahead: Collection[str] | None = None) -> NewRecords:
        """The partitions of topics with records that are not ingested yet, without those of sources that are ahead. Needs no session.

        Args:
            ahead: the sources that are ahead, if the caller knows them; None to find them.
        """
        ahead = self.ahead if ahead is None else ahead
        return new_records({name: topics for name, topics in self.topics.items() if name not in ahead}, self.ledger)

    def land_changes(self, table: str, source: str, *, first: int = 0) -> list[LandedVersion]:
        """Land the changes of a Delta table as input files of a source, for the next ingest; see `land_changes`. Needs no session.

        Raises:
            ChangeFeedError: the source or one of its readers cannot process changes (see `check_feed`), or `land_changes` raised the error.
        """
        check_feed(self.sources[source], self.assets.values(), self.folders[source])
        return land_changes(table, Path(self.folders[source]), first=first, storage_options=self.lake.storage_options)

    def current_writer(self) -> str | None:
        """The process that ingests from the folders at this moment; None if there is none."""
        return self.lake.current_writer(writer_name(self.folders))

    @property
    def _writes(self) -> tuple[SparkSession, Lake, Ledger, Mapping[str, SourceContract]]:
        return self.connect(), self.lake, self.ledger, self.sources
