"""Writes a Delta table's change data feed to a landing folder: each version that changed rows becomes one file of a source.

The files are ingested like all others, exactly once. So an operator with the parameter `change`, such as a leaderboard, can read the
inserts, updates and deletes of a table that another system writes.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from filelock import FileLock, Timeout

from operators.changelog import CHANGE, COMMIT_VERSION, COMMITTED_AT, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from operators.errors import TidemarkError

KINDS = {"insert": INSERT, "update_preimage": UPDATE_BEFORE, "update_postimage": UPDATE_AFTER, "delete": DELETE}
_NAMES = {"_commit_version": COMMIT_VERSION, "_commit_timestamp": COMMITTED_AT}
_SUPPORTED_TYPES = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.uint64(): pa.int64()}
"""Replacements for Arrow types that deltalake returns and that many readers do not support."""
_FILE = re.compile(r"version-(\d{20})\.parquet")
_POSITION = "_table.json"
"""The file with the Delta `id` of the table whose changes a folder contains, and the newest landed version.

A table that is deleted and created again has another id. The version is still known after the landed files were removed.
"""
_LOCK = "_table.lock"
_NS_PER_MS = 1_000_000


class ChangeFeedError(TidemarkError, RuntimeError):
    """A table's changes cannot be landed."""

    @classmethod
    def unreadable(cls, table: str, error: Exception) -> "ChangeFeedError":
        """The table or its change data feed cannot be read."""
        return cls(
            f"the changes of {table} cannot be read: {error}. The table needs delta.enableChangeDataFeed from the first version read on, "
            "and the files of these versions, which VACUUM removes; start with a later version, or load the table itself"
        )

    @classmethod
    def unusable(cls, table: str, folder: Path, error: Exception) -> "ChangeFeedError":
        """The folder cannot be read or written to."""
        return cls(
            f"the changes of {table} cannot be written to {folder}: {error}. Legal: a folder that this process may read and write, on a "
            "disk with free space. Fix the folder and land the changes again: that continues after the newest landed version"
        )

    @classmethod
    def not_parquet(cls, table: str, folder: Path, error: Exception) -> "ChangeFeedError":
        """Parquet cannot store the changes."""
        return cls(
            f"the changes of {table} cannot be written as Parquet to {folder}: {error}. Change the column's type in the table, or start "
            "with a later version"
        )

    @classmethod
    def taken_name(cls, table: str, column: str) -> "ChangeFeedError":
        """A column of the table has the name of a column that the landed files add."""
        return cls(f"{table} has a column {column!r}, a name that the landed changes use (in any case); rename it")

    @classmethod
    def busy(cls, table: str, folder: Path) -> "ChangeFeedError":
        """Another process lands changes in the folder."""
        return cls(
            f"the changes of {table} are not landed, since another process lands changes in {folder}. Wait until it ends and run again: "
            "that lands the versions that are newer then"
        )

    @classmethod
    def other_table(cls, table: str, folder: Path, id_in_folder: str, id_of_table: str) -> "ChangeFeedError":
        """The folder contains versions of a table with another id."""
        return cls(
            f"{folder} contains changes of the table with the id {id_in_folder}, but {table} has the id {id_of_table}: the table was "
            "created again, or is another one. Land its changes into a new source; or delete the tables computed from the source, the "
            "source's folder and the source's event log, and start again"
        )

    @classmethod
    def behind(cls, table: str, folder: Path, landed: int, version: int) -> "ChangeFeedError":
        """A version has landed that is newer than the table's newest version."""
        return cls(
            f"{folder} contains version {landed} of {table}, whose newest version is {version}: the table was created again, or restored. "
            "Land its changes into a new source; or delete the tables computed from the source, the source's folder and the source's event "
            "log, and start again"
        )

    @classmethod
    def unreadable_id(cls, path: Path) -> "ChangeFeedError":
        """The file with the table's id and the newest landed version is damaged."""
        return cls(
            f"{path} does not contain the id of the table whose changes the folder has; legal: "
            '{"id": "<Delta\'s table id>", "version": <the newest landed version, a whole number>}'
        )


@dataclass(frozen=True)
class LandedVersion:
    """A version of a table whose changes were landed.

    Args:
        version: the version.
        rows: the number of changes, which are the rows of its file. An update counts as two: `-U` and `+U`.
    """

    version: int
    rows: int


