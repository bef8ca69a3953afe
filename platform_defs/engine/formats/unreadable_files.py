"""Unreadable files are isolated: those with damaged content are set aside, those that cannot be read now are left for later."""

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
from platform_defs.engine.formats.read_errors import MISSING, ReadError, read_error
from platform_defs.engine.formats.reader import read
from platform_defs.engine.formats.text import lines

GONE = MISSING
GONE_LENGTH = -1
"""No file's: one that comes back as it was is another than the ledger names."""
WAITS_S = (1.0, 5.0)
"""How long a micro-batch waits before each further try to read a source's files, in seconds."""


@dataclass
class Patience:
    """How often, and after what time, the reads of one source in one micro-batch are tried again.

    Args:
        waits: the time before each further try, in seconds; all reads of the micro-batch share them.
        sleep: waits.
        used: how many of the waits are over.
    """

    waits: Sequence[float] = WAITS_S
    sleep: Callable[[float], None] = time.sleep
    used: int = field(default=0, init=False)

    def wait(self) -> bool:
        """Wait for the next try; False where there is none left."""
        if self.used == len(self.waits):
            return False
        self.sleep(self.waits[self.used])
        self.used += 1
        return True


@dataclass(frozen=True)
class Unread:
    """A file that cannot be read now, through no fault of its content.

    Args:
        file: the file.
        reason: what stood in the way.
    """

    file: File
    reason: str


@dataclass(frozen=True)
class Sifted:
    """Files after each was read to its end.

    Args:
        files: those whose fate is known: readable ones, and damaged or missing ones with their fault.
        unread: those that cannot be read now.
    """

    files: list[File] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)

    def __add__(self, other: "Sifted") -> "Sifted":
        return Sifted(self.files + other.files, self.unread + other.unread)


def set_aside(spark: SparkSession, contract: SourceContract, files: Sequence[File], patience: Patience) -> Sifted:
    """Read each file to its end, and tell apart those that cannot be: damaged, missing, or out of reach for now."""

    def unparsed(some: Sequence[File]) -> DataFrame:
        plain = [f for f in some if f.suffix != ".parquet" and f.fault is None]
        rest = [f for f in some if f not in plain]
        frames = [lines(spark, plain, plain).select(PATH)] if plain else []
        return reduce(DataFrame.unionByName, frames + ([read(spark, contract, rest).select(PATH)] if rest else []))

    sifted = _sifted(unparsed, files, patience)
    found = sifted.unread or [f.fault for f in sifted.files] != [f.fault for f in files]
    return sifted if found else _sifted(lambda some: read(spark, contract, some), files, patience)


def _sifted(rows: Callable[[Sequence[File]], DataFrame], files: Sequence[File], patience: Patience) -> Sifted:
    """Read all files, and where that fails each half of them, until the ones to blame are found."""
    error = _tried(rows, files)
    while error is not None and error.kind == "transient" and patience.wait():
        error = _tried(rows, files)
    if error is None:
        return Sifted(list(files))
    if len(files) > 1:
        half = len(files) // 2
        return _sifted(rows, files[:half], patience) + _sifted(rows, files[half:], patience)
    [file] = files
    if error.kind == "transient":
        return Sifted(unread=[Unread(file, error.reason)])
    return Sifted([replace(file, fault=error.reason, length=GONE_LENGTH if error.kind == "missing" else file.length)])


def _tried(rows: Callable[[Sequence[File]], DataFrame], files: Sequence[File]) -> ReadError | None:
    """Read files to their end; what went wrong, or None."""
    try:
        rows(files).write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError) as error:
        return read_error(error)
    return None
