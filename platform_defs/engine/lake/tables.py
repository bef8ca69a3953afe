"""The lake: Delta tables under one root, and their commit metadata.

Spark writes large tables. The deltalake library reads and writes small data (the ledger, commit metadata), for which a Spark job would
cost more than the work. All commit metadata is written here, so that another store needs changes only in this module.
"""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from delta.exceptions import DeltaConcurrentModificationException
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark.sql import Column, DataFrame, SparkSession

from platform_defs.engine.lake import commits, small_upserts
from platform_defs.engine.lake.commits import refused_if_overtaken
from platform_defs.engine.lake.compaction import MaintainedTables, has_vectors
from platform_defs.engine.lake.data_skipping import schema_of
from platform_defs.engine.lake.errors import LakeError, UnreadableLogError
from platform_defs.engine.lake.interrupts import to_its_end
from platform_defs.engine.lake.locks import Purpose
from platform_defs.engine.lake.reads import Commit, ReadTables, newest_commit
from platform_defs.engine.lake.small_queries import fetched, planned
from platform_defs.engine.lake.table_columns import bounded_columns, check_columns, configuration, statistics_columns

_SKIP_EMPTY_CONF = "spark.databricks.delta.skipRecordingEmptyCommits"
_VECTORS_PROPERTY = "delta.enableDeletionVectors"
ANY: Any = object()
"""In place of an expected value or version: no check."""


