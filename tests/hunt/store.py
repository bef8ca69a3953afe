"""A lake in memory: tables of versions with commit metadata, put-if-absent commits, input files, locks.

It keeps content and order only. `process.py` has the faults between a process and the store.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from platform_defs.engine.ingest.uncommitted import ATTEMPT, REMOVED

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """One commit of a table, and the rows of the table after it; `written` is the number of rows that the commit wrote."""

    number: int
    rows: tuple[Row, ...]
    metadata: Mapping[str, Any]
    written: int
    operation: str = "WRITE"
    step: int | None = None


@dataclass(slots=True)
class Table:
    """A table. A recreated table has another `identity`."""

    identity: str
    versions: list[Version] = field(default_factory=list)
    step: int = -1
    """The greatest step among its commits, as Delta's transaction numbers keep it."""

    @property
    def newest(self) -> Version:
        return self.versions[-1]

    @property
    def recorded(self) -> Mapping[str, Any]:
        """The newest value of each key in its commits' metadata, which is the value that readers find."""
        return {key: value for version in self.versions for key, value in version.metadata.items()}


@dataclass(frozen=True, slots=True)
class Lost:
    """A lost commit.

    Args:
        commit: the commit.
        before: the version before it, with all that the table recorded then.
        head: the newest batch that the ledger has, or had, of the source whose log this is.
    """

    commit: Version
    before: Version
    head: int


@dataclass(frozen=True, slots=True)
class Event:
    """One row of an input file. `uid` identifies the event, even if a file repeats it."""

    uid: int
    k: str | None
    t: int
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class LandedFile:
    """An input file."""

    source: str
    name: str
    modified: int
    length: int
    events: tuple[Event, ...]


class Conflict(Exception):
    """Another commit took the version."""


@dataclass(slots=True)
class Store:
    """The state that outlives processes."""

    tables: dict[str, Table] = field(default_factory=dict)
    landing: dict[tuple[str, str], LandedFile] = field(default_factory=dict)
    locks: dict[str, Any] = field(default_factory=dict)
    home: str = "s3a://lake"
    made: int = 0
    memo: dict[Any, Any] = field(default_factory=dict)
    """Values that are derived from a version once, and used by all processes."""
    lost: dict[str, Lost] = field(default_factory=dict)
    """Commits that a power cut removed, by table; a backup restores them. Each has the version before it, with `Table.recorded`."""

    def commit(
        self,
        table: str,
        change: Callable[[tuple[Row, ...]], tuple[Row, ...]],
        metadata: Mapping[str, Any],
        *,
        written: int,
        seen: int | None = None,
        operation: str = "WRITE",
        step: int | None = None,
    ) -> int:
        """Commit the next rows of a table; the first commit creates it.

        Args:
            table: the table.
            change: computes the table's rows after the commit from the rows before it.
            metadata: the commit's metadata.
            written: how many rows it writes.
            seen: the version that the commit must follow (-1: none); None for any.
            operation: the operation, as Delta names it.
            step: the number of the step that it commits; None for another commit.

        Raises:
            Conflict: the newest version is not the one seen.
        """
        held = self.tables.get(table)
        newest = -1 if held is None else held.newest.number
        if seen is not None and seen != newest:
            raise Conflict(table)
        if held is None:
            self.made += 1
            held = self.tables[table] = Table(f"id-{self.made}")
        before = held.versions[-1].rows if held.versions else ()
        held.versions.append(Version(newest + 1, change(before), metadata, written, operation, step))
        held.step = held.step if step is None else max(held.step, step)
        return newest + 1

    def next_id(self) -> int:
        """A number that no other commit has."""
        self.made += 1
        return self.made

    def step_of(self, table: str) -> int:
        """The greatest step among a table's commits."""
        return self.tables[table].step if table in self.tables else -1

    def identity(self, table: str) -> str:
        """The identity of a table, empty if there is none. A recreated table has another one."""
        return self.tables[table].identity if table in self.tables else ""

    def drop(self, table: str) -> None:
        """Delete a table."""
        self.tables.pop(table, None)
        self.lost.pop(table, None)

    def forget(self, table: str) -> None:
        """Delete the log before the newest version, as Delta does after a checkpoint when the retention has expired."""
        held = self.tables.get(table)
        if held is not None:
            held.versions[:] = held.versions[-1:]

    def lose(self, table: str, *, torn: bool) -> bool:
        """Remove the newest commit, as a power cut does; a torn one leaves an unreadable commit."""
        held = self.tables.get(table)
        if held is None or len(held.versions) < 2 or table in self.lost:
            return False
        taken = held.versions.pop()
        self.lost[table] = Lost(taken, replace(held.newest, metadata=held.recorded), self._head(table.rpartition("/")[2]))
        held.step = max((v.step for v in held.versions if v.step is not None), default=-1)
        if torn:
            held.versions.append(Version(taken.number, held.newest.rows, {}, 0, "TORN"))
        return True

    def _head(self, source: str) -> int:
        """The newest batch of a source that was ever committed to the ledger, also if the ledger has lost it; 0 for none."""
        versions = self.tables["ledger"].versions if "ledger" in self.tables else []
        versions = [*versions, *[lost.commit for table, lost in self.lost.items() if table == "ledger"]]
        return max((row.source_batch.seq for version in versions for row in version.rows if row.source_batch.source == source), default=0)

    def restore(self) -> list[str]:
        """Restore the lost commits; returns the tables that were written after the loss, and cannot be restored."""
        overwritten: list[str] = []
        for table, lost in self.lost.items():
            held = self.tables[table]
            kept = [v for v in held.versions if v.number < lost.commit.number]
            later = [v for v in held.versions if v.number >= lost.commit.number and v.operation != "TORN"]
            if not later:
                held.versions[:] = [*kept, lost.commit]
            elif not _is_harmless(lost, is_log=table.startswith("events/")):
                overwritten.append(table)
        self.lost.clear()
        return overwritten

    def land(self, file: LandedFile) -> None:
        """Put a file into the landing folder."""
        self.landing[file.source, file.name] = file

    def touch(self, source: str, name: str, now: int) -> None:
        """Change a file after it was found."""
        file = self.landing[source, name]
        self.landing[source, name] = replace(file, modified=max(now, file.modified + 1), length=file.length + 1)


def _is_harmless(lost: Lost, *, is_log: bool) -> bool:
    """Whether a table is correct without a commit: it repeats what the table records, or adds uncommitted rows to a log or removes them.

    Three kinds of commits change no row and record nothing new: one that takes over the rows of a killed attempt, a compaction, and the
    commit after it with which maintenance repeats the metadata of earlier commits. Uncommitted rows are ingested again from their file,
    and a removal of them is repeated later.
    A torn commit is an empty file here. Readers skip it, so it is as harmless as a missing commit. A truncated commit cannot be read, and
    nothing can be written after it.
    """
    recorded = {key: value for key, value in lost.commit.metadata.items() if key not in ("id", "rows_of")}
    rows, rows_before = {*lost.commit.rows}, {*lost.before.rows}
    removes = rows < rows_before and recorded.get(ATTEMPT, {}).get("input") == REMOVED
    adds = is_log and rows > rows_before and all(seq > lost.head for seq, *_ in rows - rows_before)
    repeats = all(key in lost.before.metadata and lost.before.metadata[key] == value for key, value in recorded.items())
    return removes or adds or (lost.commit.rows == lost.before.rows and repeats)
