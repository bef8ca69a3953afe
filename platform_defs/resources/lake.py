"""The lake: Delta tables under one root, and what their commits remember.

Spark writes what may be large. The deltalake library reads and writes what is small (the ledger, commit
metadata), where a Spark job would cost more than the work. All commit metadata passes through here, so that
another store needs a change in this module alone.
"""

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError
from filelock import FileLock, Timeout
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

_SKIP_EMPTY_CONF = "spark.databricks.delta.skipRecordingEmptyCommits"
_COMPACTED = {"delta.autoOptimize.autoCompact": "true"}
_METADATA_CONF = "spark.databricks.delta.commitInfo.userMetadata"


class LakeError(RuntimeError):
    """The lake cannot do what was asked; the text says what stands in the way and what to do."""

    @classmethod
    def busy(cls, name: str, holder: str) -> "LakeError":
        """Another writer holds the lock."""
        return cls(f"{name} has a writer already: {holder}; one writer at a time keeps it exact, so wait for it or end it")

    @classmethod
    def forgotten(cls, table: str, what: str) -> "LakeError":
        """No commit of the table remembers what is needed."""
        return cls(
            f"no commit of {table} tells its {what}: it was written by something else, or its history was cleaned; "
            "rebuild it into a new lake"
        )


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
    """

    root: str

    def path(self, table: str) -> str:
        """Where a table lies."""
        return f"{self.root.rstrip('/')}/{table}"

    def delta(self, table: str) -> DeltaTable | None:
        """The table as deltalake sees it now, or None where there is none."""
        try:
            return DeltaTable(self.path(table))
        except TableNotFoundError:
            return None

    def read(self, spark: SparkSession, table: str, schema: StructType) -> DataFrame:
        """The table, or no rows of the schema where there is none yet."""
        if self.delta(table) is None:
            return spark.range(0).select(*[F.lit(None).cast(f.dataType).alias(f.name) for f in schema.fields])
        return spark.read.format("delta").load(self.path(table))

    def append(
        self, frame: DataFrame, table: str, metadata: dict[str, Any], *, pruned_by: Sequence[str] = (), replace_where: str | None = None
    ) -> None:
        """Commit a frame's rows and the metadata, as one; with `replace_where`, in place of the rows it names.

        A frame without rows is committed too: its metadata counts, and Delta would skip it.

        Args:
            frame: the rows.
            table: the table; the first append makes it.
            metadata: what the commit shall remember.
            pruned_by: the columns by which readers choose files; a new table keeps statistics of these alone.
            replace_where: SQL for the rows to replace.
        """
        frame.sparkSession.conf.set(_SKIP_EMPTY_CONF, "false")
        writer = frame.write.format("delta").option("userMetadata", json.dumps(metadata)).options(**_COMPACTED)
        if pruned_by:
            writer = writer.option("delta.dataSkippingStatsColumns", ",".join(f"`{c}`" for c in pruned_by))
        if replace_where is None:
            writer.mode("append").save(self.path(table))
        else:
            writer.mode("overwrite").option("replaceWhere", replace_where).save(self.path(table))

    def append_small(self, rows: pa.Table, table: str, metadata: dict[str, Any] | None = None) -> None:
        """Commit a few rows without a Spark job."""
        Path(self.path(table)).parent.mkdir(parents=True, exist_ok=True) if self.is_local else None
        properties = CommitProperties(custom_metadata={"userMetadata": json.dumps(metadata)}) if metadata else None
        write_deltalake(self.path(table), rows, mode="append", commit_properties=properties)

    def merge(self, table: str, rows: DataFrame, same: Column, *, gone: Column, metadata: dict[str, Any]) -> None:
        """Fold rows (`c`) into a table (`t`): delete where `gone`, update, insert; as one commit with the metadata."""
        from delta.tables import DeltaTable as SparkDelta

        spark = rows.sparkSession
        columns = spark.read.format("delta").load(self.path(table)).columns
        target = SparkDelta.forPath(spark, self.path(table)).alias("t")
        merge = target.merge(rows.alias("c"), same).whenMatchedDelete(condition=gone)
        values: dict[str, str | Column] = {c: f"c.`{c}`" for c in columns}
        with _commit_metadata(spark, metadata):
            merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(condition=~gone, values=values).execute()

    def delete(self, spark: SparkSession, table: str, condition: Column, metadata: dict[str, Any]) -> None:
        """Delete rows, as one commit with the metadata."""
        from delta.tables import DeltaTable as SparkDelta

        with _commit_metadata(spark, metadata):
            SparkDelta.forPath(spark, self.path(table)).delete(condition)

    def optimize(self, spark: SparkSession, table: str, by: Sequence[str] = ()) -> None:
        """Compact a table's files, clustered by columns if given."""
        from delta.tables import DeltaTable as SparkDelta

        optimize = SparkDelta.forPath(spark, self.path(table)).optimize()
        optimize.executeZOrderBy(*by) if by else optimize.executeCompaction()

    def newest(self, table: str, key: str) -> "Commit | None":
        """The newest commit with this key in its metadata; None where there is no table.

        Commits of others (OPTIMIZE, VACUUM, a user's own) are stepped over.

        Raises:
            LakeError: the table is there, and no commit that is left has the key.
        """
        delta = self.delta(table)
        if delta is None:
            return None
        for commits in (8, None):
            for told in delta.history(commits):
                metadata = _metadata(told)
                if key in metadata:
                    return Commit(told["version"], metadata[key], int(told.get("operationMetrics", {}).get("numOutputRows", 0)))
        raise LakeError.forgotten(table, key)

    def version(self, table: str) -> int | None:
        """The table's newest version."""
        delta = self.delta(table)
        return None if delta is None else delta.version()

    @property
    def is_local(self) -> bool:
        """Whether the root is a folder of this machine."""
        return "://" not in self.root

    @contextmanager
    def writer(self, name: str) -> Iterator[None]:
        """Be the one writer of an asset (or of the ledger) while the block runs; the system frees a dead one's lock.

        Raises:
            LakeError: somebody else is; it says who, and since when.
        """
        if not self.is_local:  # Delta's own commit protocol is what guards a remote lake; one scheduler runs it
            yield
            return
        folder = Path(self.root, "_locks")
        folder.mkdir(parents=True, exist_ok=True)
        told = folder / f"{name.replace('/', '.')}.holder"
        lock = FileLock(folder / f"{name.replace('/', '.')}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise LakeError.busy(name, told.read_text() if told.exists() else "unknown") from None
        try:
            told.write_text(f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
            yield
        finally:
            lock.release()


def _metadata(commit: dict[str, Any]) -> dict[str, Any]:
    """A commit's metadata, if it is one of ours."""
    try:
        found = json.loads(commit.get("userMetadata") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _commit_metadata(spark: SparkSession, metadata: dict[str, Any]) -> Iterator[None]:
    spark.conf.set(_METADATA_CONF, json.dumps(metadata))
    try:
        yield
    finally:
        spark.conf.unset(_METADATA_CONF)