@dataclass(frozen=True)
class Lake(ReadTables, MaintainedTables):
    """Reads, writes and maintains the tables below one root."""

    def pinned(self) -> "Lake":
        """A snapshot of the lake (see `PinnedLake`)."""
        return PinnedLake(self.root, self.lease_s, self.leases, base=self)

    @property
    def live(self) -> "Lake":
        """The lake itself; for a snapshot, the lake that it was taken of (see `PinnedLake`)."""
        return self

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
        unnamed: bool = False,
        change_feed: bool = False,
    ) -> int:
        """Commit a frame's rows and the metadata in one commit, if the newest commit is the expected one.

        A frame without rows is committed too, for its metadata.

        Args:
            frame: the rows.
            table: the table; the first append creates it.
            metadata: the commit's metadata, with one key.
            after: the expected newest value under that key; None for none. By default it is not checked.
            number: the step's number; see `commits.commit_files`.
            pruned_by: the columns for data skipping; a new table has statistics of only these.
            widen: whether new columns are added to the table; its older rows have null in them.
            unnamed: whether no ledger batch names a row of the table; then a column of another type replaces the old one.
            change_feed: whether a new table has Delta's change data feed, for readers of later updates and deletes.

        Returns:
            The number of rows written.

        Raises:
            LakeError: another writer has committed, or the columns differ from the table's; nothing was committed.
        """
        self.still_mine()
        delta, path = self.delta(table), self.path(table)
        if delta is not None and unnamed:
            self._check_follows(table, delta, metadata, after)
            with refused_if_overtaken(table, next(iter(metadata))):
                delta = commits.without_other_types(delta, frame.schema)
        delta = commits.widen(delta, frame.schema) if delta is not None and widen else delta
        if delta is not None:
            check_columns(table, schema_of(delta), frame.schema, may_lack=widen)
        folder = commits.write_files(frame, path, [] if delta is None else schema_of(delta).fieldNames())
        bounded = bounded_columns(frame.schema, pruned_by)
        actions, rows = commits.add_actions(path, folder, bounded if delta is None else statistics_columns(delta, bounded))
        stamped = metadata | {commits.ROWS: dict.fromkeys(metadata, rows), "id": folder}
        self.still_mine()
        if delta is None:
            delta = commits.create(path, frame.schema, actions, stamped, configuration(bounded, change_feed))
        while delta is not None:
            self._check_follows(table, delta, metadata, after)
            delta = commits.commit_files(delta, actions, stamped, number)
        self._after_commit(frame.sparkSession, table)
        return rows

    def _check_follows(self, table: str, delta: DeltaTable, metadata: dict[str, Any], after: Any) -> None:
        """Raise `LakeError` unless the newest value under the metadata's key is the expected one."""
        [key] = metadata
        newest = None if after is ANY else newest_commit(delta, table, key)
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
        change_feed: bool = False,
        deletion_vectors: bool = False,
    ) -> None:
        """Replace a table's rows and columns by a frame's, or create the table; in one commit with the metadata.

        Args:
            frame: the rows.
            table: the table.
            metadata: the commit's metadata.
            number: the step's number: nothing is written if the table has a commit of this step or a later one.
            pruned_by: as in `append`.
            change_feed: as in `append`.
            deletion_vectors: whether a new table uses deletion vectors, so that a delete does not rewrite files.

        Raises:
            LakeError: the table has a commit of this step or a later one.
        """
        self.still_mine()
        before, stamped = self.version(table), metadata | {"id": uuid.uuid4().hex}
        frame = planned(frame)
        frame.sparkSession.conf.set(_SKIP_EMPTY_CONF, "false")
        writer = frame.write.format("delta").option("userMetadata", json.dumps(stamped)).mode("overwrite")
        writer = writer.options(
            **configuration(bounded_columns(frame.schema, pruned_by), change_feed), overwriteSchema="true", mergeSchema="false"
        )
        writer = writer.option(_VECTORS_PROPERTY, "true") if deletion_vectors else writer
        numbered = {} if number is None else {"txnAppId": commits.APPLICATION, "txnVersion": str(number)}
        to_its_end(lambda: writer.options(**numbered).save(self.path(table)), frame.sparkSession)
        self._check_landed(table, before, stamped["id"])
        self._after_commit(frame.sparkSession, table)

    def _check_landed(self, table: str, before: int | None, commit: str) -> None:
        """Raise unless Spark's commit is in the log: Delta silently skips a commit whose number does not exceed the table's."""
        if not self._is_committed(table, before, commit):
            raise LakeError.overtaken(table, "step")

    def append_small(
        self, rows: pa.Table, table: str, metadata: dict[str, Any] | None = None, *, seen: Any = ANY, description: str = ""
    ) -> None:
        """Commit a few rows without a Spark job.

        Args:
            rows: the rows.
            table: the table; the first append creates it.
            metadata: the commit's metadata.
            seen: the table (`DeltaTable`) at the version to commit on, or None to create it; by default the newest version.
            description: the table's description, if this creates the table.

        Raises:
            LakeError: another writer has committed.
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
            if self._is_committed(table, before, stamped["id"]):  # only the store's answer was lost
                return
            beaten = seen is None or isinstance(error, CommitFailedError)
            if not beaten or self.version(table) == before:  # no other commit: the store itself failed
                raise
            raise LakeError.lost(table, "unknown") from error

    def _is_committed(self, table: str, after: int | None, commit: str) -> bool:
        """Whether a commit after the version `after` has the id `commit`; False if the store cannot be reached."""
        with suppress(DeltaError, OSError, UnreadableLogError):
            delta = self.live.delta(table)
            return delta is not None and commits.is_committed(delta, -1 if after is None else after, commit)
        return False

    def merge(
        self,
        table: str,
        rows: DataFrame,
        same: Column,
        *,
        is_deleted: Column,
        metadata: dict[str, Any],
        number: int | None = None,
        deletion_vectors: bool = False,
        stored: bool = False,
    ) -> None:
        """Merge rows (`c`) into a table (`t`): delete if `is_deleted`, else update or insert; in one commit with the metadata.

        Args:
            table: the table.
            rows: the changed rows.
            same: whether a changed row and a row of the table have the same key.
            is_deleted: whether a changed row is to be deleted.
            metadata: the commit's metadata.
            number: the step's number; see `overwrite`.
            deletion_vectors: whether to mark deleted rows by deletion vectors; else files with such rows are rewritten.
            stored: whether the rows are read from committed files, so that reading them twice gives the same rows.

        Raises:
            LakeError: the table has a commit of this step or a later one, or another writer has committed.
        """
        from delta.tables import DeltaTable as SparkDelta

        self.still_mine()
        rows = rows if self.is_large(table) else planned(rows)
        if deletion_vectors:
            self._enable_vectors(rows.sparkSession, table)
        spark, before, stamped = rows.sparkSession, self.version(table), metadata | {"id": uuid.uuid4().hex}
        columns = spark.read.format("delta").load(self.path(table)).columns
        target = SparkDelta.forPath(spark, self.path(table)).alias("t")
        merge = target.merge(rows.alias("c"), same).whenMatchedDelete(condition=is_deleted)
        values: dict[str, str | Column] = {c: f"c.`{c}`" for c in columns}
        with commits.merge_settings(spark, stamped, number, deletion_vectors=deletion_vectors, stored=stored):
            try:
                to_its_end(merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(condition=~is_deleted, values=values).execute, spark)
            except DeltaConcurrentModificationException as error:
                raise LakeError.overtaken(table, "step") from error
        self._check_landed(table, before, stamped["id"])
        self._after_commit(spark, table)

    def _enable_vectors(self, spark: SparkSession, table: str) -> None:
        """Let later commits mark deleted rows by deletion vectors; a small table is made without them, see `upsert`."""
        if not has_vectors(DeltaTable(self.path(table))):
            spark.sql(f"ALTER TABLE delta.`{self.path(table).replace('`', '``')}` SET TBLPROPERTIES ('{_VECTORS_PROPERTY}' = 'true')")

    def upsert(self, table: str, rows: DataFrame, key: Sequence[str], *, is_deleted: str, metadata: dict[str, Any], number: int) -> bool:
        """Merge few rows into a small table without Spark; see `small_upserts.upsert`.

        Returns:
            Whether it was done; False if the rows are many, or the table is large or cannot be written without Spark. Then use `merge`.

        Raises:
            LakeError: the table has a commit of this step or a later one, or another writer has committed.
        """
        self.still_mine()
        delta = self.delta(table)
        if delta is None or self.is_large(table) or not small_upserts.can_upsert(delta, schema_of(delta), key):
            return False
        few = fetched(rows)
        if few is None:
            return False
        if (delta.transaction_version(commits.APPLICATION) or 0) >= number:
            raise LakeError.overtaken(table, "step")
        before, stamped = delta.version(), metadata | {"id": uuid.uuid4().hex}
        try:
            small_upserts.upsert(delta, few, key, is_deleted=is_deleted, metadata=stamped, number=number)
        except (CommitFailedError, OSError) as error:
            if not self._is_committed(table, before, stamped["id"]):
                raise LakeError.overtaken(table, "step") from error
        self._after_commit(rows.sparkSession, table)
        return True

    def delete(self, spark: SparkSession, table: str, predicate: str, metadata: dict[str, Any], seen: DeltaTable) -> None:
        """Delete rows in one commit with the metadata, only on the version `seen`.

        Raises:
            LakeError: another writer has committed.
        """
        self._change(spark, table, metadata, seen, lambda once: seen.delete(predicate, commit_properties=once))

    def update(
        self, spark: SparkSession, table: str, predicate: str, values: Mapping[str, str], metadata: dict[str, Any], seen: DeltaTable
    ) -> None:
        """Set columns of rows to new values in one commit with the metadata, only on the version `seen`.

        Args:
            spark: the session.
            table: the table.
            predicate: which rows, in the SQL of DataFusion.
            values: the new values, by column, in the SQL of DataFusion.
            metadata: the commit's metadata.
            seen: the table at the version at which the rows were selected.

        Raises:
            LakeError: another writer has committed.
        """
        new = dict(values)
        self._change(spark, table, metadata, seen, lambda once: seen.update(updates=new, predicate=predicate, commit_properties=once))

    def _change(
        self, spark: SparkSession, table: str, metadata: dict[str, Any], seen: DeltaTable, change: Callable[[CommitProperties], object]
    ) -> None:
        """Make one commit by deltalake, without retries on other versions."""
        self.still_mine()
        once = CommitProperties(custom_metadata={"userMetadata": json.dumps(metadata)}, max_commit_retries=0)
        before = seen.version()
        with refused_if_overtaken(table, "rows"):
            change(once)
            if seen.version() == before:  # no row was changed, so deltalake made no commit
                seen.create_write_transaction([], "append", seen.schema(), commit_properties=once)
        self._after_commit(spark, table)

    def carry(self, remembered: Mapping[str, Commit], seen: DeltaTable) -> None:
        """Repeat the metadata of earlier commits in a new commit, so that the table's log may lose those commits.

        Args:
            remembered: the earlier commits, by key.
            seen: the table at the version at which they were read: a later commit must not be hidden by older metadata.

        Raises:
            CommitFailedError: another writer has committed.
        """
        self.still_mine()
        values, rows = {k: c.value for k, c in remembered.items()}, {k: c.rows for k, c in remembered.items()}
        properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(values | {commits.ROWS: rows})}, max_commit_retries=0)
        seen.create_write_transaction([], "append", seen.schema(), commit_properties=properties)


def _as_stored(value: Any) -> Any:
    """A value after a round trip through a commit's JSON."""
    return json.loads(json.dumps(value))


