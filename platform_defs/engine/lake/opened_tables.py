"""Keeps the tables on this machine's disks opened for readers until they have a newer version.

Opening a table reads its log, which takes some milliseconds, and a cycle of a pipeline needs each of its tables about twenty times. An
opened table is still the newest version if the file of its newest commit is unchanged, and that of the next commit does not exist. After a
checkpoint it is opened again too: deltalake reads older commits when it needs them, and they may be deleted after a checkpoint.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from deltalake import DeltaTable

_MOST_TABLES = 256


@dataclass(frozen=True)
class _Opened:
    """An opened table.

    Args:
        delta: the table.
        version: its version.
        commit: the inode and the time of the file of its newest commit, which change if the table is deleted and created again.
        checkpoint: those of the file that names its newest checkpoint; None if it has no checkpoint.
    """

    delta: DeltaTable
    version: int
    commit: tuple[int, int]
    checkpoint: tuple[int, int] | None


_opened: OrderedDict[str, _Opened] = OrderedDict()
_lock = Lock()


def newest_version(path: str, open_table: Callable[[], DeltaTable | None]) -> DeltaTable | None:
    """The newest version of a table, in an object that all readers of this process share. Nobody may commit through it or update it.

    Args:
        path: the table's folder on a disk.
        open_table: opens the table at its newest version; None if it does not exist.
    """
    checkpoint = _file_state(Path(path, "_delta_log", "_last_checkpoint"))
    with _lock:
        if (cached := _opened.get(path)) is not None:
            _opened.move_to_end(path)
    is_unchanged = cached is not None and (cached.commit, cached.checkpoint) == (commit_file(path, cached.version), checkpoint)
    if cached is not None and is_unchanged and not has_newer(path, cached.version):
        return cached.delta
    delta = open_table()
    commit = None if delta is None else commit_file(path, delta.version())
    with _lock:
        _opened.pop(path, None)
        if delta is not None and commit is not None:  # the log may have been cleaned up to a checkpoint
            _opened[path] = _Opened(delta, delta.version(), commit, checkpoint)
        while len(_opened) > _MOST_TABLES:
            _opened.popitem(last=False)  # the one that was read least recently
    return delta


def has_newer(path: str, version: int) -> bool:
    """Whether a table on a disk has a commit after a version."""
    return commit_file(path, version + 1) is not None


def commit_file(path: str, version: int) -> tuple[int, int] | None:
    """The inode and the time, in ns, of the file of a table's commit; None if it does not exist."""
    return _file_state(Path(path, "_delta_log", f"{version:020}.json"))


def _file_state(path: Path) -> tuple[int, int] | None:
    """The inode and the time, in ns, of a file; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
