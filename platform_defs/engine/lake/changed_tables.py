"""Changes rows of the lake's tables: merges by Spark, or by deltalake for few rows; deletes and updates by a condition."""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession

from operators.columns import quoted_name
from platform_defs.engine.lake import commits, small_upserts
from platform_defs.engine.lake.after_commits import Committed
from platform_defs.engine.lake.compaction import has_vectors
from platform_defs.engine.lake.data_skipping import schema_of
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.interrupts import run_to_end
from platform_defs.engine.lake.merge_settings import merge_settings, without_merge_settings
from platform_defs.engine.lake.opened_tables import OpenedTable
from platform_defs.engine.lake.small_queries import fetch_arrow, plan_if_small
from platform_defs.engine.lake.written_tables import VECTORS_PROPERTY, WrittenTables, reporting_concurrent_commit


@dataclass(frozen=True)
class ChangedTables(WrittenTables):
    """Merges, deletes and updates rows of the tables of a lake."""

    def merge(
        self,
        table: str,
        rows: DataFrame,
        has_same_key: Column,
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
            has_same_key: the condition that a changed row and a row of the table have the same key.
            is_deleted: the condition that a changed row is to be deleted.
            metadata: the commit's metadata.
            number: the step's number; see `overwrite`.
            deletion_vectors: whether to mark deleted rows by deletion vectors, which are enabled if need be; else their files are
                rewritten.
            stored: whether the rows are read from committed files, so that reading them twice gives the same rows.

        Raises:
            LakeError: the table has a commit of this step or a later one, or another writer has committed.
        """
        from delta.tables import DeltaTable as SparkDelta

        self.check_leases()
        rows = rows if self.is_large(table) else plan_if_small(rows)
        spark, commit_metadata = rows.sparkSession, metadata | {"id": uuid.uuid4().hex}
        if deletion_vectors:
            with merge_settings(spark, {}, None, deletion_vectors=True, stored=False), reporting_concurrent_commit(table):
                self._enable_vectors(spark, table)
        before = self.version(table)
        columns = spark.read.format("delta").load(self.path(table)).columns
        target = SparkDelta.forPath(spark, self.path(table)).alias("t")
        merge = target.merge(rows.alias("c"), has_same_key).whenMatchedDelete(condition=is_deleted)
        values: dict[str, str | Column] = {c: f"c.{quoted_name(c)}" for c in columns}
        settings = merge_settings(spark, commit_metadata, number, deletion_vectors=deletion_vectors, stored=stored)
        with settings, reporting_concurrent_commit(table):
            run_to_end(merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(condition=~is_deleted, values=values).execute, spark)
        self._check_commit_exists(table, before, commit_metadata["id"])
        self._after_commit(spark, table)

    def _enable_vectors(self, spark: SparkSession, table: str) -> None:
        """Enable deletion vectors. A new small table has none, because `upsert` cannot write a table with them."""
        if not has_vectors(DeltaTable(self.path(table), storage_options=self.storage_options)):
            spark.sql(f"ALTER TABLE delta.{quoted_name(self.path(table))} SET TBLPROPERTIES ('{VECTORS_PROPERTY}' = 'true')")

    def upsert(self, table: str, rows: DataFrame, key: Sequence[str], *, is_deleted: str, metadata: dict[str, Any], number: int) -> bool:
        """Merge few rows into a small table without Spark; see `small_upserts.upsert`.

        Returns:
            Whether the rows were merged. If not, use `merge`: there are many rows, the table is large, or only Spark can write it.

        Raises:
            LakeError: the table has a commit of this step or a later one, or another writer has committed.
        """
        opened = self.small_table(table, key)
        few_rows = None if opened is None else fetch_arrow(rows)
        if opened is None or few_rows is None:
            return False
        self.upsert_fetched(rows.sparkSession, opened, table, few_rows, key, is_deleted=is_deleted, metadata=metadata, number=number)
        return True

    def small_table(self, table: str, key: Sequence[str]) -> OpenedTable | None:
        """The table, if it is small and deltalake can merge rows into it by a key."""
        if self.is_large(table):  # checked in the opened table of the readers, so that a large table is not opened for writing
            return None
        opened = self._for_writing(table)
        delta = opened.delta
        if delta is None or not small_upserts.can_upsert(delta, schema_of(delta), key):
            return None
        return opened

    def upsert_fetched(
        self,
        spark: SparkSession,
        opened: OpenedTable,
        table: str,
        few_rows: pa.Table,
        key: Sequence[str],
        *,
        is_deleted: str,
        metadata: dict[str, Any],
        number: int,
        only: str = "TRUE",
    ) -> None:
        """Merge fetched rows into a small table without Spark; see `small_upserts.upsert`.

        Args:
            spark: the session, for maintenance after the commit.
            opened: the result of `small_table`.
            table: the table.
            few_rows: the changed rows.
            key: the columns that identify a row.
            is_deleted: the condition that a changed row is to be deleted, in the SQL of DataFusion.
            metadata: the commit's metadata.
            number: the step's number.
            only: a further condition for a changed row (`c`) to match a row of the table (`t`) with the same key.

        Raises:
            LakeError: the table has a commit of this step or a later one, or another writer has committed.
        """
        self.check_leases()
        if (delta := opened.delta) is None or (delta.transaction_version(commits.APPLICATION) or 0) >= number:
            raise LakeError.overtaken(table, "step")
        commit_metadata, version = metadata | {"id": uuid.uuid4().hex}, delta.version() + 1
        upsert = partial(small_upserts.upsert, is_deleted=is_deleted, metadata=commit_metadata, number=number, only=only)
        if commits.commit_once(delta, commit_metadata["id"], lambda: upsert(delta, few_rows, key)):
            raise LakeError.overtaken(table, "step")
        self._after_commit(spark, table, Committed(version, delta))
        self._keep_for_writing(table, opened)

    def delete(self, spark: SparkSession, table: str, predicate: str, metadata: dict[str, Any], expected: DeltaTable) -> None:
        """Delete rows in one commit with the metadata, only on the version `expected`.

        Raises:
            LakeError: another writer has committed.
        """
        self._change(spark, table, metadata, expected, lambda **options: expected.delete(predicate, **options))

    def remove(self, spark: SparkSession, table: str, predicate: str, number: int, expected: DeltaTable) -> None:
        """Delete rows that retention does not keep, in one commit with a number (see `commits.RETENTION`), only on the version `expected`.

        Raises:
            LakeError: another writer has committed.
        """
        self._change(spark, table, {}, expected, lambda **options: expected.delete(predicate, **options), number)

    def replace_rows(self, frame: DataFrame, table: str, condition: str, number: int) -> None:
        """Replace the rows that satisfy a condition by a frame's rows, in one commit with a number (see `commits.RETENTION`).

        Args:
            frame: the new rows, which satisfy the condition too. They may be computed from the table's own.
            table: the table.
            condition: which rows to replace, in the SQL of Spark.
            number: the number of the replacement, which must be higher than the numbers of earlier ones.

        Raises:
            LakeError: the table has a replacement with this number or a later one, or another writer has committed; nothing was written.
        """
        self.check_leases()
        version, commit_id, spark = self.version(table), uuid.uuid4().hex, frame.sparkSession
        writer = frame.write.format("delta").mode("overwrite").option("replaceWhere", condition)
        writer = writer.options(userMetadata=json.dumps({"id": commit_id}), txnAppId=commits.RETENTION, txnVersion=str(number))
        with without_merge_settings(), reporting_concurrent_commit(table):
            run_to_end(lambda: writer.save(self.path(table)), spark)
        self._check_commit_exists(table, version, commit_id)

    def update(
        self, spark: SparkSession, table: str, predicate: str, values: Mapping[str, str], metadata: dict[str, Any], expected: DeltaTable
    ) -> None:
        """Set columns of rows to new values in one commit with the metadata, only on the version `expected`.

        Args:
            spark: the session.
            table: the table.
            predicate: the condition of the rows to update, in the SQL of DataFusion.
            values: the new values, by column, in the SQL of DataFusion.
            metadata: the commit's metadata.
            expected: the table at the version at which the rows were selected.

        Raises:
            LakeError: another writer has committed.
        """
        new_values = dict(values)
        self._change(spark, table, metadata, expected, lambda **options: expected.update(new_values, predicate=predicate, **options))

    def _change(
        self,
        spark: SparkSession,
        table: str,
        metadata: Mapping[str, Any],
        expected: DeltaTable,
        change: Callable[..., object],
        number: int | None = None,
    ) -> None:
        """Make one commit by deltalake, without retries on other versions; `number` is the number of a removal by retention.

        The commit does not repeat the metadata of earlier commits, so no earlier commit is deleted after it.
        """
        self.check_leases()
        commit_id, version = uuid.uuid4().hex, expected.version() + 1
        options = commits.commit_options({**metadata, "id": commit_id}, number, commits.RETENTION)
        with self.reporting_failed_commit(table):
            if commits.commit_once(expected, commit_id, lambda: commits.change_rows(expected, options, change)):
                raise LakeError.overtaken(table, "version")
        self._after_commit(spark, table, Committed(version, expected, has_metadata=False))
