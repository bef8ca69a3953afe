"""The lake: Delta tables under one root, and what their commits remember.

Spark writes what may be large. The deltalake library reads and writes what is small (the ledger, commit
metadata), where a Spark job would cost more than the work. All commit metadata passes through here, so that
another store needs a change in this module alone.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
from delta.exceptions import DeltaConcurrentModificationException
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, NumericType, StringType, StructType, TimestampNTZType, TimestampType

from platform_defs.faults import point
from platform_defs.resources.chosen import Ranges, chosen_rows, extent, no_rows, schema_of
from platform_defs.resources.errors import LakeBusy, LakeError
from platform_defs.resources.files import is_local
from platform_defs.resources.lease import Lease, Purpose, locked

_SKIP_EMPTY_CONF = "spark.databricks.delta.skipRecordingEmptyCommits"
_WITH_STATISTICS = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)
SMALL_BYTES = 32 * 1024 * 1024
MANY_FILES = 64
"""A commit that leaves a table with this many files below `SMALL_BYTES` compacts them."""
CHECKPOINT_EVERY = 20
_NO_CHECKPOINT_BY_SPARK = {"delta.checkpointInterval": "1000000"}
_RETENTION_CONF = "spark.databricks.delta.retentionDurationCheck.enabled"
_METADATA_CONF = "spark.databricks.delta.commitInfo.userMetadata"
_ONE_AT_A_TIME = Lock()
_ROWS = "rows_of"


@dataclass(frozen=True)
class Commit:
    """One commit of a table.

    Args:
        version: the table's version that it made.
        value: what its metadata holds under the key it was looked up by.
        rows: how many rows it wrote.
    """

    version: int
    value: Any
    rows: int


@dataclass(frozen=True)
class Lake:
    """The tables below one root.

    Args:
        root: a path or a URI that both Spark and deltalake understand.
        lease_s: for a URI, how many seconds after a writer died another may take its place.
    """

    root: str
    lease_s: float = 60.0
    _leases: dict[str, Lease] = field(default_factory=dict, init=False, compare=False, repr=False)

    def path(self, table: str) -> str:
        """Where a table lies."""
        return f"{self.root.rstrip('/')}/{table}"

    def delta(self, table: str) -> DeltaTable | None:
        """The table as deltalake sees it now, or None where there is none."""
        try:
            return DeltaTable(self.path(table))
        except TableNotFoundError:
            return None

    def place(self, table: str) -> int | None:
        """What changes when a table is deleted and made anew, on a disk of this machine; None where there is nothing to tell."""
        log = Path(self.path(table), "_delta_log")
        return log.stat().st_ino if self.is_local and log.exists() else None

    def read(self, spark: SparkSession, table: str, schema: StructType | None = None, within: Ranges | None = None) -> DataFrame:
        """The rows of the data files that can hold rows within ranges, as the table is now.

        Args:
            spark: the session.
            table: the table.
            schema: the columns wanted, null where the table has not got one; None for the table's own.
            within: the ranges; the chosen files hold other rows too.

        Returns:
            The rows; none where there is no table yet, which then needs a schema.
        """
        delta = self.delta(table)
        rows = no_rows(spark, schema or StructType()) if delta is None else chosen_rows(spark, delta, self.path(table), within or {})
        if schema is None:
            return rows
        missing = [F.lit(None).cast(f.dataType).alias(f.name) for f in schema.fields if f.name not in rows.columns]
        return rows.select("*", *missing).select(*schema.fieldNames())

    def extent(self, table: str, columns: Sequence[str], within: Ranges) -> Ranges:
        """Between which values of columns the rows within ranges lie, as far as the table's log tells; see `chosen.extent`."""
        delta = self.delta(table)
        return {} if delta is None else extent(delta, columns, within)

    def is_large(self, table: str) -> bool:
        """Whether a table is so large that it pays to choose the files of it to look into."""
        delta = self.delta(table)
        return delta is not None and sum(_sizes(delta)) > SMALL_BYTES

    def schema(self, table: str) -> StructType:
        """The columns that the table has; none where there is no table yet."""
        delta = self.delta(table)
        return StructType() if delta is None else schema_of(delta)

    def append(
        self,
        frame: DataFrame,
        table: str,
        metadata: dict[str, Any],
        *,
        pruned_by: Sequence[str] = (),
        replace_where: str | None = None,
        anew: bool = False,
        widen: bool = False,
        followed: bool = False,
        marked: bool = False,
    ) -> None:
        """Commit a frame's rows and the metadata, as one; with `replace_where`, in place of the rows it names.

        A frame without rows is committed too: its metadata counts, and Delta would skip it.

        Args:
            frame: the rows.
            table: the table; the first append makes it.
            metadata: what the commit shall remember.
            pruned_by: the columns by which readers choose files; a new table keeps statistics of these alone.
            replace_where: SQL for the rows to replace.
            anew: whether the rows replace all that the table holds, and its columns.
            widen: whether the table gains the columns it has not got; its older rows are null there.
            followed: whether a new table keeps Delta's change data feed, for rows that are updated and deleted later.
            marked: whether a new table marks such rows by deletion vectors, in place of writing anew every file that holds one.
        """
        self.still_mine()
        frame.sparkSession.conf.set(_SKIP_EMPTY_CONF, "false")
        writer = frame.write.format("delta").option("userMetadata", json.dumps(metadata)).options(**_NO_CHECKPOINT_BY_SPARK)
        writer = writer.option("mergeSchema", str(widen).lower())
        writer = writer.option("delta.enableChangeDataFeed", "true") if followed else writer
        writer = writer.option("delta.enableDeletionVectors", "true") if marked else writer
        if pruned_by:
            kept = [f"`{c}`" for c in pruned_by if isinstance(frame.schema[c].dataType, _WITH_STATISTICS)]
            writer = writer.option("delta.dataSkippingStatsColumns", ",".join(kept))
        if anew:
            writer.mode("overwrite").option("mergeSchema", "false").option("overwriteSchema", "true").save(self.path(table))
        elif replace_where is None:
            writer.mode("append").save(self.path(table))
        else:
            writer.mode("overwrite").option("replaceWhere", replace_where).save(self.path(table))
        self._tend(frame.sparkSession, table)

    def append_small(
        self, rows: pa.Table, table: str, metadata: dict[str, Any] | None = None, *, seen: DeltaTable | None = None, description: str = ""
    ) -> None:
        """Commit a few rows without a Spark job.

        Args:
            rows: the rows.
            table: the table; the first append makes it.
            metadata: what the commit shall remember.
            seen: the table as the caller knows it, to commit on that version or not at all; None for the newest.
            description: kept where this makes the table.

        Raises:
            LakeError: another has committed meanwhile.
        """
        self.still_mine()
        Path(self.path(table)).parent.mkdir(parents=True, exist_ok=True) if self.is_local else None
        told = {"userMetadata": json.dumps(metadata)} if metadata else None
        once = CommitProperties(custom_metadata=told, max_commit_retries=0)
        before = self.version(table) if seen is None else seen.version()
        try:
            write_deltalake(seen or self.path(table), rows, mode="append", commit_properties=once, description=description or None)
        except CommitFailedError as error:
            if self.version(table) == before:  # nobody was first: the store itself refused
                raise
            raise LakeError.lost(table, "unknown") from error

    def merge(self, table: str, rows: DataFrame, same: Column, *, gone: Column, metadata: dict[str, Any]) -> None:
        """Fold rows (`c`) into a table (`t`): delete where `gone`, update, insert; as one commit with the metadata."""
        from delta.tables import DeltaTable as SparkDelta

        self.still_mine()
        spark = rows.sparkSession
        columns = spark.read.format("delta").load(self.path(table)).columns
        target = SparkDelta.forPath(spark, self.path(table)).alias("t")
        merge = target.merge(rows.alias("c"), same).whenMatchedDelete(condition=gone)
        values: dict[str, str | Column] = {c: f"c.`{c}`" for c in columns}
        with _commit_metadata(spark, metadata):
            merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(condition=~gone, values=values).execute()
        self._tend(spark, table)

    def delete(self, spark: SparkSession, table: str, condition: str, metadata: dict[str, Any]) -> None:
        """Delete the rows that a condition in SQL holds for, as one commit with the metadata."""
        from delta.tables import DeltaTable as SparkDelta

        self.still_mine()
        with _commit_metadata(spark, metadata):
            SparkDelta.forPath(spark, self.path(table)).delete(condition)
        self._tend(spark, table)

    def update(self, spark: SparkSession, table: str, condition: Column, values: Mapping[str, Column], metadata: dict[str, Any]) -> None:
        """Set columns of the rows that a condition holds for, as one commit with the metadata."""
        from delta.tables import DeltaTable as SparkDelta

        self.still_mine()
        with _commit_metadata(spark, metadata):
            SparkDelta.forPath(spark, self.path(table)).update(condition, dict(values))
        self._tend(spark, table)

    def _tend(self, spark: SparkSession, table: str) -> None:
        """What a commit leaves to do now and then: a checkpoint of the log, and to compact many small files.

        Delta would do both itself, at a higher price: a checkpoint by Spark jobs, whose code alone takes seconds to
        compile, and a compaction after each process's first commit to a table, however few the files are.
        """
        delta = DeltaTable(self.path(table))
        if small_files(delta) >= MANY_FILES:
            point("lake.before_compact")
            with suppress(DeltaConcurrentModificationException):
                self.optimize(spark, table)
            point("lake.after_compact")
            delta.update_incremental()
        if delta.version() >= CHECKPOINT_EVERY and delta.version() % CHECKPOINT_EVERY < 2:  # a compaction takes one version
            delta.create_checkpoint()

    def optimize(self, spark: SparkSession, table: str) -> None:
        """Compact a table's files below `SMALL_BYTES`."""
        from delta.tables import DeltaTable as SparkDelta

        self.still_mine()
        SparkDelta.forPath(spark, self.path(table)).optimize().executeCompaction()

    def unneeded(self, spark: SparkSession, table: str, hours: int | None) -> int:
        """How many files no version within some hours needs, of a table with deletion vectors at most 1,000; None for its own retention."""
        delta = DeltaTable(self.path(table))
        if not has_vectors(delta):
            return len(delta.vacuum(hours, True, enforce_retention_duration=hours is None, full=True))
        return self._vacuumed(spark, table, hours, " DRY RUN").where(F.col("path").rlike(r"\.[^/]*$")).count()  # it tells folders too

    def vacuum(self, spark: SparkSession, table: str, hours: int | None) -> None:
        """Delete these files. deltalake takes deletion vectors for such, so a table that has them is left to Spark."""
        self.still_mine()
        delta = DeltaTable(self.path(table))
        if has_vectors(delta):
            self._vacuumed(spark, table, hours)
        else:
            delta.vacuum(hours, False, enforce_retention_duration=hours is None, full=True)

    def _vacuumed(self, spark: SparkSession, table: str, hours: int | None, how: str = "") -> DataFrame:
        spark.conf.set(_RETENTION_CONF, str(hours is None).lower())
        retain = "" if hours is None else f" RETAIN {hours} HOURS"
        return spark.sql(f"VACUUM delta.`{self.path(table).replace('`', '``')}`{retain}{how}")

    def newest(self, table: str, key: str) -> "Commit | None":
        """The newest commit with this key in its metadata; None where there is no table.

        Commits of others (OPTIMIZE, VACUUM, a user's own) are stepped over. OPTIMIZE ones always: it commits
        under the session's setting, which may be another commit's metadata just then.

        Raises:
            LakeError: the table is there, and no commit that is left has the key.
        """
        delta = self.delta(table)
        if delta is None:
            return None
        for commits in (8, None):
            for told in delta.history(commits):
                metadata = _metadata(told)
                if key in metadata and told.get("operation") != "OPTIMIZE":
                    written = told.get("operationMetrics", {}).get("numOutputRows", 0)
                    return Commit(told["version"], metadata[key], int(metadata.get(_ROWS, {}).get(key, written)))
        raise LakeError.forgotten(table, key)

    def carry(self, table: str, commits: Mapping[str, Commit]) -> None:
        """Commit again what earlier commits remember, by key, so that the table's log may lose them.

        The caller is the table's one writer: a commit in between would be hidden.
        """
        delta = self.delta(table)
        if delta is None:
            return
        self.still_mine()
        told = {key: commit.value for key, commit in commits.items()} | {_ROWS: {key: commit.rows for key, commit in commits.items()}}
        properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(told)}, max_commit_retries=0)
        delta.create_write_transaction([], "append", delta.schema(), commit_properties=properties)

    def version(self, table: str) -> int | None:
        """The table's newest version."""
        delta = self.delta(table)
        return None if delta is None else delta.version()

    @property
    def is_local(self) -> bool:
        """Whether the root is a folder of this machine."""
        return is_local(self.root)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the lake for writing while the block runs.

        Raises:
            LakeError: it cannot be written to, from the start or half-way through; it says why.
        """
        try:
            if self.is_local:
                Path(self.root).mkdir(parents=True, exist_ok=True)
                if not os.access(self.root, os.W_OK | os.X_OK):
                    raise LakeError.unusable(self.root, "it is read-only")
            yield
        except (OSError, DeltaError, PySparkException, Py4JJavaError) as error:
            text = str(error)
            if full := re.search("No space left on device|Disk quota exceeded", text):
                raise LakeError.full(self.root, full[0]) from error
            if closed := re.search("Read-only file system|Permission denied|Not a directory|File exists", text):
                raise LakeError.unusable(self.root, closed[0]) from error
            raise

    @contextmanager
    def writer(self, name: str, purpose: Purpose = "write") -> Iterator[None]:
        """Be the one writer of an asset (or of the ledger) while the block runs; a dead one's place is freed.

        A writer that meets maintenance waits for it, and maintenance that meets a writer is refused.

        Raises:
            LakeError: somebody else is; it says who, and since when.
        """
        with self.opened(), self._held(name, purpose):
            yield

    def busy(self, name: str) -> str | None:
        """Who is the writer of an asset just now, and since when; None for nobody. A writer that comes meanwhile waits for the answer."""
        if self.is_local and not Path(self.root, "_locks").exists():
            return None
        try:
            with self._held(name, "maintenance"):
                return None
        except LakeBusy as busy:
            return str(busy)

    @contextmanager
    def _held(self, name: str, purpose: Purpose) -> Iterator[None]:
        if self.is_local:
            with locked(Path(self.root, "_locks"), name, purpose):
                yield
            return
        lease = Lease(self.path(f"_leases/{name.replace('/', '.')}"), name, self.lease_s, purpose)
        with lease.held():
            self._leases[name] = lease
            try:
                yield
            finally:
                del self._leases[name]

    def still_mine(self) -> None:
        """Pass if this process still is the writer of all that it took."""
        for lease in list(self._leases.values()):
            lease.check()


def has_vectors(delta: DeltaTable) -> bool:
    """Whether deletion vectors may mark rows of a table's files as gone."""
    return "deletionVectors" in (delta.protocol().writer_features or ())


def small_files(delta: DeltaTable) -> int:
    """How many of a table's data files are below `SMALL_BYTES`."""
    return sum(size < SMALL_BYTES for size in _sizes(delta))


def _sizes(delta: DeltaTable) -> list[int]:
    return pa.table(delta.get_add_actions(flatten=True)).column("size_bytes").to_pylist()


def _metadata(commit: dict[str, Any]) -> dict[str, Any]:
    """A commit's metadata, if it is one of ours."""
    try:
        found = json.loads(commit.get("userMetadata") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _commit_metadata(spark: SparkSession, metadata: dict[str, Any]) -> Iterator[None]:
    """Give commits that take no option their metadata: by the session's setting, so one at a time."""
    with _ONE_AT_A_TIME:
        spark.conf.set(_METADATA_CONF, json.dumps(metadata))
        try:
            yield
        finally:
            spark.conf.unset(_METADATA_CONF)
