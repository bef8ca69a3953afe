"""Keeps tables opened, and brings them up to date when they have a newer version.

Opening a table means reading its log, and a cycle of a pipeline needs each of its tables about twenty times. On a disk and in S3, an
opened table is still the newest version if its newest commit is unchanged, and no later one exists. If there are later ones, they are
read; but if somebody still reads the opened version, the table is opened once more. After a checkpoint it is opened again too: deltalake
reads older commits when it needs them, and they may be deleted after a checkpoint.

A merge by deltalake changes the opened table through which it commits. So merges use an opened table that no reader shares, and the next
merge uses the same one again.

What the log records at the opened version (the newest number of an application, the newest commit with a key) is kept with the opened table
until its version changes.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar
from weakref import ref

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from platform_defs.engine.lake.log_ends import AFTER_ALL, LogEnd, LookAtEnd

T = TypeVar("T")
OpenTable = Callable[[], DeltaTable | None]
_MOST_TABLES, _MOST_FOR_WRITERS = 256, 32
"""How many tables stay open for readers, and for merges. Each 40 files of an opened table take about 1 MB of memory."""
_IN_DOUBT = object()
_KNOWN = "_known_of_version"


@dataclass
class OpenedTable:
    """A table that is opened once, and brought up to date when it has a newer version.

    Args:
        delta: the table at the version that was newest; None if it is not opened, or did not exist.
        commit: the state of its newest commit, see `LogEnd`.
        checkpoint: the state of its newest checkpoint.
    """

    delta: DeltaTable | None = None
    commit: Any = None
    checkpoint: Any = None

    def newest(self, look: LookAtEnd, open_table: OpenTable, *, may_update: bool = True) -> DeltaTable | None:
        """The table at its newest version; None if it does not exist. If the table cannot be opened, `delta` stays unchanged.

        Args:
            look: looks at the end of the table's log.
            open_table: opens the table at its newest version; None if it does not exist.
            may_update: whether the opened table may be changed to a newer version.
        """
        if self.delta is None or not self._bring_up_to_date(self.delta, look, may_update):
            end = look(AFTER_ALL)  # before the log is read, so that a later checkpoint is noticed
            opened = open_table()
            commit = _newest_commit(opened, look)
            self.delta, self.commit, self.checkpoint = opened, commit, None if end is None else end.checkpoint
        return self.delta

    def record_commit(self, look: LookAtEnd) -> None:
        """Record that a commit through `delta` has changed it to another version."""
        self.commit = _newest_commit(self.delta, look)

    def mark_stale(self) -> None:
        """Open the table again when its newest version is needed."""
        self.commit = _IN_DOUBT

    def _bring_up_to_date(self, delta: DeltaTable, look: LookAtEnd, may_update: bool) -> bool:
        """Change the opened table to the newest version; returns False if it must be opened again."""
        version = delta.version()
        end = look(version)
        if end is not None:
            state = end.commits.get(version), end.checkpoint
            if state == (None, None) or state != (self.commit, self.checkpoint):
                return False
            if not end.has_newer(version):
                return True
        if not may_update or self.commit is _IN_DOUBT:
            return False
        try:
            delta.update_incremental()
        except (DeltaError, OSError):  # raised again when the table is opened
            return False
        self.commit = _newest_commit(delta, look, end)
        return True


def _newest_commit(delta: DeltaTable | None, look: LookAtEnd, end: LogEnd | None = None) -> Any:
    """The state of the commit at which a table is opened; `end` may have it already."""
    if delta is None:
        return None
    version = delta.version()
    end = look(version) if end is None or version not in end.commits else end
    return None if end is None else end.commits.get(version)


@dataclass
class _Shared:
    """A table that readers share.

    Args:
        table: the table. Readers get a copy of it, which shares its content.
        copy: returns the copy as long as a reader has it, and then None. While a reader has it, the table must not change.
        lock: held by the thread that looks for a newer version.
    """

    table: OpenedTable = field(default_factory=OpenedTable)
    copy: Callable[[], DeltaTable | None] = lambda: None
    lock: Lock = field(default_factory=Lock)

    def newest(self, look: LookAtEnd, open_table: OpenTable) -> DeltaTable | None:
        """A copy of the table at its newest version; None if it does not exist."""
        before, in_use = self.table.delta, self.copy()
        delta = self.table.newest(look, open_table, may_update=in_use is None)
        if delta is None:
            return None
        if delta is before and in_use is not None:
            return in_use
        _known_of(delta)  # so that all copies share it
        new_copy = copy.copy(delta)
        self.copy = ref(new_copy)
        return new_copy


def known(delta: DeltaTable, key: Hashable, read: Callable[[], T]) -> T:
    """What the log records of an opened table at its version. It is read once, also for all copies of the table that readers share.

    Args:
        delta: the table.
        key: names what is read.
        read: reads it.
    """
    values = _known_of(delta)
    if key not in values:
        values[key] = read()
    return values[key]


def _known_of(delta: DeltaTable) -> dict[Hashable, Any]:
    version, kept = delta.version(), delta.__dict__.get(_KNOWN)
    if kept is None or kept[0] != version:
        kept = delta.__dict__[_KNOWN] = version, dict[Hashable, Any]()  # a new one: a thread may still fill the earlier version's
    return kept[1]


_opened: OrderedDict[Hashable, _Shared] = OrderedDict()
_for_writers: OrderedDict[Hashable, OpenedTable] = OrderedDict()
_lock = Lock()


def newest_version(key: Hashable, look: LookAtEnd, open_table: OpenTable) -> DeltaTable | None:
    """The newest version of a table, in an object that shares its content with those of other readers. Nobody may change or update it.

    Args:
        key: its path, and the options of its store: a table that was opened with other credentials may be unreadable now.
        look: looks at the end of its log.
        open_table: opens the table at its newest version; None if it does not exist.
    """
    with _lock:
        opened = _opened.setdefault(key, _Shared())
        _opened.move_to_end(key)
        while len(_opened) > _MOST_TABLES:
            _opened.popitem(last=False)  # the one that was read least recently
    with opened.lock:
        return opened.newest(look, open_table)


def take_for_writing(key: Hashable, look: LookAtEnd, open_table: OpenTable) -> OpenedTable:
    """The newest version of a table, in an object that nobody else has, so that a commit may change it; see `newest_version`."""
    with _lock:
        opened = _for_writers.pop(key, None) or OpenedTable()
    opened.newest(look, open_table)
    return opened


def keep_for_writing(key: Hashable, look: LookAtEnd, opened: OpenedTable) -> None:
    """Keep a table for the next `take_for_writing`, after a commit through it."""
    opened.record_commit(look)
    with _lock:
        _for_writers[key] = opened
        while len(_for_writers) > _MOST_FOR_WRITERS:
            _for_writers.popitem(last=False)
