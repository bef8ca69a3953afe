"""The lake: Delta tables under one root, and what their commits remember.

Spark writes what may be large. The deltalake library reads and writes what is small (the ledger, commit
metadata), where a Spark job would cost more than the work. All commit metadata passes through here, so that
another store needs a change in this module alone.
"""

import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, cast

import pyarrow as pa
from delta.exceptions import DeltaConcurrentModificationException
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from py4j.protocol import Py4JJavaError
from pyarrow.fs import FileSelector, FileType, PyFileSystem
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from platform_defs.engine.formats.files import is_local
from platform_defs.engine.lake import commits
from platform_defs.engine.lake.data_skipping import Ends, Ranges, chosen_rows, extent, no_rows, schema_of
from platform_defs.engine.lake.errors import LakeBusy, LakeError
from platform_defs.engine.lake.interrupts import to_its_end
from platform_defs.engine.lake.locks import Lease, Purpose, locked
from platform_defs.engine.lake.table_columns import bounded_columns, check_columns, configuration, statistics_columns
from platform_defs.faults import point
from platform_defs.paths import canonical

_SKIP_EMPTY_CONF = "spark.databricks.delta.skipRecordingEmptyCommits"
SMALL_BYTES = 32 * 1024 * 1024
MANY_FILES = 64
"""A commit that leaves a table with this many files below `SMALL_BYTES` compacts them."""
CHECKPOINT_EVERY = 20
_RETENTION_CONF = "spark.databricks.delta.retentionDurationCheck.enabled"
_METADATA_CONF = "spark.databricks.delta.commitInfo.userMetadata"
_APPLICATION_CONF, _NUMBER_CONF = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
ANY: Any = object()
"""Whatever a table's newest commit records."""
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
        root: a path or a URI that both Spark and deltalake understand; it gets its one spelling, see `paths.canonical`.
        lease_s: for a URI, how many seconds after a writer died another may take its place.
        leases: whether a `file://` URI stays one, whose writers take leases in place of file locks; for tests alone.
    """

    root: str
    lease_s: float = 60.0
    leases: bool = False
    _leases: dict[str, Lease] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.leases:
            object.__setattr__(self, "root", canonical(self.root))

    def path(self, table: str) -> str:
        """Where a table lies."""
        return f"{self.root.rstrip('/')}/{table}"

    def delta(self, table: str) -> DeltaTable | None:
        """The table as deltalake sees it now, or None where there is none."""
        try:
            return DeltaTable(self.path(table))
        except TableNotFoundError:
            return None

    def pinned(self) -> "Lake":
        """The lake as it is now; see `pinned.PinnedLake`."""
        from platform_defs.engine.lake.snapshot import PinnedLake

        return PinnedLake(self.root, self.lease_s, self.leases, base=self)

    @property
    def live(self) -> "Lake":
        """The lake as it goes on; see `pinned.PinnedLake`."""
        return self

    def identity(self, table: str) -> str | None:
        """What a table has that one made anew under its name has not; None where there is no table."""
        delta = self.delta(table)
        return None if delta is None else str(delta.metadata().id)

    def transaction(self, table: str, application: str) -> int | None:
        """The newest number that an application's commits gave a table; None where there is none, or no table."""
        delta = self.delta(table)
        return None if delta is None else delta.transaction_version(application)

    def folders(self, below: str = "") -> list[str]:
        """The names of the folders of the lake's root, or of a folder below it; none where there is no such folder."""
        if self.is_local:
            found = Path(self.path(below))
            return sorted(f.name for f in found.iterdir() if f.is_dir()) if found.is_dir() else []
        try:
            files = PyFileSystem(cast(Any, DeltaStorageHandler(self.root)))
        except TableNotFoundError:  # a URI of this machine: there is no lake yet
            return []
        listed = files.get_file_info(FileSelector(below, allow_not_found=True))
        return sorted(f.base_name for f in listed if f.type == FileType.Directory)

    def frame(self, spark: SparkSession, table: str) -> DataFrame:
        """A table by Delta, as far as this lake knows it."""
        return spark.read.format("delta").load(self.path(table))

    def place(self, table: str, version: int) -> str | None:
        """What changes when a table is deleted and made anew, on a disk of this machine; None where there is nothing to compare.

        That is the file of a commit that was read: its number, its inode and its time. A file system may give a new file the inode of a
        deleted one, and never its time with it.
        """
        if not self.is_local:
            return None
        with suppress(FileNotFoundError):  # the log may have been cleaned up to a checkpoint: the table is read anew then
            found = Path(self.path(table), "_delta_log", f"{version:020}.json").stat()
            return f"{version}:{found.st_ino}:{found.st_mtime_ns}"
        return None

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
        if delta is None:
            rows = no_rows(spark, schema or StructType())
        else:
            chosen = chosen_rows(spark, delta, self.path(table), within or {})
            rows = self.frame(spark, table) if chosen is None else chosen
        if schema is None:
            return rows
        there = {c.lower() for c in rows.columns}  # a column that files added to a log may be declared in another case later
        return rows.select(
            *[F.col(f"`{f.name}`") if f.name.lower() in there else F.lit(None).cast(f.dataType).alias(f.name) for f in schema]
        )

    def extent(self, table: str, columns: Sequence[str], within: Ranges) -> dict[str, Ends]:
        """Between which values of columns the rows within ranges lie, as far as the table's log tells; see `chosen.extent`."""
        delta = self.delta(table)
        return {} if delta is None else extent(delta, columns, within)

    def is_large(self, table: str) -> bool:
        """Whether a table is so large that it pays to choose the files of it to look into."""
        delta = self.delta(table)
        return delta is not None and sum(_sizes(delta)) > SMALL_BYTES

    def no_rows(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """No rows, of some columns."""
        return no_rows(spark, schema)

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
        after: Any = ANY,
        number: int | None = None,
        pruned_by: Sequence[str] = (),
        widen: bool = False,
        followed: bool = False,
    ) -> int:
        """Commit a frame's rows and the metadata, as one, and only where it follows what the writer knows.

        A frame without rows is committed too: its metadata counts.

        Args:
            frame: the rows.
            table: the table; the first append makes it.
            metadata: what the commit records, under one key.
            after: the newest value under that key that the commit follows; None for none. By default whatever is there.
            number: the step that this is; see `commits.commit_files`.
            pruned_by: the columns by which readers choose files; a new table keeps statistics of these alone.
            widen: whether the table gains the columns it has not got; its older rows are null there.
            followed: whether a new table keeps Delta's change data feed, for rows that are updated and deleted later.

        Returns:
            How many rows were written.

        Raises:
            LakeError: another writer's commit has come between, or the columns are not the table's; nothing was committed.
        """
        self.still_mine()
        delta, path = self.delta(table), self.path(table)
        delta = commits.widen(delta, frame.schema) if delta is not None and widen else delta
        if delta is not None:
            check_columns(table, schema_of(delta), frame.schema, may_lack=widen)
        folder = commits.write_files(frame, path, [] if delta is None else schema_of(delta).fieldNames())
        bounded = bounded_columns(frame.schema, pruned_by)
        actions, rows = commits.add_actions(path, folder, bounded if delta is None else statistics_columns(delta, bounded))
        stamped = metadata | {_ROWS: dict.fromkeys(metadata, rows), "id": folder}
        self.still_mine()
        if delta is None:
            delta = commits.create(path, frame.schema, actions, stamped, configuration(bounded, followed))
        while delta is not None:
            self._check_follows(table, delta, metadata, after)
            delta = commits.commit_files(delta, actions, stamped, number)
        self._tend(frame.sparkSession, table)
        return rows

    def _check_follows(self, table: str, delta: DeltaTable, metadata: dict[str, Any], after: Any) -> None:
        """Pass if the newest value under the metadata's key is still the one that a commit follows."""
        [key] = metadata
        newest = None if after is ANY else _newest(delta, table, key)
        if after is not ANY and (None if newest is None else newest.value) != _as_stored(after):
            raise LakeError.overtaken(table, key)

    def overwrite(
        self,
        frame: DataFrame,
        table: str,
        metadata: dict[str, Any],
        *,
        number: int | None = None,
        pruned_by: Sequence[str] = (),
        followed: bool = False,
        marked: bool = False,
    ) -> None:
        """Put a frame's rows and columns in place of all that a table holds, or make the table; one commit with the metadata.

        Args:
            frame: the rows.
            table: the table.
            metadata: what the commit records.
            number: the step that this is: where the table has a commit of this step or a later one, nothing is written.
            pruned_by: as in `append`.
            followed: as in `append`.
            marked: whether a new table marks rows that are deleted by deletion vectors, in place of writing their files anew.

        Raises:
            LakeError: the table has a commit of this step or a later one.
        """
        self.still_mine()
        before, stamped = self.version(table), metadata | {"id": uuid.uuid4().hex}
        frame.sparkSession.conf.set(_SKIP_EMPTY_CONF, "false")
        writer = frame.write.format("delta").option("userMetadata", json.dumps(stamped)).mode("overwrite")
        writer = writer.options(
            **configuration(bounded_columns(frame.schema, pruned_by), followed), overwriteSchema="true", mergeSchema="false"
        )
        writer = writer.option("delta.enableDeletionVectors", "true") if marked else writer
        numbered = {} if number is None else {"txnAppId": commits.APPLICATION, "txnVersion": str(number)}
        to_its_end(lambda: writer.options(**numbered).save(self.path(table)), frame.sparkSession)
        self._check_landed(table, before, stamped["id"])
        self._tend(frame.sparkSession, table)

    def _check_landed(self, table: str, before: int | None, commit: str) -> None:
        """Pass if a commit by Spark is there: Delta skips one whose number is not above the table's, without a word."""
        if not self._is_committed(table, before, commit):
            raise LakeError.overtaken(table, "step")

    def append_small(
        self, rows: pa.Table, table: str, metadata: dict[str, Any] | None = None, *, seen: Any = ANY, description: str = ""
    ) -> None:
        """Commit a few rows without a Spark job.

        Args:
            rows: the rows.
            table: the table; the first append makes it.
            metadata: what the commit shall remember.
            seen: the table (`DeltaTable`) as the caller knows it, None for none, to commit on that or not at all; by default the newest.
            description: kept where this makes the table.

        Raises:
            LakeError: another has committed meanwhile.
        """
        self.still_mine()
        Path(self.path(table)).parent.mkdir(parents=True, exist_ok=True) if self.is_local else None
        stamped = {**(metadata or {}), "id": uuid.uuid4().hex}
        once = CommitProperties(custom_metadata={"userMetadata": json.dumps(stamped)}, max_commit_retries=0)
        known: DeltaTable | None = self.delta(table) if seen is ANY else seen
        before = None if known is None else known.version()
        merge = known is not None and not {*rows.column_names} <= {f.name for f in known.schema().fields}
        how: dict[str, Any] = {"schema_mode": "merge"} if merge else {}
        try:
            target, mode = (self.path(table), "error") if seen is None else (self.path(table) if seen is ANY else seen, "append")
            write_deltalake(target, rows, mode=mode, commit_properties=once, description=description or None, **how)
        except (DeltaError, OSError) as error:
            if self._is_committed(table, before, stamped["id"]):  # and the answer was lost
                return
            beaten = seen is None or isinstance(error, CommitFailedError)
            if not beaten or self.version(table) == before:  # nobody was first: the store itself refused
                raise
            raise LakeError.lost(table, "unknown") from error

    def _is_committed(self, table: str, after: int | None, commit: str) -> bool:
        """Whether a commit after a version has an id, as far as the store can be reached."""
        with suppress(DeltaError, OSError):
            delta = self.live.delta(table)
            return delta is not None and commits.is_committed(delta, -1 if after is None else after, commit)
        return False

    def merge(
        self, table: str, rows: DataFrame, same: Column, *, gone: Column, metadata: dict[str, Any], number: int | None = None
    ) -> None:
        """Merge rows (`c`) into a table (`t`): delete where `gone`, update, insert; as one commit with the metadata.

        Args:
            table: the table.
            rows: the changed rows.
            same: whether a changed row and a row of the table are the same one.
            gone: whether a changed row is to be deleted.
            metadata: what the commit records.
            number: the step that this is; see `overwrite`.

        Raises:
            LakeError: the table has a commit of this step or a later one, or another writer's commit has come between.
        """
        from delta.tables import DeltaTable as SparkDelta

        self.still_mine()
        spark, before, stamped = rows.sparkSession, self.version(table), metadata | {"id": uuid.uuid4().hex}
        columns = spark.read.format("delta").load(self.path(table)).columns
        target = SparkDelta.forPath(spark, self.path(table)).alias("t")
        merge = target.merge(rows.alias("c"), same).whenMatchedDelete(condition=gone)
        values: dict[str, str | Column] = {c: f"c.`{c}`" for c in columns}
        with _commit_metadata(spark, stamped, number):
            try:
                to_its_end(merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(condition=~gone, values=values).execute, spark)
            except DeltaConcurrentModificationException as error:
                raise LakeError.overtaken(table, "step") from error
        self._check_landed(table, before, stamped["id"])
        self._tend(spark, table)

    def delete(self, spark: SparkSession, table: str, predicate: str, metadata: dict[str, Any], seen: DeltaTable) -> None:
        """Delete rows, as one commit with the metadata, on the version that was seen or not at all.

        Raises:
            LakeError: another writer's commit has come between.
        """
        self._change(spark, table, metadata, seen, lambda once: seen.delete(predicate, commit_properties=once))

    def update(
        self, spark: SparkSession, table: str, predicate: str, values: Mapping[str, str], metadata: dict[str, Any], seen: DeltaTable
    ) -> None:
        """Give columns of rows new values, as one commit with the metadata, on the version that was seen or not at all.

        Args:
            spark: the session.
            table: the table.
            predicate: which rows, in the SQL of DataFusion.
            values: the new values, by column, in the SQL of DataFusion.
            metadata: what the commit records.
            seen: the table as it was when the rows were chosen.

        Raises:
            LakeError: another writer's commit has come between.
        """
        new = dict(values)
        self._change(spark, table, metadata, seen, lambda once: seen.update(updates=new, predicate=predicate, commit_properties=once))

    def _change(
        self, spark: SparkSession, table: str, metadata: dict[str, Any], seen: DeltaTable, change: Callable[[CommitProperties], object]
    ) -> None:
        """Make one commit by deltalake, which is not tried again on another version."""
        self.still_mine()
        once = CommitProperties(custom_metadata={"userMetadata": json.dumps(metadata)}, max_commit_retries=0)
        before = seen.version()
        with refused_if_overtaken(table, "rows"):
            change(once)
            if seen.version() == before:  # no row was changed, and deltalake made no commit of it
                seen.create_write_transaction([], "append", seen.schema(), commit_properties=once)
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
        to_its_end(SparkDelta.forPath(spark, self.path(table)).optimize().executeCompaction, spark)

    def unneeded(self, spark: SparkSession, table: str, hours: int | None) -> int:
        """How many files no version within some hours needs, of a table with deletion vectors at most 1,000; None for its own retention.

        Where another table lies below the table's folder, only files that the table's own log once named are counted, and of a table
        with deletion vectors none.
        """
        delta = DeltaTable(self.path(table))
        if not has_vectors(delta):
            return len(delta.vacuum(hours, True, enforce_retention_duration=hours is None, full=not holds_tables(delta)))
        if holds_tables(delta):
            return 0
        return self._vacuumed(spark, table, hours, " DRY RUN").where(F.col("path").rlike(r"\.[^/]*$")).count()  # it tells folders too

    def vacuum(self, spark: SparkSession, table: str, hours: int | None) -> None:
        """Delete these files. deltalake takes deletion vectors for such, so a table that has them is left to Spark.

        A full vacuum deletes every file below the folder that the log does not name, another table's log too; so where
        there is one, files are deleted by the table's own log alone, or, by Spark, none.
        """
        self.still_mine()
        delta = DeltaTable(self.path(table))
        if not has_vectors(delta):
            delta.vacuum(hours, False, enforce_retention_duration=hours is None, full=not holds_tables(delta))
        elif not holds_tables(delta):
            self._vacuumed(spark, table, hours)

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
        return None if delta is None else _newest(delta, table, key)

    def carry(self, remembered: Mapping[str, Commit], seen: DeltaTable) -> None:
        """Commit again what earlier commits record, by key, so that the table's log may lose them.

        Args:
            remembered: what they record.
            seen: the table as it was when they were read: a commit that has come between must not be hidden.

        Raises:
            CommitFailedError: one has.
        """
        self.still_mine()
        values, rows = {k: c.value for k, c in remembered.items()}, {k: c.rows for k, c in remembered.items()}
        properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(values | {_ROWS: rows})}, max_commit_retries=0)
        seen.create_write_transaction([], "append", seen.schema(), commit_properties=properties)

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


