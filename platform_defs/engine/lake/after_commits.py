"""The maintenance of a table after each commit to it: compaction, checkpoints, and the deletion of old commits."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from operators.errors import TidemarkError
from platform_defs.engine.faults import point
from platform_defs.engine.lake import compaction
from platform_defs.engine.lake.commits import write_checkpoint
from platform_defs.engine.lake.compaction import CONFLICTS, SMALL_BYTES, MaintainedTables, file_sizes
from platform_defs.engine.lake.errors import store_reason
from platform_defs.engine.lake.merged_files import FAULTS, can_merge, merge_files
from platform_defs.engine.lake.reads import ReadTables

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Committed:
    """What a writer knows of a table after a commit by deltalake, so that maintenance need not read the table's log again.

    Args:
        version: the version of the commit.
        unchanged: the opened table with the files that the commit has not removed; None if there are none.
        added: the files that it has added, unless `unchanged` has them already.
        has_metadata: whether the commit records the metadata that the table's commits record, such as progress. If not, an older commit
            records it, and must not be deleted.
    """

    version: int
    unchanged: DeltaTable | None
    added: Sequence[AddAction] = ()
    has_metadata: bool = True

    def file_sizes(self) -> list[int]:
        """The sizes of the table's data files in bytes."""
        return [*([] if self.unchanged is None else file_sizes(self.unchanged)), *(file.size for file in self.added)]


@dataclass(frozen=True)
class TablesMaintainedAfterCommits(ReadTables, MaintainedTables):
    """Maintains the tables of a lake after commits."""

    @property
    def live(self) -> "TablesMaintainedAfterCommits":
        """The lake itself; for a snapshot, the lake from which it was taken (see `tables.LakeSnapshot`)."""
        return self

    def _after_commit(self, spark: SparkSession, table: str, committed: Committed | None = None) -> None:
        """Compact small files, or merge tiny ones, if there are many.

        At each version that is a multiple of `CHECKPOINT_EVERY`, and at the version after it, write a checkpoint and delete old commits,
        unless one may have metadata that is still needed.

        The post-commit hooks of Delta and deltalake cost more. Delta's checkpoints are Spark jobs, whose code takes seconds to compile, and
        Delta compacts after each process's first commit to a table, even if there are few files. The hooks of deltalake list the whole log
        after each commit.

        A fault is logged: the commit has succeeded, and the maintenance after the next one tries again.

        Args:
            spark: the session.
            table: the table.
            committed: the commit; None for one of Spark.
        """
        try:
            self.live._maintain(spark, table, committed)
        except (PySparkException, Py4JJavaError, DeltaError, OSError, TidemarkError) as error:
            _log.warning("%s has a new commit, but its maintenance failed: %s", table, store_reason(error))

    def _maintain(self, spark: SparkSession, table: str, committed: Committed | None) -> None:
        if committed is None:
            delta = self.delta_for_reading(table)
            if delta is None:
                return
            version, sizes = delta.version(), file_sizes(delta)
        else:
            version, sizes, delta = committed.version, committed.file_sizes(), committed.unchanged
        has_tiny_files = sum(size < compaction.TINY_BYTES for size in sizes) >= compaction.MANY_TINY_FILES
        is_mergeable = has_tiny_files and delta is not None and can_merge(delta, self.path(table))
        del delta  # so that it can be brought up to date after a merge; if the writer still has it, the table is opened again
        if sum(size < SMALL_BYTES for size in sizes) >= compaction.MANY_FILES:
            point("lake.before_compact")
            with suppress(*CONFLICTS):
                self.optimize(spark, table)
            point("lake.after_compact")
            version += 1
        elif is_mergeable:
            version += self._merge_tiny_files(table)
        every = compaction.CHECKPOINT_EVERY
        # A compaction may have followed the commit whose version is the multiple; or a commit without maintenance, such as that of a new
        # column, may have that version.
        has_many_commits = version >= every and version % every < 2
        if has_many_commits and (newest := self.delta_for_reading(table)) is not None:
            write_checkpoint(newest, delete_old_commits=committed is None or committed.has_metadata)

    def _merge_tiny_files(self, table: str) -> bool:
        """Merge a table's files below `TINY_BYTES` into one, without Spark; returns whether they were merged.

        A fault is logged. The files are then read as before.
        """
        delta = self.delta_for_reading(table)
        if delta is None or not can_merge(delta, self.path(table)):
            return False
        point("lake.before_compact")
        self.check_leases()
        try:
            is_merged = merge_files(delta, self.path(table), self.storage_options, compaction.TINY_BYTES)
        except FAULTS as error:
            _log.warning("the tiny files of %s were not merged: %s", table, store_reason(error))
            return False
        point("lake.after_compact")
        return is_merged
