"""The stream: one Structured Streaming query finds files, each micro-batch becomes one ledger entry.

The ledger, not Spark's checkpoint, knows what was let in: a lost checkpoint lists every file again, and those
the ledger tells of are passed over. So one that Spark cannot begin with is thrown away. Spark's batch ids are not used.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from threading import Lock
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from platform_defs.engine.ingest import Ingest, IngestError
from platform_defs.engine.ingest_error import UnreadError
from platform_defs.engine.ledger import Entry
from platform_defs.engine.pending import FIRST_WAIT_S, Pending
from platform_defs.resources.files import File, Known, hadoop_file, is_local, listing, one_path, survey
from platform_defs.resources.lake import Lake

LOOK_EVERY_S = 1
"""How often a stream that stays asks, between its micro-batches, whether there is something to read though nothing new has landed."""


@dataclass(frozen=True)
class Stream:
    """Ingests from folders.

    Args:
        spark: the session.
        lake: the lake, which also holds the query's checkpoint.
        ingest: lets micro-batches in.
        folders: each source's folder.
        max_files: files of a source that one micro-batch takes.
        first_wait_s: how long a stream that stays waits before it tries a file again that could not be read, at first, in seconds.
    """

    spark: SparkSession
    lake: Lake
    ingest: Ingest
    folders: Mapping[str, str]
    max_files: int
    first_wait_s: float = FIRST_WAIT_S

    def run(self, every: str | None = None, on_entry: Callable[[Entry], None] = lambda _: None) -> list[Entry]:
        """Let in what is there (`every` None: `availableNow`), or what comes, for ever, at a processing-time interval.

        Args:
            every: the trigger's interval, such as `'30 seconds'`.
            on_entry: called after each entry is committed.

        Returns:
            The entries made.

        Raises:
            IngestError: a rule whose action is to fail was broken, a column came that the contract refuses, or a folder cannot be used.
            UnreadError: files could not be read now, and `every` is None; raised after all others were ingested.
            LakeError: the lake cannot be written to, or another process writes to it.
        """
        with self.lake.opened():
            self._make_folders()
            with self.lake.writer(place(self.folders)):
                pending = Pending(self.ingest.files, self.first_wait_s, warns=every is not None)
                made = self._all_there_is(pending, on_entry)
                if every is not None:
                    pending.head = self.ingest.ledger.head
                    self._query(every, lambda files: made.extend(self._enter(files, pending, on_entry)), pending)
                elif pending.unread:
                    raise UnreadError(pending.unread, made)
        return made

    def _all_there_is(self, pending: Pending, on_entry: Callable[[Entry], None]) -> list[Entry]:
        made: list[Entry] = []
        self._query(None, lambda files: made.extend(self._enter(files, pending, on_entry)), pending)
        left = [f for f in self._overlooked(everything=True) if f not in pending]
        for first in range(0, len(left), self.max_files):
            made.extend(self._enter(left[first : first + self.max_files], pending, on_entry))
        return made

    def _enter(self, files: Sequence[File], pending: Pending, on_entry: Callable[[Entry], None]) -> list[Entry]:
        entry = pending.files(files)
        if entry is None:
            return []
        on_entry(entry)
        return [entry]

    def _query(self, every: str | None, enter: Callable[[list[File]], None], pending: Pending) -> None:
        """Run the query until it ends; what a micro-batch raises ends it, and is raised.

        A process that is killed may leave a checkpoint that Spark refuses ever after. So where the query ends before its first
        micro-batch, it is run once more without the checkpoint, which nobody else is at.
        """
        checkpoint = self.lake.path(f"_checkpoints/{_told(self.folders)}")

        def looked_up(files: list[File]) -> None:
            enter(files + [f for f in self._overlooked(everything=False) if f not in pending])

        query = _Query(self._listing(), every, checkpoint, looked_up, lambda: self._is_asked(pending))
        try:
            query.run()
        except (PySparkException, Py4JJavaError):
            if query.began:
                raise
            self.lake.still_mine()
            files, path = hadoop_file(self.spark, checkpoint)
            if not files.delete(path, True):
                raise
            query.run()
        if query.failed is not None:
            raise query.failed

    def _is_asked(self, pending: Pending) -> bool:
        """Whether there is something to read though nothing new has landed: a file's next try, or one that was asked for."""
        head = self.ingest.ledger.head
        entries, pending.head = self.ingest.ledger.entries()[pending.head :], head
        return pending.is_ready() or any(s.kind == "retry" for entry in entries for s in entry)

    def _overlooked(self, everything: bool) -> list[File]:
        """What Spark's listing does not show: files of no bytes, and those that changed after it showed them.

        Args:
            everything: also those that the ledger does not tell of for another reason: they had no bytes when the
                listing came to them. To be asked for once the listing has come to its end.
        """
        found: list[File] = []
        for source, folder in self.folders.items():
            known = Known(self.ingest.ledger.offsets(source))
            fresh = [f for f in survey(self.spark, folder, source) if not known.holds(f)]
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

    def _listing(self) -> DataFrame:
        return reduce(DataFrame.union, [listing(self.spark, folder, source, self.max_files) for source, folder in self.folders.items()])


def place(folders: Mapping[str, str]) -> str:
    """The writer's place of whoever lets in from folders: one at a time, since a stream has one checkpoint."""
    return f"ingest-{_told(folders)}"


def _told(folders: Mapping[str, str]) -> str:
    """A set of folders in a few letters, by whichever of their names; Spark refuses a checkpoint that was made for another set."""
    named = sorted((source, one_path(folder)) for source, folder in folders.items())
    return hashlib.sha256(repr(named).encode()).hexdigest()[:12]


@dataclass
class _Query:
    """The query.

    Args:
        listing: the stream of files.
        every: the trigger's interval; None to end when all is listed.
        checkpoint: where Spark keeps how far it has come.
        enter: takes the files of a micro-batch.
        asked: whether to call `enter` though the listing shows nothing new; asked between micro-batches of a stream that stays.
    """

    listing: DataFrame
    every: str | None
    checkpoint: str
    enter: Callable[[list[File]], None]
    asked: Callable[[], bool] = lambda: False
    began: bool = False
    failed: BaseException | None = None
    _one_at_a_time: Any = field(default_factory=Lock)

    def run(self) -> None:
        """Run until it ends. What a micro-batch raises ends it, and is `failed` then; what Spark raises is raised."""
        query = self.listing.writeStream.foreachBatch(self._let_in).option("checkpointLocation", self.checkpoint)
        started = (query.trigger(availableNow=True) if self.every is None else query.trigger(processingTime=self.every)).start()
        try:
            if self.every is None:
                started.awaitTermination()
            while self.every is not None and self.failed is None and not started.awaitTermination(LOOK_EVERY_S):
                self._look()
        except StreamingQueryException:
            if self.failed is None:
                raise
        finally:
            started.stop()

    def _look(self) -> None:
        """Ingest what the listing does not show, unless a micro-batch is at work, which does so itself."""
        if not self._one_at_a_time.acquire(blocking=False):
            return
        try:
            if self.asked():
                self.enter([])
        except BaseException as error:  # as a micro-batch's own does, it ends the query
            self.failed = error
        finally:
            self._one_at_a_time.release()

    def _let_in(self, batch: DataFrame, _: int) -> None:
        self.began = True
        try:
            with self._one_at_a_time:
                self.enter([File(r.modified, r.path, r.length, r.source) for r in batch.collect()])
        except BaseException as error:  # one that left the callback unanswered would leave the query waiting for ever
            self.failed = error
            raise RuntimeError("the micro-batch was not let in") from error
