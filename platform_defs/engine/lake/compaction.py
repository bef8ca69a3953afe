"""Compaction and VACUUM of the lake's tables."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, PyFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from operators.columns import quoted_name
from platform_defs.engine.lake.commits import commit_options
from platform_defs.engine.lake.data_files import COMMIT_FOLDER
from platform_defs.engine.lake.interrupts import run_to_end
from platform_defs.engine.lake.merged_files import FAULTS, can_merge, merge_files
from platform_defs.engine.lake.root import LakeRoot

CONFLICTS = (
    DeltaConcurrentModificationException,
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    MetadataChangedException,
    ProtocolChangedException,
)
"""Delta's exceptions for a commit that another writer's commit has overtaken. In Python they have no base class of their own."""
SMALL_BYTES = 32 * 1024 * 1024
MANY_FILES = 64
"""After a commit, a table with this many files below `SMALL_BYTES` is compacted."""
TINY_BYTES = 512 * 1024
MANY_TINY_FILES = 8
"""After a commit, the files of a table below `TINY_BYTES` are merged if there are this many."""
CHECKPOINT_EVERY = 20
"""A table gets a checkpoint at each version that is a multiple of this, and at the version after it; see `after_commits`."""
_RETENTION_CONF = "spark.databricks.delta.retentionDurationCheck.enabled"


@dataclass(frozen=True)
class MaintainedTables(LakeRoot):
    """Maintains a lake's tables."""

    def optimize(self, spark: SparkSession, table: str) -> None:
        """Compact a table's files below `SMALL_BYTES`, without Spark if one merge can read all of them."""
        self.check_leases()
        if not self._merge_small_files(table):
            from delta.tables import DeltaTable as SparkDelta

            run_to_end(SparkDelta.forPath(spark, self.path(table)).optimize().executeCompaction, spark)

    def _merge_small_files(self, table: str) -> bool:
        """Merge a table's files below `SMALL_BYTES` into one; False if Spark must do it, or must name what is wrong with a file."""
        path, options = self.path(table), self.storage_options
        delta = DeltaTable(path, storage_options=options)
        try:
            return can_merge(delta, path) and merge_files(delta, path, options, SMALL_BYTES, all_or_none=True)
        except FAULTS:
            return False

    def count_unneeded_files(self, spark: SparkSession, table: str, hours: int | None) -> int:
        """The number of files that no version of the last `hours` needs, up to 1,000 for a table with deletion vectors.

        `hours` None means the table's own retention. If another table is in a subfolder of the table's folder, only files that the
        table's own log lists as removed are counted, and none for a table with deletion vectors.
        """
        delta = DeltaTable(self.path(table), storage_options=self.storage_options)
        if not has_vectors(delta):
            return len(_vacuum(delta, hours, dry_run=True))
        if has_nested_tables(delta):
            return 0
        return self._run_vacuum(spark, table, hours, " DRY RUN").where(F.col("path").rlike(r"\.[^/]*$")).count()  # it lists folders too

    def vacuum(self, spark: SparkSession, table: str, hours: int | None) -> None:
        """Delete the files that `count_unneeded_files` counts, and on a disk the folders that are empty then.

        For a table with deletion vectors Spark does it: deltalake would delete the files of the vectors.

        A full vacuum deletes every file below the folder that the table's log does not list, even the log of a table in a subfolder. If
        a table is in a subfolder, only files that the table's own log lists as removed are deleted, and none for a table with deletion
        vectors.
        """
        self.check_leases()
        delta = DeltaTable(self.path(table), storage_options=self.storage_options)
        if not has_vectors(delta):
            _vacuum(delta, hours, dry_run=False)
        elif not has_nested_tables(delta):
            self._run_vacuum(spark, table, hours)
        if self.is_local:
            _delete_empty_folders(Path(self.path(table)))

    def _run_vacuum(self, spark: SparkSession, table: str, hours: int | None, suffix: str = "") -> DataFrame:
        before = spark.conf.get(_RETENTION_CONF, None)
        spark.conf.set(_RETENTION_CONF, str(hours is None).lower())
        retain = "" if hours is None else f" RETAIN {hours} HOURS"
        try:
            return spark.sql(f"VACUUM delta.{quoted_name(self.path(table))}{retain}{suffix}")
        finally:
            spark.conf.unset(_RETENTION_CONF) if before is None else spark.conf.set(_RETENTION_CONF, before)


def _vacuum(delta: DeltaTable, hours: int | None, *, dry_run: bool) -> list[str]:
    """Delete a table's unneeded files by deltalake, unless it is a dry run; returns them."""
    is_full = not has_nested_tables(delta)
    return delta.vacuum(hours, dry_run, enforce_retention_duration=hours is None, full=is_full, **commit_options({}))


def delete_removed_files(path: str, storage_options: dict[str, str] | None) -> None:
    """Delete the files that a table outside the lake no longer needs, since its retention (by default a week) has passed.

    Other files in the table's folder, which its log does not name, are kept. If the table has deletion vectors, no file is deleted.
    """
    if DeltaTable.is_deltatable(path, storage_options) and not has_vectors(delta := DeltaTable(path, storage_options=storage_options)):
        delta.vacuum(dry_run=False, **commit_options({}))


def _delete_empty_folders(table: Path) -> None:
    """Delete the folders of commits without files, which deltalake leaves: there would be more of them with each commit."""
    for folder in table.glob(f"{COMMIT_FOLDER}*"):
        with suppress(OSError):  # it has files
            folder.rmdir()


def has_vectors(delta: DeltaTable) -> bool:
    """Whether a table may have deletion vectors, which mark rows of its files as deleted."""
    return "deletionVectors" in (delta.protocol().writer_features or ())


def has_nested_tables(delta: DeltaTable) -> bool:
    """Whether another table is anywhere below a table's folder, on a disk or behind a URI."""
    handler = DeltaStorageHandler.from_table(delta._table)  # pyright: ignore[reportPrivateUsage]
    files = PyFileSystem(handler).get_file_info(FileSelector("", recursive=True))
    return any("_delta_log" in file.path.strip("/").split("/")[1:] for file in files)


def count_small_files(delta: DeltaTable) -> int:
    """The number of a table's data files below `SMALL_BYTES`."""
    return sum(size < SMALL_BYTES for size in file_sizes(delta))


def file_sizes(delta: DeltaTable) -> list[int]:
    """The sizes of a table's data files in bytes, from its log."""
    return pa.table(delta.get_add_actions(flatten=True)).column("size_bytes").to_pylist()
