"""The lake's methods on the store in memory, with the semantics of `platform_defs.engine.lake.tables`."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import StructType

from platform_defs.engine.lake.commits import APPLICATION
from platform_defs.engine.lake.errors import LakeBusy, LakeError, MissingMetadataError
from platform_defs.engine.lake.reads import Commit
from platform_defs.engine.lake.tables import Lake, LakeSnapshot
from platform_defs.engine.lake.waits import Purpose
from platform_defs.engine.lake.written_tables import ANY
from tests.hunt.frames import Rows
from tests.hunt.process import Process, StoreFault
from tests.hunt.store import Conflict, Row, Store, Version

_AFTER = re.compile(r"`?seq`? > (\d+)")
_CARRIED = "rows_of"


@dataclass(frozen=True)
class Snapshot:
    """A table as it was read; stands for deltalake's `DeltaTable`. It has a `__dict__`, in which `opened_tables.known` keeps answers."""

    identity: str
    seen: Version
    versions: Sequence[Version]

    def version(self) -> int:
        return self.seen.number

    def file_uris(self) -> list[str]:
        return []

    def transaction_version(self, application: str) -> int | None:
        assert application != APPLICATION, "steps are numbered by the store"
        return None

    def newest_commit(self, table: str, key: str) -> Commit:
        """The newest commit with a key."""
        for version in reversed(self.versions):
            if key in version.metadata:
                rows = version.metadata.get(_CARRIED, {}).get(key, version.written)
                return Commit(version.number, version.metadata[key], rows)
        raise MissingMetadataError.of(table, key)


class SimTables(Lake):
    """The lake's methods on the tables that `delta` returns, current or from a snapshot."""

    @property
    def sim(self) -> "SimLake":
        """The current lake: this one, or the lake of which this one is a snapshot."""
        live = self.live
        assert isinstance(live, SimLake)
        return live

    def delta_for_reading(self, table: str) -> Any:
        return self.delta(table)

    def schema(self, table: str) -> StructType:
        return StructType()

    def identity(self, table: str) -> str | None:
        seen = self.delta(table)
        return None if seen is None else seen.identity  # pyright: ignore[reportAttributeAccessIssue]

    def newest_commit(self, table: str, key: str) -> Commit | None:
        seen: Any = self.delta(table)
        return None if seen is None else seen.newest_commit(table, key)

    def commits(self, table: str, key: str, upto: int | None = None) -> Iterator[Commit]:
        seen: Any = self.delta(table)
        versions = () if seen is None else reversed(seen.versions)
        known = (v for v in versions if upto is None or v.number <= upto)
        yield from (Commit(v.number, v.metadata[key], v.written) for v in known if key in v.metadata)

    def no_rows(self, spark: Any, schema: Any) -> Any:
        return Rows((), ())

    def append(self, frame: Any, table: str, metadata: dict[str, Any], *, after: Any = ANY, number: int | None = None, **how: Any) -> int:
        self.check_leases()
        new, seen, name = tuple(frame), self.delta(table), self.sim.store.next_id()
        self.sim.process.call(lambda _: None)  # writes the files
        self.check_leases()
        while True:
            version = -1 if seen is None else seen.version()
            if seen is not None:
                self._check_follows(table, seen, metadata, after)
            try:
                self.sim.commit(table, lambda rows: rows + new, metadata | {"id": name}, written=len(new), seen=version, step=number)
            except Conflict:
                seen = self.sim.delta(table)
                continue
            except StoreFault:
                fresh: Any = self.sim.delta(table)  # the commit may have been made nevertheless
                if fresh is not None and any(v.metadata.get("id") == name for v in fresh.versions):
                    return len(new)
                raise
            return len(new)

    def _check_follows(self, table: str, delta: Any, metadata: dict[str, Any], after: Any) -> None:
        [key] = metadata
        newest = None if after is ANY else delta.newest_commit(table, key)
        if after is not ANY and (None if newest is None else newest.value) != _stored(after):
            raise LakeError.overtaken(table, key)

    def overwrite(self, frame: Any, table: str, metadata: dict[str, Any], *, number: int | None = None, **how: Any) -> None:
        new = tuple(frame)
        self.sim.commit(table, lambda _: new, metadata, written=len(new), step=number, guarded=True)

    def replace_rows(self, table: str, removed: Sequence[Row], new: Sequence[Row], metadata: dict[str, Any], number: int) -> None:
        """Remove rows, one copy each, and add others as one commit, as a merge does."""

        def change(rows: tuple[Row, ...]) -> tuple[Row, ...]:
            left = list(removed)
            kept = [row for row in rows if not (row in left and (left.remove(row) or True))]
            return (*kept, *new)

        self.check_leases()
        self.sim.commit(table, change, metadata, written=len(removed) + len(new), step=number, guarded=True)

    def delete(self, spark: Any, table: str, predicate: str, metadata: dict[str, Any], expected: Any) -> None:
        found = _AFTER.fullmatch(predicate)
        if found is None:
            raise ValueError(f"the simulation does not know the condition {predicate!r}")
        last = int(found[1])
        try:
            self.sim.commit(table, lambda rows: tuple(r for r in rows if r[0] <= last), metadata, written=0, seen=expected.version())
        except Conflict as conflict:
            raise LakeError.overtaken(table, "version") from conflict

    def carry_metadata(self, remembered: Mapping[str, Commit], expected: Any) -> None:
        values = {key: commit.value for key, commit in remembered.items()}
        table = self.sim.named(expected.identity)
        try:
            metadata = values | {_CARRIED: {key: c.rows for key, c in remembered.items()}}
            self.sim.commit(table, lambda rows: rows, metadata, written=0, seen=expected.version())
        except Conflict as conflict:
            raise CommitFailedError(table) from conflict


