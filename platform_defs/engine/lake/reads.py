"""Reads the lake's tables and their commit metadata, without a Spark job if possible."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from operators.columns import quoted_name
from platform_defs.engine.lake import commits
from platform_defs.engine.lake.compaction import SMALL_BYTES, file_sizes
from platform_defs.engine.lake.data_skipping import (
    Ends,
    FileSize,
    Ranges,
    extent,
    few_rows,
    has_all_files,
    no_rows,
    rows_of_matching_files,
    schema_of,
    sizes_of_matching_files,
    time_extent,
)
from platform_defs.engine.lake.errors import LakeError, MissingMetadataError, UnreadableLogError
from platform_defs.engine.lake.log_ends import LogEnd, end_in_s3, end_on_disk
from platform_defs.engine.lake.objects import StoreError
from platform_defs.engine.lake.opened_tables import OpenedTable, keep_for_writing, known, newest_version, take_for_writing
from platform_defs.engine.lake.root import LakeRoot
from platform_defs.paths import is_in_s3


@dataclass(frozen=True)
class Commit:
    """One commit of a table.

    Args:
        version: the table's version after it.
        value: the value of its metadata under the key by which it was looked up; nobody may change it, as readers share it.
        rows: the number of rows that it wrote.
        at: its time by the clock of its writer, in epoch ms; None if it is not recorded.
    """

    version: int
    value: Any
    rows: int
    at: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ReadTables(LakeRoot):
    """Reads the tables of a lake."""

    def delta(self, table: str, version: int | None = None) -> DeltaTable | None:
        """A version of a table, by default the newest, in an object of the caller's own; None if the table does not exist.

        Raises:
            UnreadableLogError: a file of its log is missing, damaged or unreadable.
            LakeError: the store of a lake behind a URI cannot be opened, or the disk has a fault that may pass.
        """
        try:
            return DeltaTable(self.path(table), version=version, storage_options=self.storage_options)
        except TableNotFoundError:
            return None
        except DeltaError as error:
            raise self.passing_fault(table, error) or UnreadableLogError.of(table, self.path(table), error) from error
        except OSError as error:
            if not self.is_local:
                raise LakeError.no_store(self.root, error) from error
            if (fault := self.passing_fault(table, error)) is None:
                raise
            raise fault from error

    def delta_for_reading(self, table: str) -> DeltaTable | None:
        """A table's newest version, in an object that others read too: nobody may change or update it. None if the table does not exist.

        Raises:
            UnreadableLogError, LakeError: see `delta`.
        """
        if not self._notices_new_tables:
            return self.delta(table)
        return newest_version(self._key(table), partial(self.log_end, table), partial(self.delta, table))

    def _for_writing(self, table: str) -> OpenedTable:
        """A table's newest version, in an object of the caller's own. After a commit, the caller passes it to `_keep_for_writing`."""
        if not self._notices_new_tables:
            return OpenedTable(self.delta(table))
        return take_for_writing(self._key(table), partial(self.log_end, table), partial(self.delta, table))

    def _keep_for_writing(self, table: str, opened: OpenedTable) -> None:
        """Keep an opened table for the next writer, after a successful commit through it."""
        if self._notices_new_tables:
            with suppress(LakeError):  # the next writer opens the table again
                keep_for_writing(self._key(table), partial(self.log_end, table), opened)

    @property
    def _notices_new_tables(self) -> bool:
        """Whether readers notice that a table was deleted and created again, without reading the table's log."""
        return self.is_local or is_in_s3(self.root)

    def _key(self, table: str) -> tuple[object, ...]:
        return self.path(table), *sorted((self.storage_options or {}).items())

    def log_end(self, table: str, version: int) -> LogEnd | None:
        """The end of a table's log from a version on, on a disk or in S3; None for another store.

        Raises:
            LakeError: the store refused, or cannot be reached.
        """
        if self.is_local:
            return end_on_disk(self.path(table), version)
        try:
            return end_in_s3(self.path(table), self.storage_options, version) if is_in_s3(self.root) else None
        except (StoreError, OSError) as error:
            raise LakeError.no_store(self.root, error) from error

    def exists(self, table: str) -> bool:
        """Whether the lake has the table."""
        return self.delta_for_reading(table) is not None

    def identity(self, table: str) -> str | None:
        """The table's Delta id, which changes when it is created again; None if it does not exist."""
        delta = self.delta_for_reading(table)
        return None if delta is None else str(delta.metadata().id)

    def transaction(self, table: str, application: str) -> int | None:
        """The newest number of an application's commits (`txnVersion`); None if it has no commit, or the table does not exist.

        Raises:
            UnreadableLogError, LakeError: see `delta`.
        """
        delta = self.delta_for_reading(table)
        with self._reading_log(table):
            return None if delta is None else known(delta, ("transaction", application), partial(delta.transaction_version, application))

    def frame(self, spark: SparkSession, table: str) -> DataFrame:
        """A table read by Delta; for a snapshot of the lake, at the snapshot's version."""
        return spark.read.format("delta").load(self.path(table))

    def read(
        self, spark: SparkSession, table: str, schema: StructType | None = None, within: Ranges | None = None, *, with_nulls: bool = False
    ) -> DataFrame:
        """The rows of the data files that can contain rows within ranges.

        Args:
            spark: the session.
            table: the table.
            schema: the columns to return; a column that the table lacks is null. None for the table's own columns.
            within: the ranges, by column. The result may also have rows outside of them.
            with_nulls: whether to read also the files that have nulls in a column with a range.

        Returns:
            The rows; none if the table does not exist yet (then `schema` is needed).
        """
        delta = self.delta_for_reading(table)
        if delta is None:
            rows = no_rows(spark, schema or StructType())
        else:
            columns = None if schema is None else schema.names
            matching_rows = rows_of_matching_files(spark, delta, self.path(table), within or {}, columns=columns, with_nulls=with_nulls)
            rows = self.frame(spark, table) if matching_rows is None else matching_rows
        if schema is None or rows.columns == schema.names:
            return rows
        stored = {c.lower() for c in rows.columns}  # a contract may write a name in another case than the files that added it
        return rows.select(
            *[F.col(quoted_name(f.name)) if f.name.lower() in stored else F.lit(None).cast(f.dataType).alias(f.name) for f in schema]
        )

    def delta_at_version(self, table: str, version: int) -> DeltaTable | None:
        """An earlier version as opened by deltalake; None if its log cannot be read, or if a data file is missing or has another size.

        Raises:
            LakeError: the disk has a fault that may pass; or the lake is behind a URI, and its store refused or cannot be reached.
        """
        try:
            delta = DeltaTable(self.path(table), version=version, storage_options=self.storage_options)
            return delta if has_all_files(delta) else None
        except FileNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            if (fault := self.passing_fault(table, error)) is not None:
                raise fault from error
            if self.is_local or isinstance(error, DeltaError):
                return None
            raise LakeError.no_store(self.root, error) from error

    def few_rows(self, table: str, columns: pa.Schema, within: Ranges) -> pa.Table | None:
        """The rows of the files that can match, read without Spark; see `data_skipping.few_rows`."""
        delta = self.delta_for_reading(table)
        return columns.empty_table() if delta is None else few_rows(delta, columns, within)

    def few_numbers(self, table: str, column: str, within: Ranges) -> pa.ChunkedArray | None:
        """The values of a column of type bigint in the files that can match, read without Spark; see `few_rows`."""
        rows = self.few_rows(table, pa.schema([(column, pa.int64())]), within)
        return None if rows is None else rows[column]

    def extent(self, table: str, columns: Sequence[str], within: Ranges) -> dict[str, Ends]:
        """The bounds of columns over the rows within ranges, from the statistics in the table's log; see `data_skipping.extent`."""
        delta = self.delta_for_reading(table)
        return {} if delta is None else extent(delta, columns, within)

    def time_extent(self, table: str, column: str, within: Ranges) -> Ends | None:
        """The bounds of a timestamp column over the rows within ranges, from the statistics in the log; see `data_skipping.time_extent`."""
        delta = self.delta_for_reading(table)
        return None if delta is None else time_extent(delta, column, within)

    def file_sizes(self, table: str, within: Ranges) -> dict[str, FileSize]:
        """The sizes of the data files that can contain rows within ranges, by path; none if the table does not exist."""
        delta = self.delta_for_reading(table)
        return {} if delta is None else sizes_of_matching_files(delta, within)

    def is_large(self, table: str) -> bool:
        """Whether a table is so large that data skipping saves time."""
        delta = self.delta_for_reading(table)
        return delta is not None and sum(file_sizes(delta)) > SMALL_BYTES

    def no_rows(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """An empty frame with the given columns."""
        return no_rows(spark, schema)

    def schema(self, table: str) -> StructType:
        """The table's columns; none if the table does not exist yet."""
        delta = self.delta_for_reading(table)
        return StructType() if delta is None else schema_of(delta)

    def newest_commit(self, table: str, key: str) -> Commit | None:
        """The newest commit with this key in its metadata; None if the table does not exist.

        Commits without the key (of VACUUM, or a user's own) are skipped. Commits of OPTIMIZE are always skipped: their metadata comes
        from a session setting, which may be that of another commit.

        Raises:
            MissingMetadataError: the table exists, but no commit in its log has the key. For other errors see `delta`.
        """
        delta = self.delta_for_reading(table)
        with self._reading_log(table):
            return None if delta is None else known(delta, ("commit", key), partial(newest_commit, delta, table, key))

    def commits(self, table: str, key: str, upto: int | None = None) -> Iterator[Commit]:
        """The commits with this key in their metadata up to a version, the newest first, as far as the table's log goes back.

        Errors are those of `delta`; that of a commit's file is raised when the iterator reaches it.
        """
        delta = self.delta_for_reading(table)

        def found() -> Iterator[Commit]:
            with self._reading_log(table):
                yield from () if delta is None else commits_with(delta, table, key, upto)

        return found()

    @contextmanager
    def _reading_log(self, table: str) -> Iterator[None]:
        """Raise `LakeError` for a file of a table's log that is damaged, or that the store or the disk does not return."""
        try:
            yield
        except (OSError, DeltaError) as error:
            if not self.is_local and isinstance(error, OSError):
                raise LakeError.no_store(self.root, error) from error
            raise self.passing_fault(table, error) or UnreadableLogError.of(table, self.path(table), error) from error

    def version(self, table: str) -> int | None:
        """The table's newest version; None if the table does not exist."""
        delta = self.delta_for_reading(table)
        return None if delta is None else delta.version()


def newest_commit(delta: DeltaTable, table: str, key: str) -> Commit:
    """The newest commit of an opened table with a key.

    Raises:
        MissingMetadataError: no commit in its log has the key. For other errors see `commits_with`.
    """
    for commit in commits_with(delta, table, key):
        return commit
    raise MissingMetadataError.of(table, key)


def commits_with(delta: DeltaTable, table: str, key: str, upto: int | None = None) -> Iterator[Commit]:
    """The commits of an opened table with a key up to a version, the newest first; commits without it and compactions are skipped.

    Raises:
        UnreadableLogError: the file of a commit is damaged.
    """
    try:
        for version, info in commits.commit_infos(delta, upto):
            metadata = commits.metadata_of(info)
            if key in metadata and info.get("operation") != "OPTIMIZE":
                written = info.get("operationMetrics", {}).get("numOutputRows", 0)
                rows = int(metadata.get(commits.ROWS, {}).get(key, written))
                yield Commit(version, metadata[key], rows, info.get("timestamp"))
    except (DeltaError, ValueError) as error:
        raise UnreadableLogError.of(table, delta.table_uri.removeprefix("file://").rstrip("/"), error) from error