def land_changes(table: str, folder: Path, *, first: int = 0, storage_options: dict[str, str] | None = None) -> list[LandedVersion]:
    """Land the changes of a table since the last call.

    Each version becomes one Parquet file, which is built in memory. It has the table's columns, `change` (`+I`, `-U`, `+U` or `-D`),
    `commit_version` (bigint) and `committed_at` (a timestamp without a time zone, UTC); removed rows precede added ones. The source's
    contract must have the column `change`, which an operator reads as the change kind. A second call lands only newer versions, even if
    the files of the first call were removed after their ingest.

    The modification times of the files increase with the versions, even if the clock steps back, because ingest orders files by
    modification time. Only one process at a time lands changes in a folder.

    Args:
        table: the table, a path or a URI.
        folder: the source's folder of input files, on this machine.
        first: the first version to land.
        storage_options: deltalake's options for the table's store.

    Returns:
        The landed versions; a version that changed no row is left out, and no file is written for it.

    Raises:
        ChangeFeedError: the table has no change data feed, has a column with one of these three names in any case, or is not the table
            whose changes the folder contains (it is another one, or was created again or restored); or the folder cannot be used, or
            another process uses it.
    """
    with _reading(table):
        DeltaTable(table, storage_options=storage_options)  # before the lock, so that no folder is created if there is no such table
    with _using(table, folder), _holding(table, folder):
        with _reading(table):
            delta = DeltaTable(table, storage_options=storage_options)
            table_id = str(delta.metadata().id)
        landed = _newest_landed(delta, table, table_id, folder)
        versions = [_land(delta, table, table_id, version, folder) for version in range(max(first, landed + 1), delta.version() + 1)]
    return [landed for landed in versions if landed.rows]


@contextmanager
def _holding(table: str, folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the operating system releases if the process dies."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / _LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ChangeFeedError.busy(table, folder) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _reading(table: str) -> Iterator[None]:
    """Raise `ChangeFeedError` for errors of the table."""
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise ChangeFeedError.unreadable(table, error) from error


@contextmanager
def _using(table: str, folder: Path) -> Iterator[None]:
    """Raise `ChangeFeedError` for errors of the folder."""
    try:
        yield
    except OSError as error:
        raise ChangeFeedError.unusable(table, folder, error) from error
    except pa.ArrowException as error:
        raise ChangeFeedError.not_parquet(table, folder, error) from error


def _newest_landed(delta: DeltaTable, table: str, table_id: str, folder: Path) -> int:
    """The newest landed version; -1 if there is none. Raises if a folder contains changes of another table.

    Older versions of Tidemark wrote no `_table.json`, or one without a version; then the version comes from the names of the landed files.
    """
    path, noted = folder / _POSITION, -1
    if path.exists():
        id_in_folder, noted = _position(path)
        if id_in_folder != table_id:
            raise ChangeFeedError.other_table(table, folder, id_in_folder, table_id)
    landed = [int(match[1]) for file in folder.glob("version-*.parquet") if (match := _FILE.fullmatch(file.name))]
    newest = max([noted, *landed])
    if newest > delta.version():
        raise ChangeFeedError.behind(table, folder, newest, delta.version())
    if newest > noted:
        _write_position(path, table_id, newest)
    return newest


def _position(path: Path) -> tuple[str, int]:
    try:
        position = json.loads(path.read_text("utf-8"))
        return str(position["id"]), int(position.get("version", -1))
    except (ValueError, KeyError, TypeError):
        raise ChangeFeedError.unreadable_id(path) from None


def _write_position(path: Path, table_id: str, version: int) -> None:
    """Write the id and the newest landed version atomically."""
    hidden = path.with_name(f".{path.name}.tmp")
    hidden.write_text(json.dumps({"id": table_id, "version": version}), "utf-8")
    hidden.replace(path)


def _land(delta: DeltaTable, table: str, table_id: str, version: int, folder: Path) -> LandedVersion:
    """Land a version, then record it as landed. After a kill between the two, the version's file shows that the version was landed."""
    with _reading(table):
        rows = pa.table(delta.load_cdf(starting_version=version, ending_version=version))
        changes = _with_own_names(table, rows)
    if rows.num_rows:
        path = folder / f"version-{version:020d}.parquet"
        hidden = path.with_name(f".{path.name}.tmp")
        pq.write_table(changes, hidden)
        _set_rising_time(hidden, folder)
        hidden.replace(path)
    _write_position(folder / _POSITION, table_id, version)
    return LandedVersion(version, rows.num_rows)


def _set_rising_time(hidden: Path, folder: Path) -> None:
    """Set a file's time at least 1 ms after the time of every file in the folder, so that a clock step cannot reorder versions."""
    newest = max((path.stat().st_mtime_ns for path in folder.glob("version-*.parquet")), default=0)
    time = max(hidden.stat().st_mtime_ns, (newest // _NS_PER_MS + 1) * _NS_PER_MS)
    os.utime(hidden, ns=(time, time))


def _with_own_names(table: str, rows: pa.Table) -> pa.Table:
    """The rows of a change feed with Tidemark's column names, removed rows first."""
    own_names = {CHANGE, *_NAMES.values()}
    taken = next((name for name in rows.column_names if name.lower() in own_names), None)
    if taken is not None:  # no reader that ignores case can read a file with two such names
        raise ChangeFeedError.taken_name(table, taken)
    kinds = [KINDS[kind] for kind in rows["_change_type"].to_pylist()]
    named = rows.drop_columns(["_change_type"]).rename_columns([_NAMES.get(c, c) for c in rows.column_names if c != "_change_type"])
    plain = named.cast(pa.schema([f.with_type(_SUPPORTED_TYPES.get(f.type, f.type)) for f in named.schema]))
    changes = plain.append_column(CHANGE, pa.array(kinds, pa.string()))
    return changes.take(pa.array(sorted(range(len(kinds)), key=lambda n: kinds[n] in (INSERT, UPDATE_AFTER)), pa.int64()))
