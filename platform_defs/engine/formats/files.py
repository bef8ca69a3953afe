"""Input files, their states in the ledger, and their paths as Spark, Hadoop and the ledger write them."""

import os
import re
import stat
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path, PurePosixPath
from typing import Any, cast
from urllib.parse import quote, unquote

from pyspark.sql import SparkSession

from platform_defs.engine.formats.kafka_options import Topics
from platform_defs.paths import is_local

COMPRESSIONS = (".gz",)
"""The compressions for which Spark raises an error when a file is damaged.

Spark reads a damaged `.bz2` as a file without rows. It reads a truncated `.snappy` or `.lz4`, or a `.zst` truncated after its first
frame, as a shorter file. It reads a `.snappy` or `.lz4` in another framing than Hadoop's as a file without rows.
"""
TOPIC = "kafka:"
"""The prefix of the path of a range of offsets of a Kafka topic; see `topics`."""
UNREAD, RETRY = "unread", "retry"
"""The marks of a ledger offset: `unread` if no row of the file could be read, `retry` if a user requests that the file is read again."""
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_PLAIN = frozenset("/:@&=+$,;_-!.~'()*")
_ENCODED = ("Cc", "Cs", "Zl", "Zp", "Zs")
"""The Unicode categories of the non-ASCII characters that `_encoded` encodes: controls and spaces; and `Cs`, in which Python has bytes that
are not UTF-8."""
_is_plain = re.compile(r"[A-Za-z0-9/:@&=+$,;_\-!.~'()*]*").fullmatch


@dataclass(frozen=True, order=True)
class File:
    """One input file in one state, or a range of offsets of a Kafka topic (see `topics`).

    Args:
        modified: its modification time in epoch ms.
        path: its URI, encoded as in Spark's `_metadata.file_path`, which has one slash for a local file.
        length: its size in bytes.
        source: the source to which it belongs.
        fault: the reason why no row of it is read; None if its rows are read.
        folder: the source's folder; None if it is not known. The ledger has paths relative to it, so that a lake can be moved.
        retries: how often a user has requested to read it again unchanged.
        topics: for a range of offsets, the topics of its source and how to read them.
    """

    modified: int
    path: str
    length: int
    source: str
    fault: str | None = field(default=None, compare=False)
    folder: str | None = field(default=None, compare=False)
    retries: int = field(default=0, compare=False)
    topics: Topics | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.path.replace("file:///", "file:/", 1))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys under which the ledger may record the file.

        These are its decoded path relative to the source's folder, after `./`, if it is in that folder; and its whole decoded path.
        """
        whole, root = decoded_path(self.path), "" if self.folder is None else f"{without_scheme(self.folder).rstrip('/')}/"
        return (f"./{whole.removeprefix(root)}", whole) if root and whole.startswith(root) else (whole,)

    @property
    def offset(self) -> str:
        """The file as the ledger records it in `offsets`."""
        retry_marks = [str(self.retries)] if self.retries else []
        return "|".join([*self._state, *([UNREAD, *retry_marks] if self.fault else [])])

    @property
    def retry(self) -> str:
        """What the ledger records in `offsets` for one more request to read the file again unchanged."""
        return "|".join([*self._state, RETRY, str(self.retries + 1)])

    @property
    def _state(self) -> list[str]:
        path = _encoded(self.keys[0]) if len(self.keys) > 1 else self.path
        return [path, str(self.modified), str(self.length)]

    @property
    def pattern(self) -> str:
        """The path for Spark's readers: decoded, with wildcards escaped."""
        return without_wildcards(unquote(self.path))

    @property
    def is_range(self) -> bool:
        """Whether it is a range of offsets of a Kafka topic, not a file."""
        return self.path.startswith(TOPIC)

    @property
    def suffix(self) -> str:
        """The suffix of its format, without the suffix of a compression; `kafka:` for a range of offsets."""
        if self.is_range:
            return TOPIC
        suffixes = [s.lower() for s in PurePosixPath(self.path).suffixes if s.lower() not in COMPRESSIONS]
        return suffixes[-1] if suffixes else ""


@dataclass(frozen=True)
class Recorded:
    """The ledger's record of a file in one state, that is, with one modification time and one length.

    Args:
        is_read: whether rows of it were read.
        refused: the number of retries that had been requested when the newest failed try was made; None if no try failed.
        retries: how often a user has requested to read it again unchanged.
    """

    is_read: bool = False
    refused: int | None = None
    retries: int = 0

    @property
    def is_known(self) -> bool:
        """Whether the file need not be read: it was read, or no row of it could be read after the newest request for a retry."""
        return self.is_read or (self.refused is not None and self.refused >= self.retries)

    def with_status(self, status: int) -> "Recorded":
        """This record and one more status (see `status_of`); the order in which statuses are added does not matter."""
        if status == 0:
            return replace(self, is_read=True)
        if status > 0:
            return replace(self, refused=max(status - 1, self.refused or 0))
        return replace(self, retries=max(-status, self.retries))


