"""Writes to the lake's tables: appends, and replacements of whole tables.

Spark writes many rows, and Arrow few (see `small_queries`). deltalake commits them, except in an overwrite that only Spark can make:
of a table with deletion vectors, or one that changes which columns have statistics. deltalake also writes the rows of the ledger. The
metadata of commits is composed here and in `changed_tables`; elsewhere it is only an `id`, or the record of a lease.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark.sql import DataFrame

from platform_defs.engine.lake import commits, table_columns
from platform_defs.engine.lake.after_commits import Committed, TablesMaintainedAfterCommits
from platform_defs.engine.lake.commits import reporting_overtaken
from platform_defs.engine.lake.compaction import CONFLICTS
from platform_defs.engine.lake.data_files import add_actions, write_files
from platform_defs.engine.lake.data_skipping import is_written_by_deltalake, schema_of
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.interrupts import run_to_end
from platform_defs.engine.lake.merge_settings import without_merge_settings
from platform_defs.engine.lake.reads import Commit, newest_commit
from platform_defs.engine.lake.small_queries import plan_if_small
from platform_defs.engine.lake.table_columns import CHANGE_FEED, bounded_columns, check_columns, statistics_columns, table_properties

_SKIP_EMPTY_CONF = "spark.databricks.delta.skipRecordingEmptyCommits"
VECTORS_PROPERTY = "delta.enableDeletionVectors"
ANY: Any = object()
"""In place of an expected value or version: any value or version is accepted."""


@contextmanager
def reporting_concurrent_commit(table: str) -> Iterator[None]:
    """Raise `LakeError.overtaken` if Delta refuses a commit of Spark because another writer has committed."""
    try:
        yield
    except CONFLICTS as error:
        raise LakeError.overtaken(table, "step") from error


@dataclass(frozen=True)
class WrittenTables(TablesMaintainedAfterCommits):
    """Appends rows to the tables of a lake, and replaces tables."""

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
        only_uncommitted: bool = False,
        change_feed: bool = False,
        writer_options: Mapping[str, str] | None = None,
    ) -> int:
        """Commit a frame's rows and the metadata in one commit, if the newest commit is the expected one.

        A frame without rows is committed too, for its metadata.

        Args:
            frame: the rows.
            table: the table; the first append creates it.
            metadata: the commit's metadata, with one key.
            after: the expected newest value under that key; None if the table must not exist yet. By default it is not checked.
            number: the step's number; see `commits.commit_files`.
            pruned_by: the columns for data skipping; a new table has statistics of only these.
            widen: whether new columns are added to the table; its older rows have null in them.
            only_uncommitted: whether the table has uncommitted rows only. Then they are deleted if a column of the frame has another type.
            change_feed: whether a new table has Delta's change data feed, for readers of later updates and deletes.
            writer_options: options of Spark's Parquet writer; they have no effect on a small query.

        Returns:
            The number of rows written.

        Raises:
            LakeError: nothing was committed: another writer has, or the columns differ from the table's. Or the outcome is not known.
            DeltaError, OSError: nothing was committed: the store failed, or deltalake refused the commit.
        """
        self.check_leases()
        delta, path = self.delta_for_reading(table), self.path(table)
        if delta is not None and only_uncommitted:
            self._check_follows(table, delta, metadata, after)
            with reporting_overtaken(table, next(iter(metadata))):
                delta = commits.drop_differing_columns(delta, frame.schema)
        if delta is not None:
            delta = commits.widen(delta, frame.schema) if widen else delta
            check_columns(table, schema_of(delta), frame.schema, may_lack=widen)
        names = [] if delta is None else schema_of(delta).fieldNames()
        folder = write_files(frame, path, names, self.storage_options, writer_options)
        bounded = bounded_columns(frame.schema, pruned_by)
        columns = bounded if delta is None else statistics_columns(delta, bounded)
        actions, rows = add_actions(path, folder, columns, self.storage_options)
        commit_metadata = metadata | {commits.ROWS: dict.fromkeys(metadata, rows), "id": folder}
        self.check_leases()
        before = None  # the version on which the commit succeeded; None if the commit created the table
        if delta is None:
            properties = table_properties(bounded, change_feed)
            delta = commits.create(path, frame.schema, actions, commit_metadata, properties, self.storage_options, number)
        while delta is not None:  # the opened table, or the table after the commit of another writer
            self._check_follows(table, delta, metadata, after)
            before = delta
            delta = commits.commit_files(before, actions, commit_metadata, number)
        self._after_commit(frame.sparkSession, table, Committed(0 if before is None else before.version() + 1, before, actions))
        return rows

    def _check_follows(self, table: str, delta: DeltaTable, metadata: dict[str, Any], after: Any) -> None:
        """Raise `LakeError` unless the newest value under the metadata's key is the expected one."""
        [key] = metadata
        if after is not ANY and newest_commit(delta, table, key).value != json.loads(json.dumps(after)):  # as it is when it has been stored
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
            number: the step's number; nothing is committed if the table has a commit of this step or a later one.
            pruned_by: as in `append`.
            change_feed: whether the table has Delta's change data feed. A table that has it keeps it.
            deletion_vectors: whether a new table uses deletion vectors, so that a delete does not rewrite files.

        Raises:
            LakeError: the table has a commit of this step or a later one, or another writer has committed. Or the outcome is not known.
            DeltaError, OSError: nothing was committed: the store failed, or deltalake refused the commit.
        """
        self.check_leases()
        delta = self.delta(table)
        if number is not None and delta is not None and (delta.transaction_version(commits.APPLICATION) or 0) >= number:
            raise LakeError.overtaken(table, "step")
        if change_feed and delta is not None and is_written_by_deltalake(delta) and commits.set_properties(delta, CHANGE_FEED):
            raise LakeError.overtaken(table, "step")
        if deletion_vectors or not (  # deltalake cannot change which columns have statistics
            delta is None or (is_written_by_deltalake(delta) and table_columns.keeps_statistics(delta, frame.schema))
        ):
            self._overwrite_by_spark(frame, table, metadata, number, pruned_by, change_feed, deletion_vectors)
            committed = None
        else:
            committed = self._replace_files(delta, frame, table, metadata, number, pruned_by, change_feed)
        self._after_commit(frame.sparkSession, table, committed)

    def _replace_files(
        self,
        delta: DeltaTable | None,
        frame: DataFrame,
        table: str,
        metadata: dict[str, Any],
        number: int | None,
        pruned_by: Sequence[str],
        change_feed: bool,
    ) -> Committed:
        """Write a frame's files and commit them by deltalake in place of the table's files at the version that was opened."""
        path, bounded = self.path(table), bounded_columns(frame.schema, pruned_by)
        folder = write_files(frame, path, [], self.storage_options)
        actions, rows = add_actions(path, folder, bounded if delta is None else statistics_columns(delta, bounded), self.storage_options)
        commit_metadata = metadata | {commits.ROWS: dict.fromkeys(metadata, rows), "id": folder}
        self.check_leases()
        if delta is None:
            properties = table_properties(bounded, change_feed)
            if commits.create(path, frame.schema, actions, commit_metadata, properties, self.storage_options, number) is not None:
                raise LakeError.overtaken(table, "step")
            return Committed(0, None, actions)
        if commits.commit_files(delta, actions, commit_metadata, number, replacing=frame.schema) is not None:
            raise LakeError.overtaken(table, "step")
        return Committed(delta.version() + 1, None, actions)

    def _overwrite_by_spark(
        self,
        frame: DataFrame,
        table: str,
        metadata: dict[str, Any],
        number: int | None,
        pruned_by: Sequence[str],
        change_feed: bool,
        deletion_vectors: bool,
    ) -> None:
        """Overwrite a table that has, or is to have, features that only Spark writes."""
        before, commit_metadata = self.version(table), metadata | {"id": uuid.uuid4().hex}
        frame = plan_if_small(frame)
        frame.sparkSession.conf.set(_SKIP_EMPTY_CONF, "false")  # a step without rows is committed too, for its progress
        writer = frame.write.format("delta").option("userMetadata", json.dumps(commit_metadata)).mode("overwrite")
        writer = writer.options(
            **table_properties(bounded_columns(frame.schema, pruned_by), change_feed), overwriteSchema="true", mergeSchema="false"
        )
        writer = writer.option(VECTORS_PROPERTY, "true") if deletion_vectors else writer
        numbered = {} if number is None else {"txnAppId": commits.APPLICATION, "txnVersion": str(number)}
        with without_merge_settings(), reporting_concurrent_commit(table):
            table_columns.forget_lost_columns(frame.sparkSession, self.path(table), self.delta(table), frame.schema)
            run_to_end(lambda: writer.options(**numbered).save(self.path(table)), frame.sparkSession)
        self._check_commit_exists(table, before, commit_metadata["id"])

    def _check_commit_exists(self, table: str, before: int | None, commit_id: str) -> None:
        """Raise unless Spark's commit is in the log: Delta silently skips a commit whose number is not above the table's newest number."""
        if not self._is_committed(table, before, commit_id):
            raise LakeError.overtaken(table, "step")

    def append_small(
        self,
        rows: pa.Table,
        table: str,
        metadata: dict[str, Any] | None = None,
        *,
        expected: Any = ANY,
        description: str = "",
        replacing: str | None = None,
    ) -> None:
        """Commit a few rows without a Spark job.

        Args:
            rows: the rows.
            table: the table; the first append creates it.
            metadata: the commit's metadata.
            expected: the table (`DeltaTable`) at the version to commit on, or None to create it; by default the newest version.
            description: the table's description, if this creates the table.
            replacing: a condition, in the SQL of DataFusion, for rows that the same commit removes; None to remove no row.

        Raises:
            LakeError: another writer has committed, or it is not known whether the commit succeeded.
            DeltaError, OSError: nothing was committed: the store failed, or deltalake refused the commit.
        """
        self.check_leases()
        if self.is_local:
            Path(self.path(table)).parent.mkdir(parents=True, exist_ok=True)
        commit_metadata = {**(metadata or {}), "id": uuid.uuid4().hex}
        delta: DeltaTable | None = self.delta(table) if expected is ANY else expected
        merge = delta is not None and not {*rows.column_names} <= {f.name for f in delta.schema().fields}
        arguments: dict[str, Any] = {"storage_options": self.storage_options} | ({"schema_mode": "merge"} if merge else {})
        arguments |= {} if replacing is None else {"predicate": replacing}
        mode = "append" if replacing is None else "overwrite"
        if expected is None:
            mode = "error"  # the table must not exist yet
        arguments |= {"mode": mode, "description": description or None}
        target = self.path(table) if delta is None else delta
        write = partial(write_deltalake, target, rows, **arguments, **commits.commit_options(commit_metadata))
        if delta is not None:
            if commits.commit_once(delta, commit_metadata["id"], write) is not None:
                raise LakeError.overtaken(table, "version")
            return
        try:
            write()
        except (DeltaError, OSError) as error:
            if self._is_committed(table, None, commit_metadata["id"]):  # only the store's answer was lost
                return
            if not self.live.exists(table):  # no other commit: the store itself failed
                raise
            raise LakeError.overtaken(table, "version") from error

    def _is_committed(self, table: str, after: int | None, commit_id: str) -> bool:
        """Whether a commit after the version `after` has the id `commit_id`.

        Raises:
            LakeError: it is not known, because the table's log cannot be read.
        """
        try:
            delta = self.live.delta(table)
            return delta is not None and commits.is_committed(delta, -1 if after is None else after, commit_id)
        except (DeltaError, OSError, LakeError) as error:
            raise LakeError.not_known(table, error) from error

    def carry_metadata(self, remembered: Mapping[str, Commit], expected: DeltaTable) -> None:
        """Repeat the metadata of earlier commits in a new commit, so that the table's log may lose those commits.

        Args:
            remembered: the earlier commits, by key.
            expected: the table at the version at which they were read: a later commit must not be hidden by older metadata.

        Raises:
            CommitFailedError: another writer has committed.
            LakeError: it is not known whether the commit succeeded.
        """
        self.check_leases()
        values, rows = {k: c.value for k, c in remembered.items()}, {k: c.rows for k, c in remembered.items()}
        commit_id, schema = uuid.uuid4().hex, expected.schema()
        options = commits.commit_options(values | {commits.ROWS: rows, commits.CARRY_ID: commit_id})
        commit = partial(commits.write_actions, expected, [], "append", schema, options)
        if commits.commit_once(expected, commit_id, commit, in_place=False):
            raise CommitFailedError("another writer has committed")
