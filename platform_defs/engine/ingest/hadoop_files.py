"""Finds new input files behind a URI that only Hadoop's file systems, and so only Spark, can list, such as `abfss://` or `hdfs://`."""

from collections.abc import Iterator
from typing import Any, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from platform_defs.engine.formats.files import File, hadoop_file, is_hidden
from platform_defs.engine.ingest.new_files import ListingError, StoreFileFinder
from platform_defs.engine.lake.errors import store_reason

_LISTING = "path string, modificationTime timestamp, length bigint, content binary"
_NO_SESSION = "only Spark can list it; run the stream, or schedule the job `ingest`"


class HadoopFileFinder(StoreFileFinder):
    """Finds new files in one source's folder behind a URI, by Spark's listing."""

    needs_spark = True

    def _pages(self, spark: SparkSession | None) -> Iterator[list[File]]:
        if spark is None:
            raise ListingError(_NO_SESSION)
        yield [file for file in self._listed(spark) if not any(map(is_hidden, _names_below(file)))]

    def _listed(self, spark: SparkSession) -> list[File]:
        try:
            return list_files(spark, self._folder, self._source)
        except (PySparkException, Py4JJavaError) as error:
            if cast(Any, spark)._jsc.sc().isStopped():  # otherwise a stream would go on without a session, and blame the store
                raise
            raise ListingError(store_reason(error)) from error


def _names_below(file: File) -> list[str]:
    """The names of a file and of its folders, below its source's folder."""
    path, is_below = file.keys[0], len(file.keys) > 1
    return path.removeprefix("./").split("/") if is_below else [path.rpartition("/")[2]]


def list_files(spark: SparkSession, folder: str, source: str) -> list[File]:
    """All files in a folder behind a URI, except empty ones, which Spark does not list; none if the folder does not exist."""
    files, path = hadoop_file(spark, folder)
    if not files.exists(path):
        return []
    lenient = spark.read.option("ignoreMissingFiles", "true").option("recursiveFileLookup", "true")
    listing = lenient.format("binaryFile").schema(_LISTING).load(folder)
    modified = F.unix_millis("modificationTime").alias("modified")
    rows = listing.select(F.col("_metadata.file_path").alias("path"), modified, "length").collect()
    return [File(r.modified, r.path, r.length, source, folder=folder) for r in rows]
