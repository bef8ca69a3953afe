"""A ledger's rows in memory, so that the ledger's logic runs without a file."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import pyarrow as pa

from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.ledger.columns import pc
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.engine.ledger.rows import SCHEMA, Batch, as_ints, table_of
from platform_defs.engine.ledger.store import Version
from tests.support.clock import Clock


@dataclass
class Memory:
    """The commits of a ledger, which its stores share. Their times are in epoch ms, as the ledger reads them."""

    commits: list[pa.Table] = field(default_factory=list)
    mutex: Lock = field(default_factory=Lock)


@dataclass
class MemoryLedgerStore:
    """The store of one process. Several stores with one memory simulate several processes."""

    memory: Memory = field(default_factory=Memory)
    seen: int = 0

    @property
    def name(self) -> str:
        return "memory/ledger"

    def refresh(self) -> Version | None:
        self.seen = len(self.memory.commits)
        rows = sum(commit.num_rows for commit in self.memory.commits[: self.seen])
        return Version("memory", self.seen - 1, rows) if self.seen else None

    def rows(self, columns: Sequence[str], after: int = 0, upto: int | None = None) -> Iterator[pa.Table]:
        for commit in self.memory.commits[: self.seen]:
            held = pc.greater(commit["seq"], after)
            held = held if upto is None else pc.and_(held, pc.less_equal(commit["seq"], upto))
            found = commit.select(list(columns)).filter(held)
            if found.num_rows:
                yield found

    def append(self, rows: pa.Table) -> None:
        with self.memory.mutex:
            if self.seen != len(self.memory.commits):
                raise LakeError.overtaken("ledger", "version")
            self.memory.commits.append(as_ints(rows))

    def replace(self, rows: pa.Table, upto: int) -> None:
        with self.memory.mutex:
            if self.seen != len(self.memory.commits):
                raise LakeError.overtaken("ledger", "version")
            later = [commit.filter(pc.greater(commit["seq"], upto)) for commit in self.memory.commits]
            self.memory.commits[:] = [*later, as_ints(rows)]

    def fence(self) -> None:
        self.append(SCHEMA.empty_table())

    def files_of(self, seq: int) -> list[str]:
        return [f"commit {n}" for n, commit in enumerate(self.memory.commits) if pc.any(pc.equal(commit["seq"], seq)).as_py()]

    def compact(self) -> None:
        pass


def memory_ledger(batches: Iterable[Batch] = (), clock: Clock | None = None) -> Ledger:
    """A ledger in memory with the given batches, which are checked when the ledger is first read."""
    no_lake: Any = None
    store, found = MemoryLedgerStore(), list(batches)
    if found:
        store.append(table_of(found))
    return Ledger(no_lake, clock or Clock(), store)
