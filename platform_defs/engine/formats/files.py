"""Input files: how they are found, and what is known of them."""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path, PurePosixPath
from typing import Any, cast
from urllib.parse import quote, unquote

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

COMPRESSIONS = (".gz",)
"""The packings of which Spark reads a damaged file as an error.

Spark reads a damaged `.bz2` as a file without rows. It takes a cut `.snappy` or `.lz4` as one that ends there, and so a `.zst` that is
cut behind its first frame. A `.snappy` or `.lz4` of another framing than Hadoop's is read as a file without rows.
"""
UNREAD, RETRY = "unread", "retry"
_LISTING = "path string, modificationTime timestamp, length bigint, content binary"
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_PLAIN = frozenset("/:@&=+$,;_-!.~'()*")
_PLAIN_ALONE = re.compile(r"[A-Za-z0-9/:@&=+$,;_\-!.~'()*]*").fullmatch


@dataclass(frozen=True, order=True)
class File:
    """One input file, as it was when it was found.

    Args:
        modified: its modification time in epoch ms.
        path: its URI, encoded as Spark's `_metadata.file_path` has it; a local one is kept with the one slash that Spark gives it.
        length: its size in bytes.
        source: the source it belongs to.
        fault: why no row of it is read; None where its rows are.
        folder: the source's folder; None where it is not known. The ledger keeps where a file is below it, so that a lake can be moved.
        retries: how often an operator asked to read it again as it is.
    """

    modified: int
    path: str
    length: int
    source: str
    fault: str | None = field(default=None, compare=False)
    folder: str | None = field(default=None, compare=False)
    retries: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.path.replace("file:///", "file:/", 1))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The names by which the ledger may know it: the decoded path below its source's folder after `./`, and the whole path."""
        whole, root = decoded(self.path), "" if self.folder is None else f"{without_scheme(self.folder).rstrip('/')}/"
        return (f"./{whole.removeprefix(root)}", whole) if root and whole.startswith(root) else (whole,)

    @property
    def offset(self) -> str:
        """What the ledger keeps of it."""
        retried = [str(self.retries)] if self.retries else []
        return "|".join([*self._state, *([UNREAD, *retried] if self.fault else [])])

    @property
    def retry(self) -> str:
        """What the ledger keeps of an operator's wish to read it again as it is, once more than it was so far."""
        return "|".join([*self._state, RETRY, str(self.retries + 1)])

    @property
    def _state(self) -> list[str]:
        path = _encoded(self.keys[0]) if len(self.keys) > 1 else self.path
        return [path, str(self.modified), str(self.length)]

    @property
    def pattern(self) -> str:
        """The path as Spark's readers take it: decoded, and with nothing that a glob would read as a wildcard."""
        return without_wildcards(unquote(self.path))

    @property
    def suffix(self) -> str:
        """Its format's suffix, a compression's put aside."""
        suffixes = [s.lower() for s in PurePosixPath(self.path).suffixes if s.lower() not in COMPRESSIONS]
        return suffixes[-1] if suffixes else ""


@dataclass(frozen=True)
class Recorded:
    """What the ledger records of a file in one state: with one modification time and one length.

    Args:
        is_read: whether rows of it were read.
        refused: the newest try in which no row of it was; None where there was none.
        retries: how often it was asked to be read again as it is.
    """

    is_read: bool = False
    refused: int | None = None
    retries: int = 0

    @property
    def is_known(self) -> bool:
        """Whether there is nothing to read: it was read, or refused after it was last asked for."""
        return self.is_read or (self.refused is not None and self.refused >= self.retries)

    def with_mark(self, mark: int) -> "Recorded":
        """What is recorded with one more mark, whatever the order: see `mark_of`."""
        if mark == 0:
            return replace(self, is_read=True)
        if mark > 0:
            return replace(self, refused=max(mark - 1, -1 if self.refused is None else self.refused))
        return replace(self, retries=max(-mark, self.retries))


_READ_ONCE = Recorded(is_read=True)


def mark_of(parts: Sequence[str]) -> int:
    """What follows a file's state in an offset, as a number: 0 where it was read, n + 1 for `unread|n`, and -n for `retry|n`."""
    if not parts:
        return 0
    number = int(parts[1]) if len(parts) > 1 else 0
    return -number if parts[0] == RETRY else number + 1


