"""What a lake's tables hold, and what their commits record, read without a Spark job where that is possible."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from platform_defs.engine.lake import commits
from platform_defs.engine.lake.compaction import SMALL_BYTES, file_sizes
from platform_defs.engine.lake.data_skipping import Ends, Ranges, chosen_rows, extent, no_rows, schema_of
from platform_defs.engine.lake.errors import LakeError, UnreadableLogError
from platform_defs.engine.lake.root import LakeRoot

ROWS = "rows_of"


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
class ReadTables(LakeRoot):
    """The tables of a lake, to be read."""

    def delta(self, table: str) -> DeltaTable | None:
        """The table as deltalake sees it now, or None where there is none.

        Raises:
            UnreadableLogError: a file of its log is missing, damaged or out of reach.
        """
        try:
            return DeltaTable(self.path(table))
        except TableNotFoundError:
            return None
        except DeltaError as error:
            raise UnreadableLogError.of(table, self.path(table), error) from error

    def identity(self, table: str) -> str | None:
        """What a table has that one made anew under its name has not; None where there is no table."""
        delta = self.delta(table)
        return None if delta is None else str(delta.metadata().id)

    def transaction(self, table: str, application: str) -> int | None:
        """The newest number that an application's commits gave a table; None where there is none, or no table."""
        delta = self.delta(table)
        return None if delta is None else delta.transaction_version(application)

    def frame(self, spark: SparkSession, table: str) -> DataFrame:
        """A table by Delta, as far as this lake knows it."""
        return spark.read.format("delta").load(self.path(table))

    def incarnation(self, table: str, version: int) -> str | None:
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
        held = {c.lower() for c in rows.columns}  # a column that files added to a log may be declared in another case later
        return rows.select(
            *[F.col(f"`{f.name}`") if f.name.lower() in held else F.lit(None).cast(f.dataType).alias(f.name) for f in schema]
        )

    def extent(self, table: str, columns: Sequence[str], within: Ranges) -> dict[str, Ends]:
        """Between which values of columns the rows within ranges lie, as far as the table's log tells; see `chosen.extent`."""
        delta = self.delta(table)
        return {} if delta is None else extent(delta, columns, within)

    def is_large(self, table: str) -> bool:
        """Whether a table is so large that it pays to choose the files of it to look into."""
        delta = self.delta(table)
        return delta is not None and sum(file_sizes(delta)) > SMALL_BYTES

    def no_rows(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """No rows, of some columns."""
        return no_rows(spark, schema)

    def schema(self, table: str) -> StructType:
        """The columns that the table has; none where there is no table yet."""
        delta = self.delta(table)
        return StructType() if delta is None else schema_of(delta)

    def newest(self, table: str, key: str) -> Commit | None:
        """The newest commit with this key in its metadata; None where there is no table.

        Commits of others (OPTIMIZE, VACUUM, a user's own) are stepped over. OPTIMIZE ones always: it commits
        under the session's setting, which may be another commit's metadata just then.

        Raises:
            LakeError: the table is there, and no commit that is left has the key.
        """
        delta = self.delta(table)
        return None if delta is None else newest_commit(delta, table, key)

    def commits(self, table: str, key: str) -> Iterator[Commit]:
        """The commits with this key in their metadata, the newest first, as far as the table's log goes back."""
        delta = self.delta(table)
        return iter(()) if delta is None else commits_with(delta, key)

    def version(self, table: str) -> int | None:
        """The table's newest version."""
        delta = self.delta(table)
        return None if delta is None else delta.version()


def newest_commit(delta: DeltaTable, table: str, key: str) -> Commit:
    """The newest commit of an opened table with a key.

    Raises:
        LakeError: no commit that is left has it.
    """
    found = next(commits_with(delta, key), None)
    if found is None:
        raise LakeError.forgotten(table, key)
    return found


def commits_with(delta: DeltaTable, key: str) -> Iterator[Commit]:
    """The commits of an opened table with a key, the newest first; commits of others and compactions are stepped over."""
    for version, info in commits.commit_infos(delta):
        metadata = commits.metadata_of(info)
        if key in metadata and info.get("operation") != "OPTIMIZE":
            written = info.get("operationMetrics", {}).get("numOutputRows", 0)
            yield Commit(version, metadata[key], int(metadata.get(ROWS, {}).get(key, written)))