_READ_ONCE = Recorded(is_read=True)


def status_of(marks: Sequence[str]) -> int:
    """The status of a file, from the part of a ledger offset after the file's state: 0 for read, n + 1 for `unread|n`, -n for `retry|n`."""
    if not marks:
        return 0
    number = int(marks[1]) if len(marks) > 1 else 0
    return -number if marks[0] == RETRY else number + 1


@dataclass(frozen=True)
class FileRecords:
    """The ledger's records of some files of a source.

    Args:
        statuses: by a file's key, the statuses of each of its recorded states (modification time in epoch ms, and length).
    """

    statuses: Mapping[str, Mapping[tuple[int, int], Sequence[int]]]

    def _recorded_states(self, file: File) -> dict[tuple[int, int], Recorded]:
        states: dict[tuple[int, int], Recorded] = {}
        for key in file.keys:
            for state, statuses in self.statuses.get(key, {}).items():
                plain = statuses == [0] and state not in states  # the common case: read once, unchanged
                states[state] = _READ_ONCE if plain else reduce(Recorded.with_status, statuses, states.get(state, Recorded()))
        return states

    def has_present_state(self, file: File) -> bool:
        """Whether the ledger records the file in its present state, so that it need not be read."""
        state = self._recorded_states(file).get((file.modified, file.length))
        return state is not None and state.is_known

    def has_rows(self, file: File) -> bool:
        """Whether rows of the file were read, in its present state or an earlier one."""
        return any(state.is_read for state in self._recorded_states(file).values())

    def with_fault(self, file: File) -> File:
        """The file with its number of retries, and with a fault if it is empty, or changed after rows of it were read.

        Only for a file whose present state was not read; see `has_present_state`.
        """
        states = self._recorded_states(file)
        file = replace(file, retries=states.get((file.modified, file.length), Recorded()).retries)
        if any(state.is_read for state in states.values()):
            return replace(file, fault="the file changed after it was read; its new rows can be ingested under another name")
        return replace(file, fault="the file is empty") if file.length == 0 else file


def without_wildcards(path: str) -> str:
    """A path with the wildcards of Spark's readers escaped."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


def decoded_path(path: str) -> str:
    """A URI's path as decoded text, without the scheme `file:`. Different paths give different texts (see `decoded_name`)."""
    return without_scheme(decoded_name(path))


def decoded_name(path: str) -> str:
    """A percent-encoded path as text. A byte that is not UTF-8 becomes NUL and two hexadecimal digits, as no path contains NUL itself."""
    return _NOT_UTF8.sub(lambda byte: f"\0{ord(byte[0]) - 0xDC00:02X}", unquote(path, errors="surrogateescape"))


def without_scheme(folder: str) -> str:
    """The path of a folder, without the scheme `file:`; the folder is not percent-encoded."""
    return folder.removeprefix("file:").replace("///", "/", 1)


def uri_below(folder: str, name: str) -> str:
    """The URI of a file, given its source's folder and its decoded path below that folder."""
    root = one_path(folder)
    return f"file:{_encoded(f'{root}/{name}')}" if is_local(root) else f"{_encoded(root.rstrip('/'))}/{_encoded(name)}"


def hadoop_file(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """The Hadoop file system of a local or remote path, and the Hadoop path, as JVM objects of the session."""
    jvm, hadoop = cast(Any, spark._jvm), cast(Any, spark._jsparkSession).sessionState().newHadoopConf()
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path.getFileSystem(hadoop), hadoop_path


def one_path(folder: str) -> str:
    """The path of a local folder with links followed; the URI of a remote folder, unchanged."""
    return str(Path(folder).resolve()) if is_local(folder) else folder


def is_hidden(name: str) -> bool:
    """Whether ingest ignores a file or a folder with this name."""
    return name.startswith(("_", "."))


def found_file(path: str, source: str, root: str) -> File | None:
    """A local file in its present state; None if it does not exist or is a symbolic link. It has a fault if Spark cannot open it.

    Args:
        path: its path.
        source: its source.
        root: the source's folder.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return None
    return File(status.st_mtime_ns // 1_000_000, f"file:{_encoded(path)}", status.st_size, source, _name_fault(path), root)


def _name_fault(path: str) -> str | None:
    """Why Spark cannot open a local file by its name; None if it can. Java finds only files with Unicode names."""
    if not _NOT_UTF8.search(path):
        return None
    named_part = "file" if _NOT_UTF8.search(path.rpartition("/")[2]) else "folder that it is in"
    return f"its name is not UTF-8, and Spark cannot open it; rename the {named_part}"


def _encoded(path: str) -> str:
    """A path encoded as in Java's URIs, which keep all non-ASCII characters except controls and spaces.

    It may have non-UTF-8 bytes in the form of `os` or `decoded_name`.
    """
    if _is_plain(path):
        return path
    return "".join(c if _is_kept(c) else quote(c, errors="surrogateescape") for c in path).replace("%00", "%")


def _is_kept(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character in _PLAIN
    return unicodedata.category(character) not in _ENCODED