@dataclass(frozen=True)
class PinnedLake(Lake):
    """A snapshot of a lake: every table is read at the version that it had when it was first read.

    Commits through the snapshot must be based on these versions.

    Args:
        base: the lake itself.
    """

    base: Lake = field(kw_only=True)
    _tables: dict[str, DeltaTable | None] = field(default_factory=dict, init=False, compare=False, repr=False)
    _newest: dict[tuple[str, str], Commit | None] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    def of(cls, lake: Lake) -> Lake:
        """A snapshot of a lake; a snapshot is returned unchanged."""
        return lake if isinstance(lake, PinnedLake) else lake.pinned()

    @property
    def live(self) -> Lake:
        """The lake itself."""
        return self.base

    def delta(self, table: str) -> DeltaTable | None:
        """The table at the snapshot's version."""
        if table not in self._tables:
            self._tables[table] = self.base.delta(table)
        return self._tables[table]

    def newest(self, table: str, key: str) -> Commit | None:
        """The newest commit with a key at the snapshot's version; it is looked up once."""
        if (table, key) not in self._newest:
            self._newest[table, key] = super().newest(table, key)
        return self._newest[table, key]

    def frame(self, spark: SparkSession, table: str) -> DataFrame:
        """A table read by Delta, at the snapshot's version."""
        delta = self.delta(table)
        reader = spark.read.format("delta")
        return (reader if delta is None else reader.option("versionAsOf", delta.version())).load(self.path(table))

    def writer(self, name: str, purpose: Purpose = "write") -> AbstractContextManager[None]:
        """Hold a writer's lock of the lake itself."""
        return self.base.writer(name, purpose)

    def still_mine(self) -> None:
        """Raise `LakeError` unless this process still holds all leases that it took."""
        self.base.still_mine()
