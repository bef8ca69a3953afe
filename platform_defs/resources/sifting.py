"""What becomes of files that turn out to be unreadable while they are read."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from assets.contracts import SourceContract
from platform_defs.resources.files import File
from platform_defs.resources.rows import PATH
from platform_defs.resources.sources import read
from platform_defs.resources.text import lines

GONE = "the file was gone before it was read"
GONE_LENGTH = -1
"""No file's: one that comes back as it was is another than the ledger tells of."""


def set_aside(spark: SparkSession, contract: SourceContract, files: Sequence[File]) -> list[File]:
    """The files, those that cannot be read to their end with a fault: torn, gone, or closed to us."""

    def unparsed(some: Sequence[File]) -> DataFrame:
        plain = [f for f in some if f.suffix != ".parquet" and f.fault is None]
        rest = [f for f in some if f not in plain]
        frames = [lines(spark, plain, plain).select(PATH)] if plain else []
        return reduce(DataFrame.unionByName, frames + ([read(spark, contract, rest).select(PATH)] if rest else []))

    sifted = _sifted(unparsed, files)
    found = [f.fault for f in sifted] != [f.fault for f in files]
    return sifted if found else _sifted(lambda some: read(spark, contract, some), files)


def _sifted(rows: Callable[[Sequence[File]], DataFrame], files: Sequence[File]) -> list[File]:
    """Read all files, and where that fails each half of them, until the ones to blame are found."""
    try:
        rows(files).write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError) as error:
        if len(files) == 1:
            fault = _told(error)
            return [replace(files[0], fault=fault, length=GONE_LENGTH if fault == GONE else files[0].length)]
        half = len(files) // 2
        return _sifted(rows, files[:half]) + _sifted(rows, files[half:])
    return list(files)


def _told(error: Exception) -> str:
    """Why a file cannot be read: the innermost cause."""
    text = str(error)
    if re.search(r"FileNotFoundException: .*\(Permission denied\)", text):  # it is there: as gone it would come back for ever
        return "the file cannot be read: permission denied"
    if "FileNotFoundException" in text or "PATH_NOT_FOUND" in text:
        return GONE
    if "is not a Parquet file" in text:
        return "the file cannot be read as Parquet"
    causes = re.findall(r"^(?:Caused by)?: (?:[\w$]+\.)*(.+)", text, re.MULTILINE) or [text.splitlines()[0]]
    return f"the file cannot be read: {causes[-1].strip()}"
