"""The lake's methods on the store in memory, with the semantics of `platform_defs.resources.lake`."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import StructType

from platform_defs.resources.errors import LakeBusy, LakeError
from platform_defs.resources.lake import Commit, Lake
from platform_defs.resources.lease import Purpose
from tests.hunt.frames import Rows
from tests.hunt.process import Process
from tests.hunt.store import Conflict, Row, Store, Table, Version

_SINCE = re.compile(r"`?(\w+)`? >= (\d+)")
_CARRIED = "rows_of"


@dataclass(frozen=True)
class Snapshot:
    """A table as it was seen; stands for deltalake's `DeltaTable`."""

    identity: str
    seen: Version
    versions: Sequence[Version]

    def version(self) -> int:
        return self.seen.number

    def file_uris(self) -> list[str]:
        return []


@dataclass(frozen=True)
class SimLake(Lake):
    """A lake whose tables lie in memory.

    Args:
        store: what outlives processes.
        process: the process that asks.
        shares_leases: whether a writer that is held up loses its place to another (a lease that ran out).
    """

    store: Store = field(default_factory=Store, compare=False)
    process: Process = field(default_factory=lambda: Process(0), compare=False)
    shares_leases: bool = False

    def _seen(self, table: str, stale: bool) -> Snapshot | None:
        held = self.store.tables.get(table)
        if held is None:
            return None
        versions = held.versions[:-1] if stale and len(held.versions) > 1 else held.versions
        return Snapshot(held.identity, versions[-1], versions)

    def delta(self, table: str) -> Any:
        return self.process.call(lambda stale: self._seen(table, stale))

    def place(self, table: str) -> Any:
        held = self.store.tables.get(table)
        return None if held is None else held.identity

    def schema(self, table: str) -> StructType:
        return StructType()

    def version(self, table: str) -> int | None:
        seen = self.delta(table)
        return None if seen is None else seen.version()

    def rows(self, table: str, columns: tuple[str, ...]) -> Rows:
        """What a table holds; nothing where there is none."""
        seen = self.delta(table)
        return Rows(columns, () if seen is None else seen.seen.rows)

    def newest(self, table: str, key: str) -> Commit | None:
        seen = self.delta(table)
        if seen is None:
            return None
        for version in reversed(seen.versions):
            if key in version.metadata:
                rows = version.metadata.get(_CARRIED, {}).get(key, version.written)
                return Commit(version.number, version.metadata[key], rows)
        raise LakeError.forgotten(table, key)

    def _commit(self, table: str, change: Callable[[tuple[Row, ...]], tuple[Row, ...]], metadata: Mapping[str, Any], **how: Any) -> None:
        self.still_mine()
        self.process.call(lambda _: self.store.commit(table, change, metadata, **how), writes=True)

    def append(self, frame: Any, table: str, metadata: dict[str, Any], **how: Any) -> None:
        new = tuple(frame)
        self._commit(table, lambda rows: rows + new, metadata, written=len(new))

    def append_small(
        self, rows: Any, table: str, metadata: dict[str, Any] | None = None, *, seen: Any = None, description: str = ""
    ) -> None:
        new = tuple(rows)
        before = self.version(table) if seen is None else seen.version()
        try:
            self._commit(table, lambda held: held + new, metadata or {}, written=len(new), seen=-1 if before is None else before)
        except Conflict as conflict:
            raise LakeError.lost(table, "unknown") from conflict

    def replace(self, table: str, gone: Sequence[Row], new: Sequence[Row], metadata: dict[str, Any]) -> None:
        """What a merge does: take rows away, one copy each, and add others, as one commit."""

        def change(rows: tuple[Row, ...]) -> tuple[Row, ...]:
            left = list(gone)
            kept = [row for row in rows if not (row in left and (left.remove(row) or True))]
            return (*kept, *new)

        self._commit(table, change, metadata, written=len(gone) + len(new), operation="MERGE")

    def delete(self, spark: Any, table: str, condition: Any, metadata: dict[str, Any]) -> None:
        found = _SINCE.fullmatch(condition)
        if found is None:
            raise ValueError(f"the simulation does not know the condition {condition!r}")
        first = int(found[2])
        self._commit(table, lambda rows: tuple(r for r in rows if r[0] < first), metadata, written=0, operation="DELETE")

    def optimize(self, spark: Any, table: str) -> None:
        self._commit(table, lambda rows: rows, {}, written=0, operation="OPTIMIZE")

    def carry(self, table: str, commits: Mapping[str, Commit]) -> None:
        seen = self.delta(table)
        if seen is None:
            return
        told = {key: commit.value for key, commit in commits.items()} | {_CARRIED: {key: c.rows for key, c in commits.items()}}
        try:
            self._commit(table, lambda rows: rows, told, written=0, seen=seen.version())
        except Conflict as conflict:
            raise CommitFailedError(table) from conflict

    @contextmanager
    def opened(self) -> Iterator[None]:
        yield

    @contextmanager
    def _held(self, name: str, purpose: Purpose) -> Iterator[None]:
        locks, key = self.store.locks, f"{self.process.spelling}:{name}"
        owner: Process | None = locks.get(key)
        if owner is not None:
            if not (self.shares_leases and owner.is_paused and owner is not self.process):
                raise LakeBusy.held(name, f"process {owner.number}")
            owner.taken.add(name)
        locks[key] = self.process
        try:
            yield
        finally:
            if locks.get(key) is self.process and name not in self.process.taken:
                del locks[key]

    def still_mine(self) -> None:
        for name in self.process.taken:
            raise LakeError.lost(name, "another process")

    def table(self, name: str) -> Table | None:
        """A table as it is, without asking the store."""
        return self.store.tables.get(name)
