"""A lake as it is at one time."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from platform_defs.engine.lake.locks import Purpose
from platform_defs.engine.lake.tables import Commit, Lake


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
