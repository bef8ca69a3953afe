"""Publishing: write an upserted table's changelog to files as keyed upserts with tombstones, one folder for each step."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from assets.contracts import DerivedAsset
from operators.changelog import CHANGED_AT, STEP, keyed_upserts
from platform_defs.engine.faults import point
from platform_defs.engine.formats.files import hadoop_file
from platform_defs.engine.inputs.changelog_reader import require_upserts, steps_of
from platform_defs.engine.inputs.progress import progress, step_id, table_identity
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.errors import LakeBusy, LakeError, store_reason
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.operations.export import writable, write_fault
from platform_defs.paths import PathError, canonical_of_tables, require_outside
from platform_defs.safe_text import without_credentials

_MARK, _STEP_ID, _TABLE_ID = "_published", "_step", "_table"
"""The files in a folder of published steps that record: the last step; that step and its id; and the Delta id of the changelog."""
_LOCK = "publish"


class PublishError(ProgressError):
    """An asset's changes cannot be written to a folder."""

    @classmethod
    def other_table(cls, asset: str, folder: str, id_in_folder: str, id_of_changelog: str) -> "PublishError":
        """The folder holds steps of a changelog with another id."""
        return cls(
            f"{folder} has the changes of a table with the id {id_in_folder}, and the changelog of {asset} has the id "
            f"{id_of_changelog}: it was created again, or is another table. One folder cannot have steps of both; "
            "publish it into a new folder"
        )

    @classmethod
    def other_step(cls, asset: str, folder: str, step: int) -> "PublishError":
        """The changelog lost a step that the folder contains; a later step with the same number has other rows."""
        return cls(
            f"{folder} has step {step} of {asset}, but the changelog has lost that step since, and has another one with the same number. "
            "One folder cannot have steps of both; publish it into a new folder"
        )

    @classmethod
    def bad_folder(cls, folder: str, legal: str) -> "PublishError":
        """The folder is not a valid path, or overlaps the lake."""
        return cls(f"`folder` is {without_credentials(folder)!r}; legal: {legal}")


def publish(workspace: Workspace, asset: DerivedAsset, folder: str) -> int:
    """Write the steps that are not in a folder yet; returns the last step in it.

    Each step with changes is a folder `step=N` of JSON lines with `key` and `value`, see `keyed_upserts`. After a kill, the next run
    overwrites the steps of the killed run, so the folder contains each step once. Only one process at a time publishes into a folder. A
    file in the folder records the changelog's id.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the asset.
        folder: a path or a URI that Spark can write to, outside the lake.

    Raises:
        OperatorError: the asset has no changelog.
        ProgressError: the folder has later steps than the changelog.
        PublishError: the folder is no valid path, overlaps the lake, cannot be written to, or has steps of another changelog, or a step
            that the changelog has lost.
        LakeBusy: another process publishes into the folder.
    """
    _ = require_upserts(asset)
    target = _target(workspace.lake, folder)
    with _writing_to(target, folder):
        if (fault := write_fault(workspace.spark, target.root)) is not None:
            raise PublishError.bad_folder(folder, fault)
        return _publish(workspace, asset, target.root)


def _target(lake: Lake, folder: str) -> Lake:
    """The folder as a lake, so that it has one writer at a time."""
    try:
        return Lake(require_outside(canonical_of_tables(folder), lake.root), lake.lease_s, storage_options=lake.storage_options)
    except PathError as error:
        raise PublishError.bad_folder(folder, error.legal) from None


@contextmanager
def _writing_to(target: Lake, folder: str) -> Iterator[None]:
    """Hold the lock of the folder. The lock treats the folder as a lake; here its errors are raised as errors of the parameter `folder`."""
    try:
        with target.writer(_LOCK):
            yield
    except LakeError as error:
        if isinstance(error, LakeBusy) or not re.search(f"the lake {re.escape(target.root)}[ ,]", str(error)):
            raise
        cause = error.__cause__
        reason = store_reason(cause) if isinstance(cause, Exception) else "it is read-only, or its store ignores conditional puts"
        raise PublishError.bad_folder(folder, writable(reason)) from error


def _publish(workspace: Workspace, asset: DerivedAsset, folder: str) -> int:
    key, upto = require_upserts(asset).key, progress(workspace.lake, asset).step
    published_upto = _last_published_step(workspace.spark, folder)
    _require_same_table(workspace, asset, folder)
    _require_same_step(workspace, asset, folder, published_upto)
    if upto == published_upto:
        return published_upto
    if upto < published_upto:
        raise ProgressError.recreated(asset.name, published_upto, upto)
    upserts = keyed_upserts(steps_of(workspace, asset, published_upto, upto).drop(CHANGED_AT), key=key, order=STEP)
    writer = (
        upserts.repartition(STEP).write.mode("overwrite").option("partitionOverwriteMode", "dynamic").option("ignoreNullFields", "false")
    )
    point("publish.before_write")
    writer.partitionBy(STEP).json(folder)
    point("publish.after_write")
    _write(workspace.spark, folder, _STEP_ID, f"{upto} {step_id(workspace.lake, asset, upto) or ''}")
    _write(workspace.spark, folder, _MARK, str(upto))
    point("publish.after_mark")
    return upto


def _require_same_table(workspace: Workspace, asset: DerivedAsset, folder: str) -> None:
    """Raise if the folder has steps of another changelog. A folder without an id is accepted: it is new, or an earlier version wrote it."""
    table_id = table_identity(workspace.lake, asset)
    if table_id is None:  # there is no changelog yet; `_publish` then compares step numbers
        return
    id_in_folder = _read(workspace.spark, folder, _TABLE_ID)
    if id_in_folder and id_in_folder != table_id:
        raise PublishError.other_table(asset.name, folder, id_in_folder, table_id)
    if not id_in_folder:
        _write(workspace.spark, folder, _TABLE_ID, table_id)


def _require_same_step(workspace: Workspace, asset: DerivedAsset, folder: str, published_upto: int) -> None:
    """Raise if the folder's last step is not the changelog's step of that number. A step that the Delta log no longer has is accepted."""
    step, _, identity = _read(workspace.spark, folder, _STEP_ID).partition(" ")
    present = step_id(workspace.lake, asset, published_upto) if identity and step == str(published_upto) else None
    if present is not None and present != identity:
        raise PublishError.other_step(asset.name, folder, published_upto)


def _last_published_step(spark: SparkSession, folder: str) -> int:
    """The last published step; 0 if the folder records none.

    On a disk, a file is empty while it is written. If a kill left `_published` empty, `_step`, which is written before it, has the step.
    """
    text = _read(spark, folder, _MARK) or _read(spark, folder, _STEP_ID).partition(" ")[0]
    return int(text) if text.isdecimal() else 0


def _read(spark: SparkSession, folder: str, name: str) -> str:
    """The text of a file in the folder; empty if the file does not exist."""
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
