"""Opens input files with Spark's readers.

If a file's path contains a colon, as ISO times do, Hadoop can neither build the path of the checksum file nor expand wildcards. A file
with a colon in its path is therefore read by its literal path, without a checksum.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, cast
from urllib.parse import unquote

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from platform_defs.engine.formats.files import File, without_wildcards
from platform_defs.engine.formats.strict import STRICT

_WITHOUT_CHECKSUMS = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
_WITHOUT_WILDCARDS = {"__globPaths__": "false"}


def has_colon(file: File) -> bool:
    """Whether a file's path contains a colon after the scheme."""
    return ":" in unquote(file.path).partition(":")[2]


def read_files(spark: SparkSession, files: Sequence[File], read: Callable[[DataFrameReader, list[str]], DataFrame]) -> DataFrame:
    """Read files with one reader, and files with a colon in their paths with others; returns the union of the rows.

    Args:
        spark: the session.
        files: the files, at least one.
        read: makes a frame from a reader and paths.
    """
    plain, literal = [f for f in files if not has_colon(f)], [unquote(f.path) for f in files if has_colon(f)]
    with_wildcards = [path for path in literal if without_wildcards(path) != path]
    without_wildcard = [path for path in literal if path not in with_wildcards]
    frames = [read(spark.read.options(**STRICT), [f.pattern for f in plain])] if plain else []
    frames += [read(spark.read.options(**STRICT, **_WITHOUT_CHECKSUMS), without_wildcard)] if without_wildcard else []
    # One by one: with its expansion of patterns off, Spark would read each of several paths with wildcards more than once.
    options = STRICT | _WITHOUT_CHECKSUMS | _WITHOUT_WILDCARDS
    frames += [read(spark.read.options(**options), [path]) for path in with_wildcards]
    return reduce(DataFrame.unionByName, frames)


def hadoop_path(spark: SparkSession, file: File) -> tuple[Any, Any]:
    """A file's Hadoop path, and the configuration to open it with."""
    jvm, conf = cast(Any, spark._jvm), cast(Any, spark._jsparkSession).sessionState().newHadoopConf()
    for name, value in _WITHOUT_CHECKSUMS.items() if has_colon(file) else ():
        conf.set(name, value)
    return jvm.org.apache.hadoop.fs.Path(unquote(file.path)), conf
