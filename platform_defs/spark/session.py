"""The Spark session of a process, configured with Delta, the pinned JARs and the master."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from operators.errors import TidemarkError
from platform_defs.connections import HADOOP, connections
from platform_defs.connections.s3 import store_of
from platform_defs.engine.lake.arrow_rows import java_class
from platform_defs.engine.lake.compaction import SMALL_BYTES
from platform_defs.paths import is_local
from platform_defs.settings import Settings
from platform_defs.setup.jars import S3, jar_paths
from platform_defs.setup.java import JavaNotFound, find_java
from platform_defs.setup.log_store import log_store_jar
from platform_defs.spark.class_archive import archive_option
from platform_defs.spark.java_calls import improve_calls, keep_columns
from platform_defs.spark.served import attach_session

_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark allocates at least one block for each broadcast, by default 4 MB, and most broadcasts take a few KB
    "spark.broadcast.blockSize": "256k",
}
FIXED_OPTIONS = {
    "spark.sql.ansi.enabled": "true",
    # Spark 4.1 plans no shuffle after a union of inputs that are partitioned by the same key, but computes the union with more partitions
    # if the query reuses a shuffle of these inputs: a GROUP BY of the union then returns a group several times
    "spark.sql.unionOutputPartitioning": "false",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
}
"""The configuration on which results depend. It is set for each session, so that a cluster's defaults have no effect."""
_LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""Linux's setting of large pages. They save 5 to 9 % of the CPU time of a cycle; Java prints a warning where they are not allowed."""
_LATE_COMPILATION = "".join(
    f" -XX:Tier4{name}Threshold={value}"
    for name, value in {"Invocation": 50_000, "MinInvocation": 10_000, "Compile": 150_000, "BackEdge": 400_000}.items()
)
"""Java compiles a method with all optimizations only after ten times as many calls as by default. Most code of a small step runs too
rarely for that compilation to pay, and by default it takes a third of the CPU time of a cycle. The loops of a large step reach these counts
at once."""
_ONE_LOGGER_CONTEXT = " -Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.BasicContextSelector"
"""Log4j has one configuration for all classes. Otherwise it walks the stack for the caller's class loader each time that Spark makes an
object which can log, such as a node of a plan: 1.5 % of the CPU time of a cycle."""
_LATE_COLLECTION = " -XX:MetaspaceSize=256m"
"""By default, Java collects all garbage each time that classes take more memory than before: at 21, 35, 58 MB, and so on. Spark's classes
take 200 MB."""
_AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{name}={limit}"
    for name, limit in {"bytes.maxLength": 64 << 20, "string.maxLength": 64 << 20, "collectionItems.maxLength": 16 << 20}.items()
)
"""The longest values of an Avro record. Avro allocates the length that a record names before it reads the value: a damaged record of seven
bytes can name 2 GB, which would end the JVM at each try."""
_BEFORE_START = ("spark.master", "spark.driver.memory", "spark.jars")
"""The options that have no effect once the driver's JVM has started, in addition to the options of the JVM itself."""
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_EXECUTOR_JAVA_OPTIONS = "spark.executor.defaultJavaOptions"  # Spark adds the user's `extraJavaOptions` to them
LOGGING = Path(__file__).with_name("log4j2.properties")
QUOTING = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""PySpark's loggers of exception texts, which may quote rows. They are not needed, since the caller gets the exception itself."""


_WITH_COL = ("org.apache.spark.sql.functions", "functions")
"""The names by which PySpark finds the class with the function `col`."""


class ClusterError(TidemarkError, ValueError):
    """The workers of a cluster cannot use the folders of the settings."""

    @classmethod
    def local_folders(cls, settings: Settings, variables: list[str]) -> "ClusterError":
        """Folders on this machine, which the workers cannot be assumed to see."""
        return cls(
            f"TIDEMARK_SPARK_MASTER is {settings.spark_master!r}, and {' and '.join(variables)} on this machine, which Spark's workers may "
            "not see: their files would be missing. Legal: s3a:// URIs; or, for a disk that is mounted at the same path on every worker, "
            "TIDEMARK_SHARED_FOLDERS=true"
        )


