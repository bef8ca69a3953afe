"""Input files: how they are found, and what is known of them."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, cast
from urllib.parse import quote, unquote

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamReader

COMPRESSIONS = (".gz", ".zst", ".snappy", ".lz4")  # no .bz2: Spark reads a damaged one as a file without rows
UNREAD, RETRY = "unread", "retry"
_LISTING = "path string, modificationTime timestamp, length bigint, content binary"
_ANY_AGE = "36500d"  # by default Spark never lists a file that is 7 days older than the newest it saw
_PLAIN = frozenset("/:@&=+$,;_-!.~'()*")


@dataclass(frozen=True, order=True)
class File:
    """One input file, as it was when it was found.

    Args:
        modified: its modification time in epoch ms.
        path: its URI, encoded as Spark's `_metadata.file_path` has it; a local one is kept with the one slash that Spark gives it.
        length: its size in bytes.
        source: the source it belongs to.
        fault: why no row of it is read; None where its rows are.
        retries: how often an operator asked to read it again as it is.
    """

    modified: int
    path: str
    length: int
    source: str
    fault: str | None = field(default=None, compare=False)
    retries: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.path.replace("file:///", "file:/", 1))

    @property
    def offset(self) -> str:
        """What the ledger keeps of it."""
        retried = [str(self.retries)] if self.retries else []
        return "|".join([self.path, str(self.modified), str(self.length), *([UNREAD, *retried] if self.fault else [])])

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
class Known:
    """What the ledger tells of a source's files.

    Args:
        offsets: one `path|modified|length` a file that was read; `|unread` follows where no row of it was, and `|unread|n` where that
            was so at the nth retry. `|retry|n` asks for one: it voids every `unread` with a lower number.
    """

    offsets: Iterable[str]

    @cached_property
    def _states(self) -> dict[str, dict[tuple[int, int], bool]]:
        """By decoded path, each state it was found in, and whether its rows were read."""
        states: dict[str, dict[tuple[int, int], bool]] = {}
        for offset in self.offsets:
            path, modified, length, *mark = offset.split("|")
            state, known = (int(modified), int(length)), states.setdefault(_decoded(path), {})
            if not mark:
                known[state] = True
            elif mark[0] == UNREAD and (int(mark[1]) if len(mark) > 1 else 0) >= self._retries.get((_decoded(path), *state), 0):
                known.setdefault(state, False)
        return states

    @cached_property
    def _retries(self) -> dict[tuple[str, int, int], int]:
        """How often each state of a file was asked to be read again."""
        asked: dict[tuple[str, int, int], int] = {}
        for path, modified, length, _, number in (o.split("|") for o in self.offsets if f"|{RETRY}|" in o):
            state = _decoded(path), int(modified), int(length)
            asked[state] = max(int(number), asked.get(state, 0))
        return asked

    def retry_of(self, file: File) -> str:
        """What the ledger keeps of an operator's wish to read a file again as it is."""
        number = self._retries.get((_decoded(file.path), file.modified, file.length), 0) + 1
        return "|".join([file.path, str(file.modified), str(file.length), RETRY, str(number)])

    def holds(self, file: File) -> bool:
        """Whether the ledger tells of the file as it is now."""
        return (file.modified, file.length) in self._states.get(_decoded(file.path), {})

    def holds_path(self, file: File) -> bool:
        """Whether the ledger tells of the file as it is now, or as it was."""
        return _decoded(file.path) in self._states

    def judged(self, file: File) -> File:
        """The file, with a fault where none of its rows may be read: it holds none, or they were read before it changed."""
        retried = replace(file, retries=self._retries.get((_decoded(file.path), file.modified, file.length), 0))
        if any(self._states.get(_decoded(file.path), {}).values()):
            return replace(retried, fault="the file changed after it was read; what is new in it can be let in under another name")
        return replace(retried, fault="the file is empty") if file.length == 0 else retried


def without_wildcards(path: str) -> str:
    """A path with everything escaped that Spark's readers would take as a wildcard."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


def _decoded(path: str) -> str:
    return unquote(path).removeprefix("file:").replace("///", "/", 1)


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


def listing(spark: SparkSession, folder: str, source: str, max_files: int) -> DataFrame:
    """A stream of the files that appear in a folder; their content is not read. One that is gone again is left out."""
    return _described(spark.readStream.option("maxFilesPerTrigger", max_files).option("maxFileAge", _ANY_AGE), folder, source)


def _described(reader: DataFrameReader | DataStreamReader, folder: str, source: str) -> DataFrame:
    lenient = reader.option("ignoreMissingFiles", "true").option("recursiveFileLookup", "true")
    files = lenient.format("binaryFile").schema(_LISTING).load(one_path(folder))
    modified = F.unix_millis("modificationTime").alias("modified")
    return files.select(F.lit(source).alias("source"), F.col("_metadata.file_path").alias("path"), modified, "length")


def survey(spark: SparkSession, folder: str, source: str) -> list[File]:
    """All files that a folder holds now. Of a remote folder, files of no bytes are left out: Spark does not list them."""
    if not is_local(folder):
        return [File(r.modified, r.path, r.length, r.source) for r in _described(spark.read, folder, source).collect()]
    return list(landed(folder, source))


def landed(folder: str, source: str) -> Iterator[File]:
    """The files below a local folder that a stream would take: no hidden ones. Needs no Spark."""
    for below, folders, names in os.walk(one_path(folder)):
        folders[:] = [f for f in folders if not f.startswith(("_", "."))]
        for path in (Path(below, n) for n in names if not n.startswith(("_", "."))):
            try:
                told = path.stat()
            except FileNotFoundError:  # gone between the listing and the look at it
                continue
            yield File(told.st_mtime_ns // 1_000_000, f"file:{_encoded(path.as_posix())}", told.st_size, source)


def _encoded(path: str) -> str:
    """A path as Java's URIs have it: what is no ASCII stands as it is."""
    return "".join(
        c if c.isalnum() or c in _PLAIN or (ord(c) > 127 and c.isprintable()) else quote(c, errors="surrogateescape") for c in path
    )
