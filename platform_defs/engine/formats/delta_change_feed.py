"""Writes a Delta table's change data feed to a landing folder: each version that changed rows becomes one file of a source.

The files are ingested like all others, exactly once. So a leaderboard can read the inserts, updates and deletes of a table that another
system writes.
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from operators.changelog import CHANGE, COMMIT_VERSION, COMMITTED_AT, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from operators.errors import TidemarkError

KINDS = {"insert": INSERT, "update_preimage": UPDATE_BEFORE, "update_postimage": UPDATE_AFTER, "delete": DELETE}
_NAMES = {"_commit_version": COMMIT_VERSION, "_commit_timestamp": COMMITTED_AT}
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.uint64(): pa.int64()}
"""Replacements for Arrow types that deltalake returns and that many readers do not support."""
_FILE = re.compile(r"version-(\d{20})\.parquet")
_TABLE_ID = "_table.json"
"""The file with the Delta `id` of the table whose changes a folder contains. A table that is deleted and created again has another id."""
_NS_PER_MS = 1_000_000


class ChangeFeedError(TidemarkError, RuntimeError):
    """A table's changes cannot be read."""

    @classmethod
    def other_table(cls, table: str, folder: Path, id_in_folder: str, id_of_table: str) -> "ChangeFeedError":
        """The folder contains versions of a table with another id."""
        return cls(
            f"{folder} contains changes of the table with the id {id_in_folder}, but {table} has the id {id_of_table}: it was created "
            "again, or is another table. Land its changes into a new source; or delete the tables computed from the source, the source's "
            "folder and its log, and start again"
        )

    @classmethod
    def behind(cls, table: str, folder: Path, landed: int, version: int) -> "ChangeFeedError":
        """A version has landed that is newer than the table's newest version."""
        return cls(
            f"{folder} contains version {landed} of {table}, whose newest version is {version}: it was created again, or restored. Land "
            "its changes into a new source; or delete the tables computed from the source, the source's folder and its log, and start again"
        )

    @classmethod
    def unreadable_id(cls, path: Path) -> "ChangeFeedError":
        """The file with the table's id is damaged."""
        return cls(f'{path} does not contain the id of the table whose changes the folder has; legal: {{"id": "<Delta\'s table id>"}}')


@dataclass(frozen=True)
class Landed:
    """A version of a table whose changes were landed.

    Args:
        version: the version.
        rows: the number of changed rows.
    """

    version: int
    rows: int


def land_changes(table: str, folder: Path, *, first: int = 0, storage_options: dict[str, str] | None = None) -> list[Landed]:
    """Land the changes of a table since the last call.

    Each version becomes one Parquet file, which is built in memory. It has the table's columns, `change` (`+I`, `-U`, `+U` or `-D`),
    `commit_version` (bigint) and `committed_at` (timestamp); removed rows precede added ones. The source's contract must have the column
    `change`, which an operator reads as the change kind. A second call lands only newer versions.

    The modification times of the files increase with the versions, even if the clock steps back: ingest orders files by them.

    Args:
        table: the table, a path or a URI.
        folder: the source's folder of input files, on this machine.
        first: the first version to land.
        storage_options: deltalake's options for the table's store.

    Returns:
        The landed versions; a version that changed no row is left out, and no file is written for it.

    Raises:
        ChangeFeedError: the table has no change data feed, has a column with one of these names, or is not the table whose changes the
            folder contains (it is another one, or was created again).
    """
    try:
        delta = DeltaTable(table, storage_options=storage_options)
        landed = {int(match[1]): path for path in folder.glob("version-*.parquet") if (match := _FILE.fullmatch(path.name))}
        _require_same_table(delta, table, folder, max(landed, default=None))
        versions = [_land(delta, version, folder) for version in range(max([first, *[v + 1 for v in landed]]), delta.version() + 1)]
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise ChangeFeedError(
            f"the changes of {table} cannot be read: {error}. The table needs delta.enableChangeDataFeed from the first version read on, "
            "and the files of these versions, which VACUUM removes; start with a later version, or load the table itself"
        ) from error
    return [landed for landed in versions if landed.rows]


def _require_same_table(delta: DeltaTable, table: str, folder: Path, newest: int | None) -> None:
    """Raise if a folder contains changes of another table. A folder that an older version of Tidemark wrote has no id to compare."""
    path, table_id = folder / _TABLE_ID, str(delta.metadata().id)
    if path.exists():
        id_in_folder = _table_id(path)
        if id_in_folder != table_id:
            raise ChangeFeedError.other_table(table, folder, id_in_folder, table_id)
    if newest is not None and newest > delta.version():
        raise ChangeFeedError.behind(table, folder, newest, delta.version())
    if newest is not None and not path.exists():
        _write_id(path, table_id)


def _table_id(path: Path) -> str:
    try:
        return str(json.loads(path.read_text("utf-8"))["id"])
    except (ValueError, KeyError, TypeError):
        raise ChangeFeedError.unreadable_id(path) from None


def _write_id(path: Path, table_id: str) -> None:
    """Write the id atomically."""
    hidden = path.with_name(f".{path.name}.tmp")
    hidden.write_text(json.dumps({"id": table_id}), "utf-8")
    hidden.replace(path)


def _land(delta: DeltaTable, version: int, folder: Path) -> Landed:
    rows = pa.table(delta.load_cdf(starting_version=version, ending_version=version))
    if rows.num_rows:
        changes = _with_own_names(rows)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / _TABLE_ID).exists():
            _write_id(folder / _TABLE_ID, str(delta.metadata().id))
        path = folder / f"version-{version:020d}.parquet"
        hidden = path.with_name(f".{path.name}.tmp")
        pq.write_table(changes, hidden)
        _set_rising_time(hidden, folder)
        hidden.replace(path)
    return Landed(version, rows.num_rows)


def _set_rising_time(hidden: Path, folder: Path) -> None:
    """Set a file's time at least 1 ms after the time of every file in the folder, so that a clock step cannot reorder versions."""
    newest = max((path.stat().st_mtime_ns for path in folder.glob("version-*.parquet")), default=0)
    time = max(hidden.stat().st_mtime_ns, (newest // _NS_PER_MS + 1) * _NS_PER_MS)
    os.utime(hidden, ns=(time, time))


def _with_own_names(rows: pa.Table) -> pa.Table:
    """The rows of a change feed with Tidemark's column names, removed rows first."""
    taken = {CHANGE, *_NAMES.values()} & {*rows.column_names}
    if taken:
        raise ChangeFeedError(f"the table has a column {sorted(taken)[0]!r}, a name that the landed changes use; rename it")
    kinds = [KINDS[kind] for kind in rows["_change_type"].to_pylist()]
    named = rows.drop_columns(["_change_type"]).rename_columns([_NAMES.get(c, c) for c in rows.column_names if c != "_change_type"])
    plain = named.cast(pa.schema([f.with_type(_PLAIN.get(f.type, f.type)) for f in named.schema]))
    changes = plain.append_column(CHANGE, pa.array(kinds, pa.string()))
    return changes.take(pa.array(sorted(range(len(kinds)), key=lambda n: kinds[n] in (INSERT, UPDATE_AFTER)), pa.int64()))
