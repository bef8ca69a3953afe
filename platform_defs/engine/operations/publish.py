"""Publishing: an upserted table's changelog written to files as keyed upserts with tombstones, step by step."""

from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset
from operators.changelog import CHANGED_AT, keyed_upserts
from platform_defs.engine.formats.files import hadoop_file
from platform_defs.engine.inputs.changelog_reader import STEP, steps_of, upserted
from platform_defs.engine.inputs.progress import ProgressError, progress, step_id, table_identity
from platform_defs.engine.inputs.reader import Reading
from platform_defs.engine.lake.tables import Lake
from platform_defs.faults import point
from platform_defs.paths import PathError, canonical_of_tables, outside
from platform_defs.safe_text import without_credentials

_MARK, _STEP_ID, _TABLE_ID = "_published", "_step", "_table"
"""Files of a folder: the last step that it holds; that step and its id; and the Delta id of the changelog whose steps they are."""
_PLACE = "publish"


class PublishError(ProgressError):
    """A folder cannot take an asset's changes."""

    @classmethod
    def other_table(cls, asset: str, folder: str, expected: str, found: str) -> "PublishError":
        """The folder holds steps of a changelog with another id."""
        return cls(
            f"{folder} holds the changes of a table with the id {expected}, and the changelog of {asset} has the id {found}: it was made "
            "anew, or is another table. Steps of both in one folder would mean nothing; publish it into a new folder"
        )

    @classmethod
    def other_step(cls, asset: str, folder: str, step: int) -> "PublishError":
        """The changelog lost a step that the folder holds, and made it again of other rows."""
        return cls(
            f"{folder} holds step {step} of {asset}, and its changelog has lost that step since and made another under the same number. "
            "Steps of both in one folder would mean nothing; publish it into a new folder"
        )

    @classmethod
    def bad_folder(cls, folder: str, legal: str) -> "PublishError":
        """The folder is no path, or one of the lake's."""
        return cls(f"`folder` is {without_credentials(folder)!r}; legal: {legal}")


def publish(reading: Reading, asset: DerivedAsset, folder: str) -> int:
    """Write the steps that a folder does not hold yet; returns up to which step it holds all.

    Each step is a folder `step=N` of JSON lines with `key` and `value`, see `keyed_upserts`. A run that was killed writes its steps
    again, in place of what it left; so the folder holds each step once. One process at a time publishes into a folder. The folder
    remembers the table by its id.

    Args:
        reading: reads the lake.
        asset: the asset.
        folder: a path or a URI that Spark can write to, outside the lake.

    Raises:
        OperatorError: the asset has no changelog.
        ProgressError: the folder holds more steps than there are, or steps of another table.
        LakeBusy: another process publishes into the folder.
    """
    _ = upserted(asset)
    target = _target(reading.lake, folder)
    with target.writer(_PLACE):
        return _publish(reading, asset, target.root)


def _target(lake: Lake, folder: str) -> Lake:
    """The folder as a place that one writer may hold."""
    try:
        return Lake(outside(canonical_of_tables(folder), lake.root), lake.lease_s)
    except PathError as error:
        raise PublishError.bad_folder(folder, error.legal) from None


def _publish(reading: Reading, asset: DerivedAsset, folder: str) -> int:
    key, upto = upserted(asset).key, progress(reading.lake, asset).step
    done = _published(reading.spark, folder)
    _require_same_table(reading, asset, folder)
    _require_same_step(reading, asset, folder, done)
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
    _write(reading.spark, folder, _STEP_ID, f"{upto} {step_id(reading.lake, asset, upto) or ''}")
    _write(reading.spark, folder, _MARK, str(upto))
    point("publish.after_mark")
    return upto


def _require_same_table(reading: Reading, asset: DerivedAsset, folder: str) -> None:
    """Pass if the folder holds steps of this asset's changelog or of none; one without an id is of a version that wrote none."""
    found = table_identity(reading.lake, asset)
    if found is None:  # nothing has been made yet, and the folder's own mark decides
        return
    expected = _read(reading.spark, folder, _TABLE_ID)
    if expected and expected != found:
        raise PublishError.other_table(asset.name, folder, expected, found)
    if not expected:
        _write(reading.spark, folder, _TABLE_ID, found)


def _require_same_step(reading: Reading, asset: DerivedAsset, folder: str, done: int) -> None:
    """Pass if the changelog still has the last step that the folder holds, as far as its log tells."""
    step, _, identity = _read(reading.spark, folder, _STEP_ID).partition(" ")
    present = step_id(reading.lake, asset, done) if identity and step == str(done) else None
    if present is not None and present != identity:
        raise PublishError.other_step(asset.name, folder, done)


def _published(spark: SparkSession, folder: str) -> int:
    """The step that a folder's mark names; 0 where there is none, or one that was not written whole."""
    text = _read(spark, folder, _MARK)
    return int(text) if text.isdecimal() else 0


def _read(spark: SparkSession, folder: str, name: str) -> str:
    """What a file of the folder holds; empty where there is none."""
    files, path = hadoop_file(spark, f"{folder.rstrip('/')}/{name}")
    if not files.exists(path):
        return ""
    stream = files.open(path)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def _write(spark: SparkSession, folder: str, name: str, text: str) -> None:
    files, path = hadoop_file(spark, f"{folder.rstrip('/')}/{name}")
    stream = files.create(path, True)
    try:
        stream.write(text.encode())
    finally:
        stream.close()
