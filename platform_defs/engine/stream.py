"""The stream: one Structured Streaming query finds files, each micro-batch becomes one ledger entry.

The ledger, not Spark's checkpoint, knows what was let in: a lost checkpoint lists every file again, and those
the ledger tells of are passed over. So one that Spark cannot begin with is thrown away. Spark's batch ids are not used.
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from operators.timing import length_ms
from platform_defs.engine.ingest import Ingest, IngestError
from platform_defs.engine.ledger import Entry
from platform_defs.engine.turns import MOST_KEPT, PATIENCE_S, Turns
from platform_defs.resources.files import File, Known, hadoop_file, is_local, listing, one_path, survey
from platform_defs.resources.lake import Lake

OnEntry = Callable[[Entry], None]
OnQuiet = Callable[[], None]


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
    """

    spark: SparkSession
    lake: Lake
    ingest: Ingest
    folders: Mapping[str, str]
    max_files: int
    idle: Callable[[], Entry | None] = lambda: None

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
            LakeError: the lake cannot be written to, or another process writes to it.
        """
        with self.lake.opened():
            self._make_folders()
            with self.lake.writer(place(self.folders)):
                turns = Turns(self.ingest.files, self.idle, on_entry, on_quiet, PATIENCE_S if every else 0.0)
                turns.made = deque(maxlen=MOST_KEPT if every else None)  # a stream may stay for years
                self._query(every, turns)
                left = [] if every else self._overlooked(everything=True)
                for first in range(0, len(left), self.max_files):
                    turns.files(left[first : first + self.max_files])
        return list(turns.made)

    def _query(self, every: str | None, turns: Turns) -> None:
        """Run the query until it ends; what a micro-batch raises ends it, and is raised.

        A process that is killed may leave a checkpoint that Spark refuses ever after. So where the query ends before its first
        micro-batch, it is run once more without the checkpoint, which nobody else is at.
        """
        checkpoint = self.lake.path(f"_checkpoints/{_told(self.folders)}")
        query = _Query(self._listing(), every, checkpoint, lambda files: turns.files(files + self._overlooked(everything=False)))
        query.quiet = turns.quiet
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
        quiet: called at each trigger interval while the query stays, in the thread that runs it.
    """

    listing: DataFrame
    every: str | None
    checkpoint: str
    enter: Callable[[list[File]], None]
    quiet: Callable[[], None] = lambda: None
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
            self.enter([File(r.modified, r.path, r.length, r.source) for r in batch.collect()])
        except BaseException as error:  # one that left the callback unanswered would leave the query waiting for ever
            self.failed = error
            raise RuntimeError("the micro-batch was not let in") from error
