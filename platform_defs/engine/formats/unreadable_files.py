"""Isolates unreadable files: files with damaged content are quarantined, files that cannot be read now are retried later."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from assets.contracts import SourceContract
from platform_defs.engine.formats.files import File
from platform_defs.engine.formats.raw_rows import PATH
from platform_defs.engine.formats.read_errors import ReadError, read_error
from platform_defs.engine.formats.reader import is_text_file, read
from platform_defs.engine.formats.schema_registry import RegistryError
from platform_defs.engine.formats.text import lines

MISSING_LENGTH = -1
"""The length that the ledger records for a missing file. No file has this length, so the file is new if it appears again."""
WAITS_S = (1.0, 5.0)
"""How long a micro-batch waits before each retry to read a source's files, in seconds."""


@dataclass
class ReadRetries:
    """The retries for the reads of one source in one micro-batch.

    Args:
        waits: the time before each retry, in seconds. All reads of the source in the micro-batch share these retries.
        sleep: waits for some seconds.
        used: how many retries were used.
    """

    waits: Sequence[float] = WAITS_S
    sleep: Callable[[float], None] = time.sleep
    used: int = field(default=0, init=False)

    def wait(self) -> bool:
        """Wait for the next retry; returns False if none is left."""
        if self.used == len(self.waits):
            return False
        self.sleep(self.waits[self.used])
        self.used += 1
        return True


@dataclass(frozen=True)
class Unread:
    """A file that cannot be read now, for a reason other than its content.

    Args:
        file: the file.
        reason: why it cannot be read.
        is_replaced: whether the file is a range of a topic that was deleted, and perhaps created again.
    """

    file: File
    reason: str
    is_replaced: bool = False


@dataclass(frozen=True)
class CheckedFiles:
    """The files of a micro-batch after a check that each can be read to its end.

    Args:
        files: readable files, and damaged or missing ones with their fault.
        unread: files that cannot be read now.
    """

    files: list[File] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)

    def __add__(self, further: "CheckedFiles") -> "CheckedFiles":
        return CheckedFiles(self.files + further.files, self.unread + further.unread)


def isolate_unreadable(spark: SparkSession, contract: SourceContract, files: Sequence[File], retries: ReadRetries) -> CheckedFiles:
    """Read each file to its end, and isolate the files that cannot be read because they are damaged, missing or unreachable now.

    Lines of text files are first read without parsing them. If every file can be read in this way, the files are read again and parsed.
    """

    def unparsed(files_to_check: Sequence[File]) -> DataFrame:
        text_files = [f for f in files_to_check if is_text_file(f)]
        columnar = [f for f in files_to_check if not is_text_file(f)]
        frames = [lines(spark, text_files, text_files).select(PATH)] if text_files else []
        return reduce(DataFrame.unionByName, frames + ([read(spark, contract, columnar).select(PATH)] if columnar else []))

    checked = _check_files(unparsed, files, retries)
    has_unreadable = checked.unread or [f.fault for f in checked.files] != [f.fault for f in files]
    return checked if has_unreadable else _check_files(lambda part: read(spark, contract, part), files, retries)


def _check_files(rows: Callable[[Sequence[File]], DataFrame], files: Sequence[File], retries: ReadRetries) -> CheckedFiles:
    """Read all files; if that fails, read each half of them, recursively, until the unreadable files are found."""
    error = _error_of_read(rows, files)
    while error is not None and error.kind == "transient" and retries.wait():
        error = _error_of_read(rows, files)
    if error is None:
        return CheckedFiles(list(files))
    if len(files) > 1:
        half = len(files) // 2
        return _check_files(rows, files[:half], retries) + _check_files(rows, files[half:], retries)
    [file] = files
    if error.kind == "transient" or file.is_range:  # a range is never quarantined as a whole: its other records are good
        return CheckedFiles(unread=[Unread(file, error.reason)])
    return CheckedFiles([replace(file, fault=error.reason, length=MISSING_LENGTH if error.kind == "missing" else file.length)])


def _error_of_read(rows: Callable[[Sequence[File]], DataFrame], files: Sequence[File]) -> ReadError | None:
    """Read files to their end; returns the error, or None if all could be read."""
    try:
        rows(files).write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError) as error:
        return read_error(error)
    except RegistryError as error:
        return ReadError("transient", str(error))
    return None
