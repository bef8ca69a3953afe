"""The end of a table's log, by its files on a disk or its objects in S3, without reading them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platform_defs.engine.lake.objects import newer_objects

AFTER_ALL = 10**20 - 1
"""A version above all others: the end of a log from there on has its newest checkpoint only."""
_COMMIT = re.compile(r"\d{20}\.json")
_CHECKPOINT = "_last_checkpoint"


@dataclass(frozen=True)
class LogEnd:
    """The end of a table's log from a version on.

    Args:
        commits: the states of commits' files, by commit number; at least of the version and the next one, if they exist.
        checkpoint: the state of the file that names the newest checkpoint; None if the table has no checkpoint.
    """

    commits: Mapping[int, Any]
    checkpoint: Any

    def has_newer(self, version: int) -> bool:
        """Whether there is a commit after the version from which this end begins."""
        return version + 1 in self.commits


LookAtEnd = Callable[[int], LogEnd | None]
"""Looks at the end of one table's log from a version on; None if that is not possible without reading the log."""


def end_on_disk(path: str, version: int) -> LogEnd:
    """The end of a log on a disk. It is empty if the disk has a fault: the table is then opened again, and that reports the fault.

    The state of a file is its inode and its modification time in ns. A new file may have the same inode as a deleted one, or the same
    time, but not both.

    Args:
        path: the table's folder.
        version: the version from which it begins.
    """
    log = Path(path, "_delta_log")
    try:
        states = {number: _file_state(log / f"{number:020}.json") for number in (version, version + 1)}
        return LogEnd({number: state for number, state in states.items() if state is not None}, _file_state(log / _CHECKPOINT))
    except OSError:
        return LogEnd({}, None)


def end_in_s3(uri: str, options: Mapping[str, str] | None, version: int) -> LogEnd:
    """The end of a log in S3, by one request. The state of an object is its modification time, its length and its tag.

    Args:
        uri: the table's URI.
        options: deltalake's options for the store.
        version: the version from which it begins.

    Raises:
        StoreError: the store refused, or cannot be reached.
    """
    objects = newer_objects(f"{uri}/_delta_log", options, f"{version:020}")
    return LogEnd({int(name[:20]): state for name, state in objects.items() if _COMMIT.fullmatch(name)}, objects.get(_CHECKPOINT))


def _file_state(path: Path) -> tuple[int, int] | None:
    """A file's inode and its modification time in ns; None if it does not exist."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_mtime_ns
