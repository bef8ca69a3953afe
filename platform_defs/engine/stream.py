"""The stream: one Structured Streaming query finds files, each micro-batch becomes one ledger entry.

The ledger, not Spark's checkpoint, knows what was let in: a lost checkpoint lists every file again, and those
the ledger tells of are passed over. So one that Spark cannot begin with is thrown away. Spark's batch ids are not used.
"""

import hashlib
import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from operators.timing import length_ms
from platform_defs.engine.ingest import Ingest, IngestError
from platform_defs.engine.ingest_error import UnreadError
from platform_defs.engine.ledger import Entry
from platform_defs.engine.pending import FIRST_WAIT_S, Pending
from platform_defs.engine.turns import MOST_KEPT, PATIENCE_S, Turns
from platform_defs.resources.files import File, found_by, hadoop_file, is_local, listing, one_path, survey, without_links
from platform_defs.resources.lake import Lake

MANY_KNOWN = 5_000
"""From so many known files on, a new checkpoint is begun with `KNOWN_AT_ONCE` files a batch."""
KNOWN_AT_ONCE = 100_000
_TORN = re.compile(
    r"[Ii]ncomplete log|log file was malformed|streaming metadata|log version|StreamMetadata\$?\.read"
    r"|STREAMING_.*(LOG|CHECKPOINT|METADATA|OFFSET)"
)
"""What Spark says of a checkpoint that a killed process left half written."""
OnEntry = Callable[[Entry], None]
OnQuiet = Callable[[], None]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stream:
    """Ingests from folders.

    Args:
        spark: the session.
        lake: the lake, which also holds the query's checkpoint.
        ingest: lets micro-batches in.
        folders: each source's folder.
        max_files: files of a source that one micro-batch takes.
        idle: records the sources that became idle; asked at each trigger of a stream that stays.
        first_wait_s: how long a stream that stays waits before it tries a file again that could not be read, at first, in seconds.
    """

    spark: SparkSession
    lake: Lake
    ingest: Ingest
    folders: Mapping[str, str]
    max_files: int
    idle: Callable[[], Entry | None] = lambda: None
    first_wait_s: float = FIRST_WAIT_S

    def run(self, every: str | None = None, on_entry: OnEntry = lambda _: None, on_quiet: OnQuiet = lambda: None) -> list[Entry]:
        """Let in what is there (`every` None: `availableNow`), or what comes, for ever, at a processing-time interval.

        Args:
            every: the trigger's interval, such as `'30 seconds'`.
            on_entry: called after each entry is committed.
            on_quiet: called at each trigger interval that brought no entry, where the stream stays.

        Returns:
            The entries made; where the stream stays, the newest of them.

        Raises:
            IngestError: a rule whose action is to fail was broken, a column came that the contract refuses, or a folder cannot be used.
            UnreadError: files could not be read now, and `every` is None; raised after all others were ingested.
            LakeError: the lake cannot be written to, or another process writes to it.
        """
        with self.lake.opened():
            self._make_folders()
            with self.lake.writer(place(self.folders)):
                pending = Pending(self.ingest.files, self.first_wait_s, warns=every is not None, head=self.ingest.ledger.head)
                turns = Turns(pending.files, self.idle, on_entry, on_quiet, PATIENCE_S if every else 0.0)
                turns.made = deque(maxlen=MOST_KEPT if every else None)  # a stream may stay for years
                self._query(None, turns, pending)
                self._enter(self._missed(pending, everything=True), turns)
                if every is not None:
                    self._query(every, turns, pending)
                elif pending.unread:
                    raise UnreadError(pending.unread, list(turns.made))
        return list(turns.made)

    def _enter(self, files: Sequence[File], turns: Turns) -> None:
        """Ingest files, `max_files` of a source at once; those that the ledger records already cost nothing."""
        fresh = self._unknown(files) if len(files) > self.max_files * len(self.folders) else files
        for some in _in_turn(fresh, self.max_files):
            turns.files(some)

    def _unknown(self, files: Sequence[File]) -> list[File]:
        found: list[File] = []
        for source in self.folders:
            mine = [f for f in files if f.source == source]
            known = self.ingest.ledger.known(source, mine)
            found += [f for f in mine if not known.holds(f)]
        return found

    def _query(self, every: str | None, turns: Turns, pending: Pending) -> None:
        """Run the query until it ends; what a micro-batch raises ends it, and is raised.

        A process that is killed may leave a checkpoint that Spark refuses ever after. So where the query ends before its first
        micro-batch, it is run once more without the checkpoint, which nobody else is at.
        """
        checkpoint = self.lake.path(f"_checkpoints/{_told(self.folders)}")
        files, path = hadoop_file(self.spark, checkpoint)
        max_files = self._catch_up(turns, pending) if not files.exists(path) else self.max_files
        enter, quiet = partial(self._micro_batch, turns, pending), partial(self._quiet, turns, pending)
        query = _Query(self._listing(max_files), self.folders, every, checkpoint, enter, quiet)
        try:
            query.run()
        except (PySparkException, Py4JJavaError) as error:
            if query.began or not _names_the_checkpoint(error, checkpoint):
                raise
            self.lake.still_mine()
            if not files.delete(path, True):
                raise
            query.listing = self._listing(self._catch_up(turns, pending))
            query.run()
        if query.failed is not None:
            raise query.failed

    def _micro_batch(self, turns: Turns, pending: Pending, files: list[File]) -> None:
        self._enter(files + self._missed(pending, everything=False), turns)

    def _quiet(self, turns: Turns, pending: Pending) -> None:
        """Ingest what no listing shows, where its time has come; else what time alone brings."""
        if not self._look(turns, pending):
            turns.quiet()

    def _look(self, turns: Turns, pending: Pending) -> bool:
        """Ingest files whose next try has come, and those that were asked for; whether there were such."""
        head = self.ingest.ledger.head
        entries, pending.head = self.ingest.ledger.entries()[pending.head : head], head
        if not pending.is_ready() and not any(s.kind == "retry" for entry in entries for s in entry):
            return False
        turns.files([])
        self._enter(self._missed(pending, everything=False), turns)
        return True

    def _missed(self, pending: Pending, everything: bool) -> list[File]:
        """What `_overlooked` finds, without the files that wait for their next try."""
        return [f for f in self._overlooked(everything) if f not in pending]

    def _catch_up(self, turns: Turns, pending: Pending) -> int:
        """Prepare for a checkpoint of which nothing is there, for which Spark lists every file anew; returns how many it shall at once.

        Where the ledger knows many, the new ones are ingested first, and Spark passes over the known ones in few batches.
        """
        if sum(self.ingest.ledger.known_count(source) for source in self.folders) < MANY_KNOWN:
            return self.max_files
        self._enter(self._missed(pending, everything=True), turns)
        return max(self.max_files, KNOWN_AT_ONCE)

    def _overlooked(self, everything: bool) -> list[File]:
        """What Spark's listing does not show: files of no bytes, and those that changed after it showed them.

        Args:
            everything: also those that the ledger does not tell of for another reason: they had no bytes when the
                listing came to them. To be asked for once the listing has come to its end.
        """
        found: list[File] = []
        for source, folder in self.folders.items():
            files = survey(self.spark, folder, source)
            known = self.ingest.ledger.known(source, files)
            fresh = [f for f in files if not known.holds(f)]
            found += [f for f in fresh if everything or f.length == 0 or known.holds_path(f)]
        return sorted(found)

    def _make_folders(self) -> None:
        """Make the local folders that are not there; what stands in the way is theirs, not the lake's."""
        for source, folder in self.folders.items():
            if not is_local(folder):
                continue
            try:
                Path(folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise IngestError.no_folder(source, folder, error.strerror or str(error)) from error
            if not os.access(folder, os.R_OK | os.X_OK):
                raise IngestError.no_folder(source, folder, "it may not be read")

    def _listing(self, max_files: int) -> DataFrame:
        return reduce(DataFrame.union, [listing(self.spark, folder, source, max_files) for source, folder in self.folders.items()])


def place(folders: Mapping[str, str]) -> str:
    """The writer's place of whoever lets in from folders: one at a time, since a stream has one checkpoint."""
    return f"ingest-{_told(folders)}"


def _told(folders: Mapping[str, str]) -> str:
    """A set of folders in a few letters, by whichever of their names; Spark refuses a checkpoint that was made for another set."""
    named = sorted((source, one_path(folder)) for source, folder in folders.items())
    return hashlib.sha256(repr(named).encode()).hexdigest()[:12]


def _in_turn(files: Sequence[File], at_once: int) -> Iterator[list[File]]:
    """The files, the oldest first, so many of each source at once."""
    by_source: dict[str, list[File]] = {}
    for file in sorted(files):
        by_source.setdefault(file.source, []).append(file)
    for first in range(0, max(map(len, by_source.values()), default=0), at_once):
        yield [file for mine in by_source.values() for file in mine[first : first + at_once]]


def _names_the_checkpoint(error: Exception, checkpoint: str) -> bool:
    """Whether Spark says that it is the checkpoint that it cannot begin with."""
    text = f"{error}\n{getattr(error, '_stackTrace', '')}"
    return checkpoint.rsplit("/", 1)[-1] in text or _TORN.search(text) is not None


@dataclass
class _Query:
    """The query.

    Args:
        listing: the stream of files.
        folders: each source's folder.
        every: the trigger's interval; None to end when all is listed.
        checkpoint: where Spark keeps how far it has come.
        enter: takes the files of a micro-batch.
        quiet: called at each trigger interval while the query stays, in the thread that runs it.
    """

    listing: DataFrame
    folders: Mapping[str, str]
    every: str | None
    checkpoint: str
    enter: Callable[[list[File]], None]
    quiet: Callable[[], None]
    began: bool = False
    failed: BaseException | None = None

    def run(self) -> None:
        """Run until it ends. What a micro-batch raises ends it, and is `failed` then; what Spark raises is raised."""
        query = self.listing.writeStream.foreachBatch(self._let_in).option("checkpointLocation", self.checkpoint)
        started = (query.trigger(availableNow=True) if self.every is None else query.trigger(processingTime=self.every)).start()
        try:
            self._await(started)
        except StreamingQueryException:
            if self.failed is None:
                raise
        finally:
            started.stop()  # returns when a micro-batch that is under way has ended

    def _await(self, started: StreamingQuery) -> None:
        """Wait for the query's end. Spark calls for no micro-batch where no file comes, so the time is watched here."""
        if self.every is None:
            started.awaitTermination()
            return
        interval_s = max(length_ms(self.every, "every") // 1000, 1)
        while not started.awaitTermination(interval_s):
            try:
                self.quiet()
            except Exception as error:  # not Spark's, so that no checkpoint is thrown away for it
                self.failed = error
                return

    def _let_in(self, batch: DataFrame, _: int) -> None:
        self.began = True
        try:
            files, linked = without_links(found_by(batch.collect(), self.folders))
            for file in linked:
                _log.warning("%s is passed over: a link below the folder of source %r leads to it", file.path, file.source)
            self.enter(files)
        except BaseException as error:  # one that left the callback unanswered would leave the query waiting for ever
            self.failed = error
            raise RuntimeError("the micro-batch was not let in") from error