def spark_config(settings: Settings) -> dict[str, str]:
    """The configuration of a session with Delta that starts without a network.

    Raises:
        JarError: a pinned JAR is missing.
        ConnectionsError: the connections are not legal.
        ClusterError: the master is a cluster, and the lake or the input files are on this machine only.
    """
    connected = connections(settings)
    connected.check_options(FIXED_OPTIONS)
    store = store_of(settings, connected.s3)
    of_store = [str(log_store_jar())] if store else []
    jars = [*jar_paths(*connected.jar_sets, *([S3] if store else [])), *of_store, *connected.jars]
    local = settings.spark_master.startswith("local")
    if not local and not settings.shared_folders:
        _check_folders(settings)
    local_config = _LOCAL if local else {}
    jvm = f" -XX:+UseParallelGC{_LATE_COLLECTION}{_large_pages()}{_LATE_COMPILATION}" if local else ""
    config = (
        local_config
        | FIXED_OPTIONS
        | {
            "spark.app.name": "tidemark",
            "spark.master": settings.spark_master,
            "spark.driver.memory": settings.driver_memory,
            "spark.jars": ",".join(jars),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.sources.parallelPartitionDiscovery.threshold": "256",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",  # also for VACUUM's listing, by default 10,000
            "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
            # by default, partitions of a shuffle are merged up to 1 MB: 200,000 rows of two numbers become one task, and a core is idle
            "spark.sql.adaptive.coalescePartitions.minPartitionSize": "64k",
            "spark.sql.codegen.cache.maxEntries": "4000",
            # otherwise Spark takes a stack trace of the JVM for each column expression; only messages of errors show it
            "spark.sql.dataFrameQueryContext.enabled": "false",
            "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "128m",
            "spark.databricks.delta.snapshotPartitions": "2",
            # a version of any age can be read while its files exist: the retention of a file begins when a commit removes it
            "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
            "spark.databricks.delta.delta.log.cacheSize": "256",  # tables; each takes about 1 MB of the heap, and 10,000 are the default
            "spark.databricks.delta.optimize.minFileSize": str(SMALL_BYTES),
            "spark.databricks.delta.optimize.maxFileSize": str(4 * SMALL_BYTES),
            "spark.ui.enabled": str(settings.spark_ui).lower(),
            # each query's plan as text is for the UI; the short form takes half the time, a tenth of a small step
            "spark.sql.ui.explainMode": "formatted" if settings.spark_ui else "simple",
            "spark.ui.showConsoleProgress": "false",
            # otherwise Hadoop writes a checksum file beside each commit to a local table, and runs `readlink` and `chmod` for it too
            "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
            "spark.python.sql.dataFrameDebugging.enabled": "false",  # a stack walk and two calls into the JVM for each column expression
            JAVA_OPTIONS: f"-Dlog4j2.configurationFile={LOGGING.as_uri()}{_ONE_LOGGER_CONTEXT}{jvm}",
        }
        | (store.spark_options if store else {})
        | connected.spark_options
    )
    return config | {name: f"{_AVRO_LIMITS} {config.get(name, '')}".rstrip() for name in (JAVA_OPTIONS, _EXECUTOR_JAVA_OPTIONS)}


def before_start(settings: Settings) -> dict[str, str]:
    """The options that `spark-submit` needs, because it starts the driver's JVM before Tidemark runs; a session adds the others.

    Raises:
        JarError, ConnectionsError, ClusterError: see `spark_config`.
    """
    config = spark_config(settings)
    options = config[JAVA_OPTIONS]
    with suppress(JavaNotFound):  # the options can be printed without Java; then they name no archive
        options = _with_archive(options, find_java())
    return {name: config[name] for name in _BEFORE_START} | {JAVA_OPTIONS: options}


def _with_archive(options: str, java: str) -> str:
    """Options of the driver's JVM, with the class archive unless they name one."""
    return options if ".jsa" in options else f"{options}{archive_option(java)}"


def _check_folders(settings: Settings) -> None:
    folders = {"TIDEMARK_LAKE": settings.lake, "TIDEMARK_LANDING": settings.landing_root}
    if local := [f"{name} is {folder!r}" for name, folder in folders.items() if is_local(folder)]:
        raise ClusterError.local_folders(settings, local)


def _large_pages() -> str:
    allowed = _LARGE_PAGES.is_file() and "[never]" not in _LARGE_PAGES.read_text()
    return " -XX:+UseTransparentHugePages" if allowed else ""


def own_session(config: Mapping[str, str]) -> SparkSession:
    """The session of this process, in a JVM of its own, which uses the class archive unless the configuration names one."""
    os.environ["JAVA_HOME"] = java = find_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    at_start = {name: value for name, value in config.items() if not name.startswith(HADOOP)}
    created = SparkSession.builder.config(map={**at_start, JAVA_OPTIONS: _with_archive(config[JAVA_OPTIONS], java)}).getOrCreate()
    hadoop = cast(Any, created.sparkContext)._jsc.hadoopConfiguration()
    for name in config.keys() - at_start.keys():
        hadoop.set(name.removeprefix(HADOOP), config[name])
    _forget_sources(created, hadoop)
    return created


def _forget_sources(spark: SparkSession, hadoop: Any) -> None:
    """Delete from Hadoop's configuration the names of the files that its 1,100 properties came from. Only its log messages show them.

    Spark sends a copy of the configuration with each scan of files. Hadoop compresses the source of each property on its own. That takes
    two thirds of the time of sending, and 3 to 8 % of the JVM's CPU time in small steps.
    """
    with suppress(Py4JError):  # another version of Hadoop may have no such field; scans then take longer
        of_hadoop = java_class(spark, "java.lang.Class").forName("org.apache.hadoop.conf.Configuration")
        sources = of_hadoop.getDeclaredField("updatingResource")
        sources.setAccessible(True)
        (sources.get(hadoop) or {}).clear()


def session(settings: Settings, **further_config: str) -> SparkSession:
    """The session of this process, which the first call creates: in the JVM that `tidemark serve` keeps, or else in its own JVM.

    Args:
        settings: the platform's settings.
        further_config: further Spark configuration, by its dotted names, for the first call.
    """
    for name in QUOTING:
        PySparkLogger.getLogger(name).disabled = True
    config = spark_config(settings) | further_config
    is_first = SparkContext._active_spark_context is None
    spark = (attach_session(Path(settings.session_file), config) if is_first else None) or own_session(config)
    improve_calls(SparkContext._gateway)
    for name in _WITH_COL:
        keep_columns(getattr(spark._jvm, name))
    return spark
