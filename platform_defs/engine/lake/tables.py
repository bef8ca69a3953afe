"""The lake: Delta tables under one root, and what their commits remember.

Spark writes what may be large. The deltalake library reads and writes what is small (the ledger, commit
metadata), where a Spark job would cost more than the work. All commit metadata passes through here, so that
another store needs a change in this module alone.
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

from platform_defs.engine.lake import commits
from platform_defs.engine.lake.commits import refused_if_overtaken
from platform_defs.engine.lake.compaction import MaintainedTables
from platform_defs.engine.lake.data_skipping import schema_of
from platform_defs.engine.lake.errors import LakeError, UnreadableLogError
from platform_defs.engine.lake.interrupts import to_its_end
from platform_defs.engine.lake.locks import Purpose
from platform_defs.engine.lake.reads import ROWS, Commit, ReadTables, newest_commit
from platform_defs.engine.lake.table_columns import bounded_columns, check_columns, configuration, statistics_columns

_SKIP_EMPTY_CONF = "spark.databricks.delta.skipRecordingEmptyCommits"
ANY: Any = object()
"""Whatever a table's newest commit records."""


@dataclass(frozen=True)
class Lake(ReadTables, MaintainedTables):
    """The tables below one root."""

    def pinned(self) -> "Lake":
        """The lake as it is now; see `PinnedLake`."""
        return PinnedLake(self.root, self.lease_s, self.leases, base=self)

    @property
    def live(self) -> "Lake":
        """The lake as it goes on; see `PinnedLake`."""
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
            unnamed: whether nobody names a row of the table: then a column of another type is made anew, and no row is kept.
            followed: whether a new table keeps Delta's change data feed, for rows that are updated and deleted later.

        Returns:
            How many rows were written.

        Raises:
            LakeError: another writer's commit has come between, or the columns are not the table's; nothing was committed.
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
        stamped = metadata | {ROWS: dict.fromkeys(metadata, rows), "id": folder}
        self.still_mine()
        if delta is None:
            delta = commits.create(path, frame.schema, actions, stamped, configuration(bounded, followed))
        while delta is not None:
            self._check_follows(table, delta, metadata, after)
            delta = commits.commit_files(delta, actions, stamped, number)
        self._after_commit(frame.sparkSession, table)
        return rows

    def _check_follows(self, table: str, delta: DeltaTable, metadata: dict[str, Any], after: Any) -> None:
        """Pass if the newest value under the metadata's key is still the one that a commit follows."""
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
        self._after_commit(frame.sparkSession, table)

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
        with suppress(DeltaError, OSError, UnreadableLogError):
            delta = self.live.delta(table)
            return delta is not None and commits.is_committed(delta, -1 if after is None else after, commit)
        return False

    def merge(
        self, table: str, rows: DataFrame, same: Column, *, is_deleted: Column, metadata: dict[str, Any], number: int | None = None
    ) -> None:
        """Merge rows (`c`) into a table (`t`): delete where `is_deleted`, update, insert; as one commit with the metadata.

        Args:
            table: the table.
            rows: the changed rows.
            same: whether a changed row and a row of the table are the same one.
            is_deleted: whether a changed row is to be deleted.
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
        merge = target.merge(rows.alias("c"), same).whenMatchedDelete(condition=is_deleted)
        values: dict[str, str | Column] = {c: f"c.`{c}`" for c in columns}
        with commits.session_metadata(spark, stamped, number):
            try:
                to_its_end(merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(condition=~is_deleted, values=values).execute, spark)
            except DeltaConcurrentModificationException as error:
                raise LakeError.overtaken(table, "step") from error
        self._check_landed(table, before, stamped["id"])
        self._after_commit(spark, table)

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
        self._after_commit(spark, table)

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
        properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(values | {ROWS: rows})}, max_commit_retries=0)
        seen.create_write_transaction([], "append", seen.schema(), commit_properties=properties)


def _as_stored(value: Any) -> Any:
    """A value as a commit gives it back."""
    return json.loads(json.dumps(value))


@dataclass(frozen=True)
class PinnedLake(Lake):
    """A lake as it is at one time: every table is read at the version it had when it was first asked for.

    What is committed through it must follow these versions.

    Args:
        base: the lake as it goes on.
    """

    base: Lake = field(kw_only=True)
    _tables: dict[str, DeltaTable | None] = field(default_factory=dict, init=False, compare=False, repr=False)
    _newest: dict[tuple[str, str], Commit | None] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    def of(cls, lake: Lake) -> Lake:
        """A lake as it is now; one that is pinned is the one it is."""
        return lake if isinstance(lake, PinnedLake) else lake.pinned()

    @property
    def live(self) -> Lake:
        """The lake as it goes on."""
        return self.base

    def delta(self, table: str) -> DeltaTable | None:
        """The table as it was when it was first asked for."""
        if table not in self._tables:
            self._tables[table] = self.base.delta(table)
        return self._tables[table]

    def newest(self, table: str, key: str) -> Commit | None:
        """The newest commit with a key, as far as the table was then; looked up once."""
        if (table, key) not in self._newest:
            self._newest[table, key] = super().newest(table, key)
        return self._newest[table, key]

    def frame(self, spark: SparkSession, table: str) -> DataFrame:
        """A table by Delta, at its version."""
        delta = self.delta(table)
        reader = spark.read.format("delta")
        return (reader if delta is None else reader.option("versionAsOf", delta.version())).load(self.path(table))

    def writer(self, name: str, purpose: Purpose = "write") -> AbstractContextManager[None]:
        """Be the one writer; of the lake as it goes on."""
        return self.base.writer(name, purpose)

    def still_mine(self) -> None:
        """Pass if this process still is the writer of all that it took."""
        self.base.still_mine()