@dataclass(frozen=True)
class Known:
    """What the ledger records of some files of a source.

    Args:
        marks: by a file's key, the marks of each state it was recorded in (modification time in epoch ms, and length).
    """

    marks: Mapping[str, Mapping[tuple[int, int], Sequence[int]]]

    def _of(self, file: File) -> dict[tuple[int, int], Recorded]:
        found: dict[tuple[int, int], Recorded] = {}
        for key in file.keys:
            for state, marks in self.marks.get(key, {}).items():
                plain = marks == [0] and state not in found  # most were read once, as they are
                found[state] = _READ_ONCE if plain else reduce(Recorded.with_mark, marks, found.get(state, Recorded()))
        return found

    def holds(self, file: File) -> bool:
        """Whether the ledger records the file as it is now, so that there is nothing to read."""
        found = self._of(file).get((file.modified, file.length))
        return found is not None and found.is_known

    def has_rows(self, file: File) -> bool:
        """Whether rows of the file were read, as it is now or as it was."""
        return any(state.is_read for state in self._of(file).values())

    def judged(self, file: File) -> File:
        """The file, with a fault where none of its rows may be read: it holds none, or they were read before it changed."""
        found = self._of(file)
        file = replace(file, retries=found.get((file.modified, file.length), Recorded()).retries)
        if any(state.is_read for state in found.values()):
            return replace(file, fault="the file changed after it was read; what is new in it can be ingested under another name")
        return replace(file, fault="the file is empty") if file.length == 0 else file


def without_wildcards(path: str) -> str:
    """A path with everything escaped that Spark's readers would take as a wildcard."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


def decoded(path: str) -> str:
    """A URI's path as text: decoded, and without `file:` where it is of this machine. No two paths have one text, see `decoded_name`."""
    return without_scheme(decoded_name(path))


def decoded_name(path: str) -> str:
    """A path of percent-encoded UTF-8 as text. A byte that is not UTF-8 becomes its two digits after a NUL, which no path holds."""
    return _NOT_UTF8.sub(lambda byte: f"\0{ord(byte[0]) - 0xDC00:02X}", unquote(path, errors="surrogateescape"))


def without_scheme(folder: str) -> str:
    """A folder as it is named, which is not encoded, without `file:` where it is of this machine."""
    return folder.removeprefix("file:").replace("///", "/", 1)


def uri_below(folder: str, name: str) -> str:
    """The URI of a file, given its source's folder and its decoded path below it."""
    root = one_path(folder)
    return f"file:{_encoded(f'{root}/{name}')}" if is_local(root) else f"{_encoded(root.rstrip('/'))}/{_encoded(name)}"


def is_local(path: str) -> bool:
    """Whether a path is written as one of this machine, and not as a URI."""
    return "://" not in path


def hadoop_file(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """A path's file system and the path, as the session's JVM has them, of this machine or behind a URI."""
    jvm, hadoop = cast(Any, spark._jvm), cast(Any, spark._jsparkSession).sessionState().newHadoopConf()
    found = jvm.org.apache.hadoop.fs.Path(path)
    return found.getFileSystem(hadoop), found


def one_path(folder: str) -> str:
    """The one path of a folder of this machine, whatever links lead to it; a remote one's URI as it is."""
    return str(Path(folder).resolve()) if is_local(folder) else folder


def listed(spark: SparkSession, folder: str, source: str) -> list[File]:
    """All files that a folder behind a URI holds now, but for those of no bytes, which Spark does not list; none where it is not there."""
    files, path = hadoop_file(spark, folder)
    if not files.exists(path):
        return []
    lenient = spark.read.option("ignoreMissingFiles", "true").option("recursiveFileLookup", "true")
    found = lenient.format("binaryFile").schema(_LISTING).load(folder)
    modified = F.unix_millis("modificationTime").alias("modified")
    rows = found.select(F.col("_metadata.file_path").alias("path"), modified, "length").collect()
    return [File(r.modified, r.path, r.length, source, folder=folder) for r in rows]


def is_hidden(name: str) -> bool:
    """Whether a file or a folder of a name is passed over."""
    return name.startswith(("_", "."))


def found_file(path: str, source: str, root: str) -> File | None:
    """A file of this machine as it is now; None where it is gone, or a link. It has a fault where no reader of Spark could open it.

    Args:
        path: its path.
        source: its source.
        root: the source's folder.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        return None
    return File(found.st_mtime_ns // 1_000_000, f"file:{_encoded(path)}", found.st_size, source, _name_fault(path), root)


def _name_fault(path: str) -> str | None:
    """Why a file of this machine cannot be opened by its name; None where it can. Java keeps names as Unicode, and finds no other ones."""
    if not _NOT_UTF8.search(path):
        return None
    thing = "file" if _NOT_UTF8.search(path.rpartition("/")[2]) else "folder that it is in"
    return f"its name is not UTF-8, and Spark cannot open it; rename the {thing}"


def _encoded(path: str) -> str:
    """A path as Java's URIs have it: what is no ASCII stands as it is. Bytes may be written as `os` has them, or as `decoded_name` has."""
    if _PLAIN_ALONE(path):
        return path
    encoded = "".join(
        c if c.isalnum() or c in _PLAIN or (ord(c) > 127 and c.isprintable()) else quote(c, errors="surrogateescape") for c in path
    )
    return encoded.replace("%00", "%")
