"""The stream: ingests new files in the sources' folders and new records of their topics as micro-batches, each one batch of the ledger.

The ledger records which files and offsets were ingested, so the stream needs no checkpoint of its own.
"""

import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

from pyspark.sql import SparkSession

from operators.timing import length_ms
from platform_defs.engine.formats.files import File, one_path
from platform_defs.engine.ingest.alignment import SourceAhead, next_files, sources_ahead
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.ingest.ingest import Ingest
from platform_defs.engine.ingest.looks import Look
from platform_defs.engine.ingest.micro_batches import BUSY_PATIENCE_S, LOOK_AGAIN_AFTER_MS, MAX_BATCHES_KEPT, MicroBatches
from platform_defs.engine.ingest.new_files import FileFinder
from platform_defs.engine.ingest.pending_files import FIRST_WAIT_S, Pending
from platform_defs.engine.ingest.topic_ranges import TopicRanges
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Batch

OnBatch = Callable[[Batch], None]
OnQuiet = Callable[[], None]
_MOST_REASONS = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stream:
    """Ingests from folders and topics.

    Args:
        spark: the session.
        lake: the lake.
        ingest: ingests micro-batches.
        folders: each source's folder.
        max_files: the largest number of files of each source in one micro-batch.
        file_finders: the finders of new files, by source.
        record_idle: records the sources that became idle; a continuous stream calls it at each interval without a new batch.
        first_wait_s: the first wait before a continuous stream retries an unreadable file, in seconds.
        sleep: waits for some seconds.
        ranges: the finders of new records in Kafka's topics, by source.
        failing: called with the reason for each source of which some input cannot be read, whenever sources or reasons have changed.
    """

    spark: SparkSession
    lake: Lake
    ingest: Ingest
    folders: Mapping[str, str]
    max_files: int
    file_finders: Mapping[str, FileFinder]
    record_idle: Callable[[], Batch | None] = lambda: None
    first_wait_s: float = FIRST_WAIT_S
    sleep: Callable[[float], None] = time.sleep
    ranges: Mapping[str, TopicRanges] = field(default_factory=dict)
    failing: Callable[[Mapping[str, str]], None] = lambda _: None
    _warned: set[str] = field(default_factory=set, init=False, compare=False, repr=False)
    _partly_read: set[str] = field(default_factory=set, init=False, compare=False, repr=False)
    _reported: list[Mapping[str, str]] = field(default_factory=list, init=False, compare=False, repr=False)

    def run(
        self,
        every: str | None = None,
        on_batch: OnBatch = lambda _: None,
        on_quiet: OnQuiet = lambda: None,
        on_start: OnQuiet = lambda: None,
    ) -> list[Batch]:
        """Ingest the present files and records and return, or ingest continuously at an interval.

        Args:
            every: the interval, such as `'30 seconds'`; None to return when all present files and records are ingested.
            on_batch: called after each batch is committed.
            on_quiet: called at each interval without a new batch, if the stream is continuous.
            on_start: called when this is the only stream over the folders, before the first batch.

        Returns:
            The new batches. A continuous stream does not return: an exception, such as an interrupt, ends it.

        Raises:
            IngestError: rows violate a rule with the action `fail`, a file has a new column that the contract refuses, or a folder
                cannot be used.
            UnreadError: files could not be read, folders could not be listed, or topics are refused, and `every` is None; all other
                input was ingested.
            LakeError: the lake cannot be written to, or another process writes to it.
        """
        with self.lake.opening():
            for finder in self.file_finders.values():
                finder.prepare(self.spark)
            with self.lake.writer(writer_name(self.folders)):
                self.ingest.looks.clear()
                on_start()
                ingest = self.ingest if every is None else replace(self.ingest, purpose="stream")
                pending = Pending(ingest.files, self.first_wait_s, warns=every is not None)
                micro_batches = MicroBatches(pending.files, self.record_idle, on_batch, on_quiet, BUSY_PATIENCE_S if every else 0.0)
                micro_batches.look_again_after_ms = LOOK_AGAIN_AFTER_MS if every else None
                micro_batches.batches = deque(maxlen=MAX_BATCHES_KEPT if every else None)  # a stream may run for years
                for finder in self.file_finders.values():
                    finder.forget()  # so that changed files are found too
                with self._reading_topics(to_present=every is None):
                    while self._ingest_new_files(micro_batches, pending) and self._has_more:
                        pass
                    if every is not None:
                        self._poll(length_ms(every, "every") / 1000, micro_batches, pending)
                    unlisted = {path: reason for _, finder in self._finders for path, reason in finder.unlisted.items()}
                if pending.unread or unlisted or self._refused:
                    raise UnreadError(pending.unread, list(micro_batches.batches), unlisted, self._refused)
        return list(micro_batches.batches)

    def _poll(self, interval_s: float, micro_batches: MicroBatches, pending: Pending) -> None:
        """Look for input at each interval, and ingest it. If this takes longer than the interval, or input is left, look again at once."""
        took_s = 0.0
        while True:
            self.sleep(max(0.0, interval_s - took_s))
            began = time.monotonic()
            newest = micro_batches.newest
            had_input = self._ingest_new_files(micro_batches, pending)
            if micro_batches.newest is newest:
                micro_batches.quiet()
            took_s = interval_s if had_input and self._has_more else time.monotonic() - began

    @contextmanager
    def _reading_topics(self, *, to_present: bool) -> Iterator[None]:
        """Find new records while the block runs; see `TopicRanges.begin`."""
        try:
            for ranges in self.ranges.values():
                ranges.begin(to_present=to_present)
            yield
        finally:
            for ranges in self.ranges.values():
                ranges.close()

    @property
    def _has_more(self) -> bool:
        """Whether there may be more input to read now.

        Topics may have more records than fit into one micro-batch. A source of an alignment group may have more than one file, or it waited
        for its group at the last look, and does not wait any more. The last look may have left files because micro-batches took long.
        """
        ahead = self._ahead
        return any(ranges.has_more for source, ranges in self.ranges.items() if source not in ahead) or bool(
            self._partly_read - ahead.keys()
        )

    @property
    def _ahead(self) -> Mapping[str, SourceAhead]:
        """The sources that wait for their alignment groups, and are not read now."""
        return sources_ahead(self.ingest.ledger, self.ingest.contracts)

    @property
    def _finders(self) -> list[tuple[str, FileFinder | TopicRanges]]:
        return [*self.file_finders.items(), *self.ranges.items()]

    @property
    def _refused(self) -> dict[str, str]:
        """Why a topic of a source is not read until a user decides, by source."""
        return {source: ranges.refused for source, ranges in self.ranges.items() if ranges.refused is not None}

    def _ingest_new_files(self, micro_batches: MicroBatches, pending: Pending) -> bool:
        """Ingest new files and records, and unread ones whose wait has ended; returns whether there were any.

        If the micro-batches take long, a continuous stream leaves files for the next look, so that the input of all sources is looked for.
        """
        ahead, contracts, began = self._ahead, self.ingest.contracts, self.ingest.ledger.wall_clock()
        files, sources_with_more = next_files(
            [file for file in self._new_files(pending) if file not in pending and file.source not in ahead], contracts
        )
        listed = self.ingest.ledger.wall_clock()
        self._partly_read.clear()
        self._partly_read.update(sources_with_more, ahead)
        ranges = [source for source in self.ranges if source not in ahead]
        records = [file for source in ranges for file in self._records(source, pending) if file not in pending]
        self._warn()
        self._note_looks(began, {*ahead, *(file.source for file in (*files, *records))})
        first_group, *later_groups = [*_micro_batches(files, self.max_files)] or [[]]
        groups = [[*first_group, *records], *later_groups] if first_group or records else []
        ingesting_since = self.ingest.ledger.wall_clock()
        try:
            for group, next_group in pairwise([*groups, []]):
                self.ingest.with_more_files.clear()
                self.ingest.with_more_files.update(sources_with_more, (file.source for file in next_group))
                micro_batches.files(group)
                if micro_batches.must_look_again(listing_ms=listed - began, batches_ms=self.ingest.ledger.wall_clock() - ingesting_since):
                    self._partly_read.update(self.ingest.with_more_files)
                    break
        finally:
            self.ingest.with_more_files.clear()
        self._report_failing(pending)
        return bool(files or records)

    def _note_looks(self, began: int, with_input: Collection[str]) -> None:
        """Keep the result of a look for each source, which decides for how long the source counts as silent.

        If some input of a source could not be read at the look before, the source counts as silent until it has rows: the input that was
        found now may be the same, or unreadable too.
        """
        earlier, failing = dict(self.ingest.looks), {source for reported in self._reported for source in reported}
        for source in self.folders.keys() | self.ranges.keys():
            # an ingest of the present records does not find records that arrive after its first look
            reads_to_present = source in self.ranges and self.ranges[source].reads_to_present
            at = earlier[source].at if reads_to_present and source in earlier else began
            self.ingest.looks[source] = Look(at, source in with_input and source not in failing)

    def _records(self, source: str, pending: Pending) -> list[File]:
        """The ranges of offsets that a source's topics have and the ledger does not."""
        ranges = self.ranges[source]
        records = ranges.new(self.spark)
        if not ranges.unlisted and ranges.refused is None:
            pending.forget_unlisted(source, records, ranges=True)
        return records

    def _new_files(self, pending: Pending) -> list[File]:
        """The files that the ledger does not record in their present state."""
        files: list[File] = []
        for source, finder in self.file_finders.items():
            found = finder.new(self.spark)
            if not finder.unlisted:
                pending.forget_unlisted(source, found)
            files += found
        return files

    def _warn(self) -> None:
        """Log skipped links, folders and topics: each once, and again only if it was not skipped in between."""
        skipped = set(self._refused.values())
        for source, finder in self._finders:
            unlisted = finder.unlisted.items()
            skipped |= {f"{path} of source {source!r} is skipped: it cannot be listed: {reason}" for path, reason in unlisted}
        for source, finder in self.file_finders.items():
            skipped |= {f"{path} of source {source!r} is skipped: it is a link below the source's folder" for path in finder.links}
        for text in sorted(skipped - self._warned):
            _log.warning("%s", text)
        self._warned.clear()
        self._warned.update(skipped)

    def _report_failing(self, pending: Pending) -> None:
        """Report the sources of which some input cannot be read, if these or the reasons have changed. Unreadable input is no activity."""
        reasons_by_source = dict[str, list[str]]()
        for source, reason in self._refused.items():
            reasons_by_source.setdefault(source, []).append(reason)
        for source, finder in self._finders:
            for path, reason in finder.unlisted.items():
                reasons_by_source.setdefault(source, []).append(f"{path} cannot be listed: {reason}")
        for failure in pending.unread:
            reasons_by_source.setdefault(failure.file.source, []).append(f"{failure.file.path} cannot be read: {failure.reason}")
        failing = {source: "; ".join(reasons[:_MOST_REASONS]) for source, reasons in reasons_by_source.items()}
        looks = self.ingest.looks
        looks.update({source: replace(looks[source], has_input=False) for source in failing})
        if self._reported != [failing]:  # also at the first look, since an earlier process may have reported other sources
            self._reported[:] = [failing]
            self.failing(failing)


def writer_name(folders: Mapping[str, str]) -> str:
    """The name of the lock of a stream over these folders. The lock keeps two streams from doing the same work."""
    named = sorted((source, one_path(folder)) for source, folder in folders.items())
    return f"ingest-{hashlib.sha256(repr(named).encode()).hexdigest()[:12]}"


def _micro_batches(files: Sequence[File], at_once: int) -> Iterator[list[File]]:
    """The files in micro-batches, the oldest first, with at most `at_once` files of each source in one."""
    by_source: dict[str, list[File]] = {}
    for file in sorted(files):
        by_source.setdefault(file.source, []).append(file)
    for first in range(0, max(map(len, by_source.values()), default=0), at_once):
        yield [file for files_of_source in by_source.values() for file in files_of_source[first : first + at_once]]
