"""Commits by compare-and-set: files are written first, and deltalake commits them only on the version that the writer read.

Spark's own append commits on the newest version, so a writer that was paused can write rows twice. Here, one commit on a given version
adds the files of `data_files` to the table. Of two commits on the same version, one fails.

`commit_options` gives the options of every commit by deltalake (`tests/engine/lake/test_commit_options.py`).
"""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypedDict

from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyspark.sql.types import StructType

from platform_defs.engine.formats.values import nullable
from platform_defs.engine.lake.data_skipping import store_of
from platform_defs.engine.lake.errors import LakeError

ROWS = "rows_of"
"""In a commit's metadata: for each key, the number of rows that the commit with this value wrote."""
CARRY_ID = "carry_id"
"""In place of `id` in the metadata of a commit that repeats the row counts of others: it has no rows itself."""
APPLICATION = "tidemark"
"""The `txnAppId` under which a table's log has the number of its newest numbered commit; Delta skips a commit without a higher number."""
RETENTION = "tidemark-retention"
"""The `txnAppId` under which a table's log has the number of the newest removal by retention; every checkpoint has it too."""


class CommitOptions(TypedDict):
    """The options of a commit by deltalake, as the keyword arguments of any of its methods that commits."""

    commit_properties: CommitProperties
    post_commithook_properties: PostCommitHookProperties


def commit_options(metadata: Mapping[str, Any], number: int | None = None, application: str = APPLICATION) -> CommitOptions:
    """The options of every commit by deltalake.

    With them, deltalake commits on exactly the version that was read, and does not try again on a later one. Only its compaction and its
    VACUUM, which change no rows, still try again. deltalake does no maintenance after the commit, because it would list the whole log for
    it; see `after_commits`.

    Args:
        metadata: what the commit records.
        number: the step's number; see `commit_files`.
        application: the `txnAppId` of the number.
    """
    numbered = None if number is None else [Transaction(application, number)]
    return {
        "commit_properties": CommitProperties({"userMetadata": json.dumps(metadata)}, max_commit_retries=0, app_transactions=numbered),
        "post_commithook_properties": PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
    }


def change_rows(delta: DeltaTable, options: CommitOptions, change: Callable[..., object]) -> None:
    """Change rows by deltalake in one commit with the options. If no row changes, deltalake makes no commit, so an empty one is made."""
    before = delta.version()
    change(**options)
    if delta.version() == before:
        write_actions(delta, [], "append", delta.schema(), options)


def write_actions(
    delta: DeltaTable, actions: Sequence[AddAction], mode: Literal["append", "overwrite"], schema: Schema, options: CommitOptions
) -> None:
    """Commit files on exactly the version at which the table was opened. The opened table stays at that version, so others may read it."""
    delta.create_write_transaction(list(actions), mode, schema, **options)