@dataclass(frozen=True)
class SimLake(SimTables):
    """A lake whose tables lie in memory.

    Args:
        store: the state that outlives processes.
        process: the process that uses the lake.
        shares_leases: whether a paused writer loses its lease to another process.
    """

    store: Store = field(default_factory=Store, compare=False)
    process: Process = field(default_factory=lambda: Process(0), compare=False)
    shares_leases: bool = False

    def snapshot(self) -> Lake:
        return SimLakeSnapshot(self.root, self.lease_s, self.leases, base=self)

    def named(self, identity: str) -> str:
        """The name of a table with an identity."""
        return next((name for name, table in self.store.tables.items() if table.identity == identity), identity)

    def _seen(self, table: str, stale: bool) -> Snapshot | None:
        held = self.store.tables.get(table)
        if held is None:
            return None
        seen, versions = self.process.seen, held.versions
        newest_known = seen.get(held.identity, -1)  # a process never reads a version before one that it has read or written
        if stale and len(versions) > 1 and newest_known < versions[-1].number:
            versions = versions[:-1]
        seen[held.identity] = versions[-1].number
        return Snapshot(held.identity, versions[-1], tuple(versions))

    def delta(self, table: str, version: int | None = None) -> Any:
        return self.process.call(lambda stale: self._seen(table, stale))

    def commit(
        self,
        table: str,
        change: Callable[[tuple[Row, ...]], tuple[Row, ...]],
        metadata: Mapping[str, Any],
        *,
        step: int | None = None,
        guarded: bool = False,
        **how: Any,
    ) -> None:
        """Commit; a guarded commit must have a step above the table's newest."""
        self.check_leases()
        stored = {key: _stored(value) for key, value in metadata.items()}

        def effect(_: bool) -> None:
            if guarded and step is not None and step <= self.store.step_of(table):
                raise LakeError.overtaken(table, "step")
            self.process.seen[self.store.identity(table)] = self.store.commit(table, change, stored, step=step, **how)

        self.process.call(effect, writes=True)

    def append_small(
        self, rows: Any, table: str, metadata: dict[str, Any] | None = None, *, expected: Any = ANY, description: str = ""
    ) -> None:
        new = tuple(rows)
        known = self.delta(table) if expected is ANY else expected
        before = None if known is None else known.version()
        try:
            self.commit(table, lambda held: held + new, metadata or {}, written=len(new), seen=-1 if before is None else before)
        except Conflict as conflict:
            raise LakeError.overtaken(table, "version") from conflict

    def folders(self, below: str = "") -> list[str]:
        self.process.call(lambda _: None)
        names = [name.split("/") for name in self.store.tables]
        return sorted({name[-1] for name in names if name[:-1] == ([below] if below else [])})

    def transaction(self, table: str, application: str) -> int | None:
        step = self.store.step_of(table)
        return None if step < 0 or application != APPLICATION else step

    def optimize(self, spark: Any, table: str) -> None:
        self.commit(table, lambda rows: rows, {}, written=0, operation="OPTIMIZE")

    @contextmanager
    def opening(self) -> Iterator[None]:
        yield

    @contextmanager
    def _holding_lock(self, name: str, purpose: Purpose, patience_s: float | None = None, *, may_request: bool = True) -> Iterator[None]:
        locks, key = self.store.locks, f"{self.process.spelling}:{name}"
        owner: Process | None = locks.get(key)
        if owner is not None:
            if not (self.shares_leases and owner.is_paused and owner is not self.process):
                raise LakeBusy.held_by_writer(name, f"process {owner.number}")
            owner.taken.add(name)
        locks[key] = self.process
        try:
            yield
        finally:
            if locks.get(key) is self.process and name not in self.process.taken:
                del locks[key]

    def check_leases(self) -> None:
        for name in self.process.taken:
            raise LakeError.lost(name, "another process")


class SimLakeSnapshot(LakeSnapshot, SimTables):
    """A snapshot of a lake in memory."""

    def delta(self, table: str, version: int | None = None) -> Any:
        return self.delta_for_reading(table)


def rows_of(lake: Lake, table: str, columns: tuple[str, ...]) -> Rows:
    """The rows of a table as the lake sees them; none if it is missing."""
    seen: Any = lake.delta(table)
    return Rows(columns, () if seen is None else seen.seen.rows)


def _stored(value: Any) -> Any:
    """A value after a commit has stored it."""
    return json.loads(json.dumps(value))
