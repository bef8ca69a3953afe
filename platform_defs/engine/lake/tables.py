"""The lake: Delta tables under one root, and a snapshot of it.

Spark writes large tables. Arrow and the deltalake library read and write small data (the ledger, commit metadata, the rows of small
steps), for which a Spark job would cost more than the work.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from platform_defs.engine.lake.after_commits import Committed
from platform_defs.engine.lake.changed_tables import ChangedTables
from platform_defs.engine.lake.errors import LakeError, UnreadableLogError
from platform_defs.engine.lake.opened_tables import OpenedTable
from platform_defs.engine.lake.waits import Purpose


@dataclass(frozen=True)
class Lake(ChangedTables):
    """Reads, writes and maintains the tables below one root."""

    def snapshot(self) -> "Lake":
        """A snapshot of the lake: each table is read at the version that it has when it is first read."""
        return LakeSnapshot(self.root, self.lease_s, self.leases, self.storage_options, base=self)

    @property
    def live(self) -> "Lake":
        """The lake itself; for a snapshot, the lake from which it was taken."""
        return self


@dataclass(frozen=True)
class LakeSnapshot(Lake):
    """A snapshot of a lake: every table is read at the version that it had when it was first read.

    A commit through the snapshot fails if another writer has committed a step since the table was read (see the methods). After the commit,
    the snapshot may read this table at another version, so a step reads a table before it commits to it, and not after.

    Args:
        base: the lake itself.
    """

    base: Lake = field(kw_only=True)
    _tables: dict[str, DeltaTable | None] = field(default_factory=dict, init=False, compare=False, repr=False)
    _opened: dict[str, DeltaTable | None] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """The root is that of the lake, which is canonical already."""

    @classmethod
    def of(cls, lake: Lake) -> Lake:
        """A snapshot of a lake; a snapshot is returned unchanged."""
        return lake if isinstance(lake, LakeSnapshot) else lake.snapshot()

    @property
    def live(self) -> Lake:
        """The lake itself."""
        return self.base

    def delta(self, table: str, version: int | None = None) -> DeltaTable | None:
        """The table at the snapshot's version, in an object of the snapshot's own.

        Raises:
            LakeError: the table was deleted, or deleted and created again, since the snapshot first read it.
        """
        if version is not None:
            return self.base.delta(table, version)
        if table not in self._opened:
            shared = self.delta_for_reading(table)
            try:
                opened = None if shared is None else self.base.delta(table, shared.version())
            except UnreadableLogError as error:  # a version that was read before
                raise LakeError.overtaken(table, "log") from error
            if shared is not None and (opened is None or opened.metadata().id != shared.metadata().id):
                raise LakeError.overtaken(table, "log")
            self._opened[table] = opened
        return self._opened[table]

    def _for_writing(self, table: str) -> OpenedTable:
        """The table at the snapshot's version, in an object of the snapshot's own."""
        return OpenedTable(self.delta(table))

    def _keep_for_writing(self, table: str, opened: OpenedTable) -> None:
        """The snapshot has the table already."""

    def delta_for_reading(self, table: str) -> DeltaTable | None:
        """The table at the snapshot's version."""
        if table in self._opened:
            return self._opened[table]
        if table not in self._tables:
            self._tables[table] = self.base.delta_for_reading(table)
        return self._tables[table]

    def _after_commit(self, spark: SparkSession, table: str, committed: Committed | None = None) -> None:
        """Release the table after a commit through the snapshot: the opened table can then be brought up to date for all readers."""
        self._tables.pop(table, None)
        super()._after_commit(spark, table, committed)

    def frame(self, spark: SparkSession, table: str) -> DataFrame:
        """A table read by Delta, at the snapshot's version."""
        delta = self.delta_for_reading(table)
        reader = spark.read.format("delta")
        return (reader if delta is None else reader.option("versionAsOf", delta.version())).load(self.path(table))

    def writer(self, name: str, purpose: Purpose = "write", patience_s: float | None = None) -> AbstractContextManager[None]:
        """Hold a writer's lock of the lake itself."""
        return self.base.writer(name, purpose, patience_s)

    def check_leases(self) -> None:
        """Raise `LakeError` unless this process still holds all leases that it took."""
        self.base.check_leases()