def commit_infos(delta: DeltaTable, upto: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The version and the `commitInfo` of each commit, the newest first, as far as the log goes back.

    It begins with the version `upto`, by default the version at which the table was opened.

    `DeltaTable.history` lists the newest log: after another writer's commit it counts version numbers from the wrong version.

    Raises:
        DeltaError: a commit lists fewer rows than it recorded, because its file was cut at the end.
    """
    files = store_of(delta)
    for version in range(delta.version() if upto is None else upto, -1, -1):
        try:
            with files.open_input_stream(f"_delta_log/{version:020d}.json") as stream:
                lines = stream.read().splitlines()
        except FileNotFoundError:  # deleted by log retention after a checkpoint
            return
        info = next((json.loads(line)["commitInfo"] for line in lines if line.startswith(b'{"commitInfo"')), {})
        _require_all_rows(version, info, lines)
        yield version, info


def _require_all_rows(version: int, info: Mapping[str, Any], lines: Sequence[bytes]) -> None:
    """Raise `DeltaError` if an append of Tidemark lists fewer rows than its metadata: a file that loses whole lines is still valid JSON."""
    metadata = metadata_of(info)
    if "id" not in metadata or ROWS not in metadata:
        return
    added = (json.loads(line)["add"] for line in lines if line.startswith(b'{"add"'))
    listed, recorded = sum(json.loads(file["stats"])["numRecords"] for file in added), max(metadata[ROWS].values(), default=0)
    if listed < recorded:
        raise DeltaError(f"commit {version} lists files with {listed} rows, but recorded {recorded}")


def create(
    path: str,
    schema: StructType,
    actions: Sequence[AddAction],
    metadata: Mapping[str, Any],
    configuration: Mapping[str, str],
    storage_options: dict[str, str] | None = None,
    number: int | None = None,
) -> DeltaTable | None:
    """Create a table with its first files. Returns None; or, if another writer created the table in the meantime, that table.

    Args:
        path: the table's path.
        schema: its columns.
        actions: the files.
        metadata: what the commit records; `id` in it names the commit.
        configuration: the table's properties.
        storage_options: deltalake's options for its store.
        number: the step's number; see `commit_files`.

    Raises:
        DeltaError, OSError, LakeError: see `commit_once`.
    """
    try:
        create_table_with_add_actions(
            path,
            _nullable(schema),
            list(actions),
            mode="error",
            configuration=dict(configuration),
            storage_options=storage_options,
            **commit_options(metadata, number),
        )
    except (DeltaError, OSError):
        try:
            if DeltaTable.is_deltatable(path, storage_options):
                table = DeltaTable(path, storage_options=storage_options)
                return None if is_committed(table, -1, metadata["id"]) else table
        except (DeltaError, OSError) as error:
            raise LakeError.not_known(path.removeprefix("file://").rstrip("/"), error) from error
        raise
    return None


def reopen(delta: DeltaTable) -> DeltaTable:
    """The table at its newest version, in a new object."""
    return DeltaTable(delta.table_uri, storage_options=delta._storage_options)  # pyright: ignore[reportPrivateUsage]


def widen(delta: DeltaTable, schema: StructType) -> DeltaTable:
    """Add the columns that a table lacks; older rows have null in them.

    Raises:
        DeltaError, OSError, LakeError: see `commit_once`.
    """
    if not _missing_columns(delta, schema):
        return delta
    own = reopen(delta)
    while missing := _missing_columns(own, schema):
        commit_id = uuid.uuid4().hex
        own = commit_once(own, commit_id, partial(own.alter.add_columns, missing, **commit_options({"id": commit_id}))) or own
    return own


def _missing_columns(delta: DeltaTable, schema: StructType) -> list[Field]:
    names = {field.name.lower() for field in delta.schema().fields}
    return [Field(f.name, f.type, nullable=True) for f in _nullable(schema).fields if f.name.lower() not in names]


def set_properties(delta: DeltaTable, properties: Mapping[str, str]) -> DeltaTable | None:
    """Give a table properties that it lacks, in a commit of its own; only on the opened version; see `commit_once`."""
    if properties.items() <= delta.metadata().configuration.items():
        return None
    commit_id = uuid.uuid4().hex
    options = commit_options({"id": commit_id})
    return commit_once(delta, commit_id, lambda: delta.alter.set_table_properties(dict(properties), **options))


def drop_differing_columns(delta: DeltaTable, schema: StructType) -> DeltaTable:
    """Delete all rows of a table, and drop the columns whose type differs from the schema; only on the opened version.

    If no column's type differs, nothing is deleted.

    Raises:
        CommitFailedError: another writer has committed since the table was opened.
        DeltaError, OSError, LakeError: see `commit_once`.
    """
    declared_types = {f.name.lower(): f.type for f in _nullable(schema).fields}
    kept_fields = [f for f in delta.schema().fields if declared_types.get(f.name.lower(), f.type) == f.type]
    if len(kept_fields) == len(delta.schema().fields):
        return delta
    commit_id = uuid.uuid4().hex
    options, columns = commit_options({"id": commit_id}), Schema(kept_fields)
    if commit_once(delta, commit_id, lambda: write_actions(delta, [], "overwrite", columns, options), in_place=False):
        raise CommitFailedError("another writer has committed")
    return reopen(delta)


def commit_once(delta: DeltaTable, commit_id: str, commit: Callable[[], object], *, in_place: bool = True) -> DeltaTable | None:
    """Make one commit on exactly the version at which the table was opened.

    Args:
        delta: the table.
        commit_id: the `id` in the commit's metadata.
        commit: makes the commit by deltalake, without retries.
        in_place: whether the commit changes `delta` to its version; `write_actions` does not.

    Returns:
        None if the commit succeeded, even if the store's answer was lost; else the table after another writer's commit.

    Raises:
        DeltaError, OSError: nothing was committed, because the store failed or deltalake refused the commit.
        LakeError: it is not known whether the commit succeeded.
    """
    before = delta.version()
    try:
        commit()
    except (DeltaError, OSError):
        try:
            newest = reopen(delta)
            if is_committed(newest, before, commit_id):
                return delta.load_as_version(before + 1) if in_place else None
        except (DeltaError, OSError) as error:
            raise LakeError.not_known(delta.table_uri.removeprefix("file://").rstrip("/"), error) from error
        if newest.version() == before:
            raise
        return newest
    return None


def commit_files(
    delta: DeltaTable,
    actions: Sequence[AddAction],
    metadata: Mapping[str, Any],
    number: int | None,
    *,
    replacing: StructType | None = None,
) -> DeltaTable | None:
    """Commit files on exactly the version at which the table was opened; see `commit_once`.

    Args:
        delta: the table.
        actions: the files.
        metadata: what the commit records; `id` in it names the commit.
        number: the step's number, so that a paused writer's Spark commit of the same or an older step is refused too.
        replacing: the table's new columns, if the files take the place of all of its files; None to add them.
    """
    mode: Literal["append", "overwrite"] = "append" if replacing is None else "overwrite"
    schema = delta.schema() if replacing is None else _nullable(replacing)
    options = commit_options(metadata, number)
    return commit_once(delta, metadata["id"], lambda: write_actions(delta, actions, mode, schema, options), in_place=False)


def is_committed(delta: DeltaTable, after: int, commit_id: str) -> bool:
    """Whether a commit after the version `after` has the id `commit_id` in its metadata, as `id` or `CARRY_ID`."""
    for version, info in commit_infos(delta):
        if version <= after:
            return False
        metadata = metadata_of(info)
        if commit_id in (metadata.get("id"), metadata.get(CARRY_ID)):
            return True
    return False


def write_checkpoint(delta: DeltaTable, *, delete_old_commits: bool = True) -> None:
    """Write a checkpoint of a table's log; by default also delete the commits before it that the log's retention does not keep."""
    delta.create_checkpoint()
    if delete_old_commits and delta.metadata().configuration.get("delta.enableExpiredLogCleanup", "true").lower() != "false":
        delta.cleanup_metadata()


def metadata_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a commit; empty if it is not a JSON object, as the metadata of Tidemark's commits is."""
    try:
        metadata = json.loads(info.get("userMetadata") or "{}")
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _nullable(schema: StructType) -> Schema:
    """The schema for a Delta table: all columns nullable, without the column metadata of the frame."""
    return Schema.from_json(nullable(schema).json())


@contextmanager
def reporting_overtaken(table: str, unit: str) -> Iterator[None]:
    """Raise `LakeError.overtaken` if a commit fails because another writer has committed."""
    try:
        yield
    except CommitFailedError as error:
        raise LakeError.overtaken(table, unit) from error