@contextmanager
def refused_if_overtaken(table: str, what: str) -> Iterator[None]:
    """Raise the error of a commit that another's came before, in words."""
    try:
        yield
    except CommitFailedError as error:
        raise LakeError.overtaken(table, what) from error


def has_vectors(delta: DeltaTable) -> bool:
    """Whether deletion vectors may mark rows of a table's files as gone."""
    return "deletionVectors" in (delta.protocol().writer_features or ())


def holds_tables(delta: DeltaTable) -> bool:
    """Whether another table lies somewhere below a table's folder, on a disk or behind a URI."""
    handler = DeltaStorageHandler.from_table(delta._table)  # pyright: ignore[reportPrivateUsage]
    below = PyFileSystem(handler).get_file_info(FileSelector("", recursive=True))
    return any("_delta_log" in file.path.strip("/").split("/")[1:] for file in below)


def small_files(delta: DeltaTable) -> int:
    """How many of a table's data files are below `SMALL_BYTES`."""
    return sum(size < SMALL_BYTES for size in _sizes(delta))


def _sizes(delta: DeltaTable) -> list[int]:
    return pa.table(delta.get_add_actions(flatten=True)).column("size_bytes").to_pylist()


def _newest(delta: DeltaTable, table: str, key: str) -> Commit | None:
    """The newest commit of an opened table with a key; commits of others and compactions are stepped over."""
    for version, info in commits.commit_infos(delta):
        metadata = commits.metadata_of(info)
        if key in metadata and info.get("operation") != "OPTIMIZE":
            written = info.get("operationMetrics", {}).get("numOutputRows", 0)
            return Commit(version, metadata[key], int(metadata.get(_ROWS, {}).get(key, written)))
    raise LakeError.forgotten(table, key)


def _as_stored(value: Any) -> Any:
    """A value as a commit gives it back."""
    return json.loads(json.dumps(value))


@contextmanager
def _commit_metadata(spark: SparkSession, metadata: dict[str, Any], number: int | None) -> Iterator[None]:
    """Give commits that take no option their metadata and number: by the session's settings, so one at a time."""
    numbered = {} if number is None else {_APPLICATION_CONF: commits.APPLICATION, _NUMBER_CONF: str(number)}
    settings = {_METADATA_CONF: json.dumps(metadata), **numbered}
    with _ONE_AT_A_TIME:
        for key, value in settings.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in settings:
                spark.conf.unset(key)
