"""Publishing: an upserted table's changelog written to files as keyed upserts with tombstones, step by step."""

from typing import Any

from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset
from operators.changelog import CHANGED_AT, keyed_upserts
from platform_defs.engine.following import STEP, steps_of, upserted
from platform_defs.engine.progress import ProgressError, progress
from platform_defs.engine.reading import Reading
from platform_defs.faults import point
from platform_defs.resources.files import hadoop_file

_MARK = "_published"


def publish(reading: Reading, asset: DerivedAsset, folder: str) -> int:
    """Write the steps that a folder does not hold yet; returns up to which step it holds all.

    Each step is a folder `step=N` of JSON lines with `key` and `value`, see `keyed_upserts`. A run that was killed writes its steps
    again, in place of what it left; so the folder holds each step once.

    Args:
        reading: reads the lake.
        asset: the asset.
        folder: a path or a URI that Spark can write to.

    Raises:
        OperatorError: the asset has no changelog.
        ProgressError: the folder holds more steps than there are.
    """
    key, upto, done = upserted(asset).key, progress(reading.lake, asset).step, _published(reading.spark, folder)
    if upto == done:
        return done
    if upto < done:
        raise ProgressError.made_anew(asset.name, done, upto)
    upserts = keyed_upserts(steps_of(reading, asset, done, upto).drop(CHANGED_AT), key=key, order=STEP)
    writer = (
        upserts.repartition(STEP).write.mode("overwrite").option("partitionOverwriteMode", "dynamic").option("ignoreNullFields", "false")
    )
    point("publish.before_write")
    writer.partitionBy(STEP).json(folder)
    point("publish.after_write")
    _mark(reading.spark, folder, upto)
    point("publish.after_mark")
    return upto


def _published(spark: SparkSession, folder: str) -> int:
    """The step that a folder's mark tells; 0 where there is none, or one that was not written whole."""
    files, path = _mark_of(spark, folder)
    if not files.exists(path):
        return 0
    stream = files.open(path)
    try:
        told = bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()
    return int(told) if told.isdecimal() else 0


def _mark(spark: SparkSession, folder: str, step: int) -> None:
    files, path = _mark_of(spark, folder)
    stream = files.create(path, True)
    try:
        stream.write(str(step).encode())
    finally:
        stream.close()


def _mark_of(spark: SparkSession, folder: str) -> tuple[Any, Any]:
    return hadoop_file(spark, f"{folder.rstrip('/')}/{_MARK}")
