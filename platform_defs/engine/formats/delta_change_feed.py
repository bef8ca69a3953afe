"""A Delta table's change data feed as input files: each version that changed rows is one file of a source.

What lands is ingested as any file is, exactly once, so that a leaderboard can follow a table that others write: rows inserted,
updated and deleted.
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
"""What is put in place of types that deltalake reads into and that few others know."""
_FILE = re.compile(r"version-(\d{20})\.parquet")
_TABLE_ID = "_table.json"
"""Names the table whose versions a folder holds: `id`, Delta's, which a table made anew does not share. Ingest skips names with `_`."""
_NS_PER_MS = 1_000_000


class ChangeFeedError(TidemarkError, RuntimeError):
    """A table's changes cannot be read."""

    @classmethod
    def other_table(cls, table: str, folder: Path, expected: str, found: str) -> "ChangeFeedError":
        """The folder holds versions of a table with another id."""
        return cls(
            f"{folder} holds changes of the table with the id {expected}, and {table} has the id {found}: it was made anew, or is another "
            "table. Its versions would be taken for those that have landed. Land it into a new source; or delete the table that is "
            "made of the source, and the source's folder and log, and begin again"
        )

    @classmethod
    def behind(cls, table: str, folder: Path, landed: int, version: int) -> "ChangeFeedError":
        """The table has fewer versions than have landed."""
        return cls(
            f"{folder} holds version {landed} of {table}, whose newest is {version}: it was made anew, or restored to an older version. "
            "Land it into a new source; or delete the table that is made of the source, and the source's folder and log, and begin again"
        )

    @classmethod
    def unreadable_id(cls, path: Path) -> "ChangeFeedError":
        """The file that names the table is damaged."""
        return cls(f'{path} does not name the table whose changes lie beside it; legal: {{"id": "<Delta\'s table id>"}}')


@dataclass(frozen=True)
class Landed:
    """A version of a table whose changes were landed.

    Args:
        version: the version.
        rows: how many changed rows it reported.
    """

    version: int
    rows: int


def land_changes(table: str, folder: Path, *, first: int = 0) -> list[Landed]:
    """Land what changed in a table since it was looked at last.

    Each version is a Parquet file, made in memory, which holds the table's columns, `change` (`+I`, `-U`, `+U` or `-D`),
    `commit_version` (bigint) and `committed_at` (timestamp); rows that went come before those that came. A source that is to take
    them names `change` in its schema, and an operator reads it there. Doing it again lands what is new.

    Args:
        table: the table, a path or a URI.
        folder: the source's folder of input files, on this machine.
        first: the version to begin with; it names no row before.

    The modification times of the files rise with the versions, whatever the clock does: ingest orders files by them.

    Raises:
        ChangeFeedError: the table does not tell what changed, has a column of one of these names, or is not the table whose
            changes the folder holds: another one, or made anew.
    """
    try:
        delta = DeltaTable(table)
        landed = {int(found[1]): path for path in folder.glob("version-*.parquet") if (found := _FILE.fullmatch(path.name))}
        _require_same_table(delta, table, folder, max(landed, default=None))
        versions = [_land(delta, version, folder) for version in range(max([first, *[v + 1 for v in landed]]), delta.version() + 1)]
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise ChangeFeedError(
            f"the changes of {table} cannot be read: {error}. It needs delta.enableChangeDataFeed from the first version read on, and the "
            "files of these versions, which VACUUM removes; begin with a later one, or load the table as it is"
        ) from error
    return [landed for landed in versions if landed.rows]


def _require_same_table(delta: DeltaTable, table: str, folder: Path, newest: int | None) -> None:
    """Pass if a folder holds changes of this table or of none; a folder without an id is of a version that wrote none."""
    path, found = folder / _TABLE_ID, str(delta.metadata().id)
    if path.exists():
        expected = _table_id(path)
        if expected != found:
            raise ChangeFeedError.other_table(table, folder, expected, found)
    if newest is not None and newest > delta.version():
        raise ChangeFeedError.behind(table, folder, newest, delta.version())
    if newest is not None and not path.exists():
        _write_id(path, found)


def _table_id(path: Path) -> str:
    try:
        return str(json.loads(path.read_text("utf-8"))["id"])
    except (ValueError, KeyError, TypeError):
        raise ChangeFeedError.unreadable_id(path) from None


def _write_id(path: Path, table_id: str) -> None:
    """A reader sees the file whole or not at all."""
    hidden = path.with_name(f".{path.name}.tmp")
    hidden.write_text(json.dumps({"id": table_id}), "utf-8")
    hidden.replace(path)


def _land(delta: DeltaTable, version: int, folder: Path) -> Landed:
    rows = pa.table(delta.load_cdf(starting_version=version, ending_version=version))
    if rows.num_rows:
        changes = _named(rows)
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
    """Make a file at least 1 ms younger than every version in the folder: a clock that stepped back would reverse two versions."""
    newest = max((path.stat().st_mtime_ns for path in folder.glob("version-*.parquet")), default=0)
    time = max(hidden.stat().st_mtime_ns, (newest // _NS_PER_MS + 1) * _NS_PER_MS)
    os.utime(hidden, ns=(time, time))


def _named(rows: pa.Table) -> pa.Table:
    """The rows by our names, those that went first."""
    taken = {CHANGE, *_NAMES.values()} & {*rows.column_names}
    if taken:
        raise ChangeFeedError(f"the table has a column {sorted(taken)[0]!r}, which is what its changes are told in; rename it")
    kinds = [KINDS[kind] for kind in rows["_change_type"].to_pylist()]
    named = rows.drop_columns(["_change_type"]).rename_columns([_NAMES.get(c, c) for c in rows.column_names if c != "_change_type"])
    plain = named.cast(pa.schema([f.with_type(_PLAIN.get(f.type, f.type)) for f in named.schema]))
    changes = plain.append_column(CHANGE, pa.array(kinds, pa.string()))
    return changes.take(pa.array(sorted(range(len(kinds)), key=lambda n: kinds[n] in (INSERT, UPDATE_AFTER)), pa.int64()))
