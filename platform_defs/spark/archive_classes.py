"""Writes the class archive if it does not exist; `make setup` calls this."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from platform_defs.safe_text import printable, without_credentials
from platform_defs.settings import HOME, settings
from platform_defs.setup.java import find_java
from platform_defs.spark.class_archive import NO_WARNINGS, class_archive
from platform_defs.spark.session import JAVA_OPTIONS, own_session, spark_config

_COMPILE_LITTLE = "-XX:TieredStopAtLevel=1"
_WAIT_S = 120


def archive_classes(folder: Path = HOME) -> Path | None:
    """Write the class archive of the present Java and PySpark, and delete archives of other versions.

    Args:
        folder: the folder of the file.

    Returns:
        The file; None if the JVM did not write one, or if the path has a space, which Spark's JVM options must not have.

    Raises:
        JavaNotFound: there is no Java.
        JarError: a pinned JAR is missing.
        TimeoutError: the JVM does not end; its archive may be incomplete, and is deleted.
    """
    file = class_archive(find_java(), folder)
    if file.is_file():
        return file
    if " " in str(file):
        return None
    config = spark_config(settings()) | {"spark.master": "local[2]", "spark.ui.enabled": "false"}
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=folder) as scratch:
        new_archive = Path(scratch, file.name)
        config[JAVA_OPTIONS] += f" {_COMPILE_LITTLE} -XX:ArchiveClassesAtExit={new_archive} {NO_WARNINGS}"
        spark = own_session(config)
        _load_classes(spark, f"{scratch}/table")
        _end(spark)
        if not new_archive.is_file():
            return None
        for old_archive in folder.glob("classes-*.jsa"):
            old_archive.unlink()
        return new_archive.replace(file)


def _load_classes(spark: SparkSession, table: str) -> None:
    """Run small queries like those of a pipeline, to load their classes: at its end the JVM archives the loaded classes."""
    rows = spark.range(100).select(
        F.col("id").cast("string").alias("key"),
        F.timestamp_seconds("id").alias("event_time"),
        F.from_json(F.lit('{"a": 1}'), "a long").alias("value"),
    )
    rows.write.format("delta").save(table)
    rows.write.format("delta").mode("append").save(table)
    rows_read = spark.read.format("delta").load(table)
    windows = rows_read.groupBy("key", F.window("event_time", "10 seconds")).agg(F.count("*").alias("n"), F.max("value.a").alias("a"))
    joined = rows_read.alias("l").join(windows.alias("r"), F.expr("l.key = r.key AND l.event_time >= r.window.start"), "full_outer")
    joined.select("l.key", F.expr("row_number() OVER (PARTITION BY r.n ORDER BY l.event_time)")).orderBy("key").toArrow()


def _end(spark: SparkSession) -> None:
    """End the JVM normally, because it writes the archive when it exits."""
    context: Any = spark.sparkContext
    process = context._gateway.proc
    process.stdin.close()
    try:
        process.wait(_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise TimeoutError(f"the JVM did not end within {_WAIT_S} s") from None


def main() -> int:
    """Write the archive and print its path. The platform works without it, so a failure is only printed, and the exit status is 0."""
    try:
        file = archive_classes()
    except Exception as error:
        sys.stdout.write(f"class archive: not written, sessions start without it: {printable(without_credentials(str(error)))}\n")
        return 0
    sys.stdout.write(
        f"class archive: {file}\n"
        if file
        else "class archive: none, as this Java writes none or the path has a space; sessions start without it\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
