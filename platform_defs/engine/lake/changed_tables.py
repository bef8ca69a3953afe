"""Changes rows of the lake's tables: merges by Spark, or by deltalake for few rows; deletes and updates by a condition."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from delta.exceptions import DeltaConcurrentModificationException
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import Column, DataFrame, SparkSession

from platform_defs.engine.lake import commits, small_upserts
from platform_defs.engine.lake.commits import refused_if_overtaken
from platform_defs.engine.lake.compaction import has_vectors
from platform_defs.engine.lake.data_skipping import schema_of
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.interrupts import to_its_end
from platform_defs.engine.lake.small_queries import fetch_arrow, plan_if_small
from platform_defs.engine.lake.written_tables import VECTORS_PROPERTY, WrittenTables


@contextmanager
def refused_if_concurrent(table: str) -> Iterator[None]:
    """Raise `LakeError.overtaken` if Delta refuses a commit of Spark because another writer has committed."""
    try:
        yield
    except DeltaConcurrentModificationException as error:
        raise LakeError.overtaken(table, "step") from error


@dataclass(frozen=True)
class ChangedTables(WrittenTables):
    """Merges, deletes and updates rows of the tables of a lake."""

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
            same: the condition that a changed row and a row of the table have the same key.
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

        self.still_mine()
        rows = rows if self.is_large(table) else plan_if_small(rows)
        spark, stamped = rows.sparkSession, metadata | {"id": uuid.uuid4().hex}
        if deletion_vectors:
            with commits.merge_settings(spark, {}, None, deletion_vectors=True, stored=False), refused_if_concurrent(table):
                self._enable_vectors(spark, table)
        before = self.version(table)
        columns = spark.read.format("delta").load(self.path(table)).columns
        target = SparkDelta.forPath(spark, self.path(table)).alias("t")
        merge = target.merge(rows.alias("c"), same).whenMatchedDelete(condition=is_deleted)
        values: dict[str, str | Column] = {c: f"c.`{c}`" for c in columns}
        settings = commits.merge_settings(spark, stamped, number, deletion_vectors=deletion_vectors, stored=stored)
        with settings, refused_if_concurrent(table):
            to_its_end(merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(condition=~is_deleted, values=values).execute, spark)
        self._check_commit_exists(table, before, stamped["id"])
        self._after_commit(spark, table)

    def _enable_vectors(self, spark: SparkSession, table: str) -> None:
        """Enable deletion vectors. A new small table has none, because `upsert` cannot write a table with them."""
        if not has_vectors(DeltaTable(self.path(table), storage_options=self.storage_options)):
            spark.sql(f"ALTER TABLE delta.`{self.path(table).replace('`', '``')}` SET TBLPROPERTIES ('{VECTORS_PROPERTY}' = 'true')")

    def upsert(self, table: str, rows: DataFrame, key: Sequence[str], *, is_deleted: str, metadata: dict[str, Any], number: int) -> bool:
        """Merge few rows into a small table without Spark; see `small_upserts.upsert`.

        Returns:
            Whether the rows were merged. If not, use `merge`: there are many rows, the table is large, or only Spark can write it.

        Raises:
            LakeError: the table has a commit of this step or a later one, or another writer has committed.
        """
        delta = self.small_table(table, key)
        few = None if delta is None else fetch_arrow(rows)
        if delta is None or few is None:
            return False
        self.upsert_fetched(rows.sparkSession, delta, table, few, key, is_deleted=is_deleted, metadata=metadata, number=number)
        return True

    def small_table(self, table: str, key: Sequence[str]) -> DeltaTable | None:
        """The table, if it is small and deltalake can merge rows into it by a key."""
        delta = self.delta(table)
        if delta is None or self.is_large(table) or not small_upserts.can_upsert(delta, schema_of(delta), key):
            return None
        return delta

    def upsert_fetched(
        self,
        spark: SparkSession,
        delta: DeltaTable,
        table: str,
        few: pa.Table,
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
            delta: the result of `small_table`.
            table: the table.
            few: the changed rows.
            key: the columns that identify a row.
            is_deleted: the condition that a changed row is to be deleted, in the SQL of DataFusion.
            metadata: the commit's metadata.
            number: the step's number.
            only: a further condition for a changed row (`c`) to match a row of the table (`t`) with the same key.

        Raises:
            LakeError: the table has a commit of this step or a later one, or another writer has committed.
        """
        self.still_mine()
        if (delta.transaction_version(commits.APPLICATION) or 0) >= number:
            raise LakeError.overtaken(table, "step")
        before, stamped = delta.version(), metadata | {"id": uuid.uuid4().hex}
        try:
            small_upserts.upsert(delta, few, key, is_deleted=is_deleted, metadata=stamped, number=number, only=only)
        except (CommitFailedError, OSError) as error:
            if not self._is_committed(table, before, stamped["id"]):
                if self.live.version(table) == before:  # no other commit: the store itself failed
                    raise
                raise LakeError.overtaken(table, "step") from error
        self._after_commit(spark, table)

    def delete(self, spark: SparkSession, table: str, predicate: str, metadata: dict[str, Any], seen: DeltaTable) -> None:
        """Delete rows in one commit with the metadata, only on the version `seen`.

        Raises:
            LakeError: another writer has committed.
        """
        self._change(spark, table, commits.once(metadata), seen, lambda once: seen.delete(predicate, commit_properties=once))

    def remove(self, spark: SparkSession, table: str, predicate: str, number: int, seen: DeltaTable) -> None:
        """Delete rows that retention does not keep, in one commit with a number (see `commits.RETENTION`), only on the version `seen`.

        Raises:
            LakeError: another writer has committed.
        """
        numbered = commits.once({}, number, commits.RETENTION)
        self._change(spark, table, numbered, seen, lambda once: seen.delete(predicate, commit_properties=once))

    def replace_rows(self, frame: DataFrame, table: str, condition: str, number: int) -> None:
        """Replace the rows of a condition by a frame's, which satisfy it, in one commit with a number (see `commits.RETENTION`).

        Args:
            frame: the rows. They may be computed from the table's own.
            table: the table.
            condition: which rows to replace, in the SQL of Spark.
            number: it exceeds that of earlier replacements, or nothing is written.

        Raises:
            LakeError: another writer has committed.
        """
        self.still_mine()
        before, commit, spark = self.version(table), uuid.uuid4().hex, frame.sparkSession
        writer = frame.write.format("delta").mode("overwrite").option("replaceWhere", condition)
        writer = writer.options(userMetadata=json.dumps({"id": commit}), txnAppId=commits.RETENTION, txnVersion=str(number))
        with commits.without_merge_settings(), refused_if_concurrent(table):
            to_its_end(lambda: writer.save(self.path(table)), spark)
        self._check_commit_exists(table, before, commit)

    def update(
        self, spark: SparkSession, table: str, predicate: str, values: Mapping[str, str], metadata: dict[str, Any], seen: DeltaTable
    ) -> None:
        """Set columns of rows to new values in one commit with the metadata, only on the version `seen`.

        Args:
            spark: the session.
            table: the table.
            predicate: the condition of the rows to update, in the SQL of DataFusion.
            values: the new values, by column, in the SQL of DataFusion.
            metadata: the commit's metadata.
            seen: the table at the version at which the rows were selected.

        Raises:
            LakeError: another writer has committed.
        """
        new = dict(values)
        self._change(
            spark, table, commits.once(metadata), seen, lambda once: seen.update(updates=new, predicate=predicate, commit_properties=once)
        )

    def _change(
        self, spark: SparkSession, table: str, once: CommitProperties, seen: DeltaTable, change: Callable[[CommitProperties], object]
    ) -> None:
        """Make one commit by deltalake, without retries on other versions."""
        self.still_mine()
        with refused_if_overtaken(table, "rows"):
            commits.change_rows(seen, once, change)
        self._after_commit(spark, table)
