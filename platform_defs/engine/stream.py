"""The stream: one Structured Streaming query finds files, each micro-batch becomes one ledger entry.

The ledger, not Spark's checkpoint, knows what was let in: a lost checkpoint lists every file again, and those
the ledger tells of are passed over. So a damaged one is thrown away. Spark's batch ids are not used.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from platform_defs.engine.ingest import Ingest, IngestError
from platform_defs.engine.ledger import Entry
from platform_defs.resources.files import File, Known, hadoop_path, is_local, listing, one_path, survey
from platform_defs.resources.lake import Lake

_TWO_STREAMS = "CONCURRENT_STREAM_LOG_UPDATE"
"""Spark's word for another live query at the same checkpoint, which is then not ours to delete."""


@dataclass(frozen=True)
class Stream:
    """Ingests from folders.

    Args:
        spark: the session.
        lake: the lake, which also holds the query's checkpoint.
        ingest: lets micro-batches in.
        folders: each source's folder.
        max_files: files of a source that one micro-batch takes.
    """

    spark: SparkSession
    lake: Lake
    ingest: Ingest
    folders: Mapping[str, str]
    max_files: int

    def run(self, every: str | None = None, on_entry: Callable[[Entry], None] = lambda _: None) -> list[Entry]:
        """Let in what is there (`every` None: `availableNow`), or what comes, for ever, at a processing-time interval.

        Args:
            every: the trigger's interval, such as `'30 seconds'`.
            on_entry: called after each entry is committed.

        Returns:
            The entries made.

        Raises:
            IngestError: a rule whose action is to fail was broken, a column came that the contract refuses, or a folder cannot be used.
            LakeError: the lake cannot be written to, or another process writes to it.
        """
        with self.lake.opened():
            self._make_folders()
            made: list[Entry] = []
            self._query(every, lambda files: made.extend(self._enter(files, on_entry)))
            left = [] if every else self._overlooked(everything=True)
            for first in range(0, len(left), self.max_files):
                made.extend(self._enter(left[first : first + self.max_files], on_entry))
        return made

    def _enter(self, files: Sequence[File], on_entry: Callable[[Entry], None]) -> list[Entry]:
        entry = self.ingest.files(files)
        if entry is None:
            return []
        on_entry(entry)
        return [entry]

    def _query(self, every: str | None, enter: Callable[[Sequence[File]], None]) -> None:
        """Run the query until it ends; what a micro-batch raises ends it, and is raised.

        A process that is killed may leave a checkpoint that Spark refuses ever after. So what ends the query otherwise is raised
        only where it does so without a checkpoint, too.
        """
        try:
            failed = self._ended(every, enter)
        except (PySparkException, Py4JJavaError) as error:
            if _TWO_STREAMS in str(error):
                raise
            files, checkpoint = hadoop_path(self.spark, self._checkpoint())
            files.delete(checkpoint, True)
            failed = self._ended(every, enter)
        if failed is not None:
            raise failed

    def _ended(self, every: str | None, enter: Callable[[Sequence[File]], None]) -> BaseException | None:
        """Run the query until it ends; returns what a micro-batch raised, if one did."""
        failed: list[BaseException] = []

        def let_in(batch: DataFrame, _: int) -> None:
            try:
                found = [File(r.modified, r.path, r.length, r.source) for r in batch.collect()]
                enter(found + self._overlooked(everything=False))
            except BaseException as error:  # one that left the callback unanswered would leave the query waiting for ever
                failed.append(error)
                raise RuntimeError("the micro-batch was not let in") from error

        query = self._listing().writeStream.foreachBatch(let_in).option("checkpointLocation", self._checkpoint())
        started = (query.trigger(availableNow=True) if every is None else query.trigger(processingTime=every)).start()
        try:
            started.awaitTermination()
        except StreamingQueryException:
            if not failed:
                raise
        finally:
            started.stop()
        return failed[0] if failed else None

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

    def _checkpoint(self) -> str:
        """One checkpoint for each set of folders, by whichever of their names: Spark refuses one that was made for another set."""
        folders = sorted((source, one_path(folder)) for source, folder in self.folders.items())
        told = hashlib.sha256(repr(folders).encode()).hexdigest()[:12]
        return self.lake.path(f"_checkpoints/{told}")
