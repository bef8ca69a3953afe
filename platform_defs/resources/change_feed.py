"""A Delta table's change data feed as input files: each version that changed rows is one file of a source.

What lands is let in as any file is, exactly once, so that a leaderboard can follow a table that others write: rows inserted,
updated and deleted.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from operators.changelog import CHANGE, COMMIT_VERSION, COMMITTED_AT, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

KINDS = {"insert": INSERT, "update_preimage": UPDATE_BEFORE, "update_postimage": UPDATE_AFTER, "delete": DELETE}
_NAMES = {"_commit_version": COMMIT_VERSION, "_commit_timestamp": COMMITTED_AT}
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.uint64(): pa.int64()}
"""What is put in place of types that deltalake reads into and that few others know."""
_FILE = re.compile(r"version-(\d{20})\.parquet")


class ChangeFeedError(RuntimeError):
    """A table's changes cannot be read."""


@dataclass(frozen=True)
class Landed:
    """A version of a table whose changes were landed.

    Args:
        version: the version.
        rows: how many changed rows it told of.
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
        first: the version to begin with; it tells of no row before.

    Raises:
        ChangeFeedError: the table does not tell what changed, or has a column of one of these names.
    """
    try:
        delta = DeltaTable(table)
        done = [int(found[1]) for path in folder.glob("version-*.parquet") if (found := _FILE.fullmatch(path.name))]
        told = [_land(delta, version, folder) for version in range(max([first, *[v + 1 for v in done]]), delta.version() + 1)]
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise ChangeFeedError(
            f"the changes of {table} cannot be read: {error}. It needs delta.enableChangeDataFeed from the first version read on, and the "
            "files of these versions, which VACUUM removes; begin with a later one, or load the table as it is"
        ) from error
    return [landed for landed in told if landed.rows]


def _land(delta: DeltaTable, version: int, folder: Path) -> Landed:
    rows = pa.table(delta.load_cdf(starting_version=version, ending_version=version))
    if rows.num_rows:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"version-{version:020d}.parquet"
        hidden = path.with_name(f".{path.name}.tmp")
        pq.write_table(_named(rows), hidden)
        hidden.replace(path)
    return Landed(version, rows.num_rows)


def _named(rows: pa.Table) -> pa.Table:
    """The rows by our names, those that went first."""
    taken = {CHANGE, *_NAMES.values()} & {*rows.column_names}
    if taken:
        raise ChangeFeedError(f"the table has a column {sorted(taken)[0]!r}, which is what its changes are told in; rename it")
    kinds = [KINDS[kind] for kind in rows["_change_type"].to_pylist()]
    named = rows.drop_columns(["_change_type"]).rename_columns([_NAMES.get(c, c) for c in rows.column_names if c != "_change_type"])
    plain = named.cast(pa.schema([f.with_type(_PLAIN.get(f.type, f.type)) for f in named.schema]))
    told = plain.append_column(CHANGE, pa.array(kinds, pa.string()))
    return told.take(pa.array(sorted(range(len(kinds)), key=lambda n: kinds[n] in (INSERT, UPDATE_AFTER)), pa.int64()))
