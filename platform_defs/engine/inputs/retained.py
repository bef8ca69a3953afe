"""What retention has removed from event logs, and from which day on a table can still be computed.

A removal deletes the rows of one log with `event_time < before` in the batches up to `upto`. Its number is in the Delta commit that deletes
the rows. Before that commit, a JSON file is written with the totals of all rows that this removal and earlier ones delete. The file of a
removal that was never committed has no effect, and is replaced. So a reader of a version of the log finds the totals of this version.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from deltalake.exceptions import DeltaError

from assets.contracts import DerivedAsset, SourceContract
from operators.timing import DAY_MS
from platform_defs.engine.inputs.progress import Progress, stored_progress, table_identity
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.commits import RETENTION
from platform_defs.engine.lake.data_files import filesystem, replace_file
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake

FOLDER = "_retained"
_KEPT_FILES = 8
"""The number of newest removals whose files are kept, for readers of earlier versions of the log."""


@dataclass(frozen=True)
class RetainedDay:
    """The rows of one side and day that a table has accounted for before retention removed them.

    Args:
        side: the input.
        day: the day, as text: YYYY-MM-DD.
        terms: the rows by term (`accepted`, `matched` and so on).
    """

    side: str
    day: str
    terms: Mapping[str, int]


@dataclass(frozen=True)
class RetainedTable:
    """The day totals of one table at a removal.

    Args:
        identity: identifies the table that was accounted for; the totals do not apply to a table that was rebuilt since.
        first: the first day that is still accounted for row by row, as its first millisecond (epoch ms).
        upto: the totals are of the rows of batches up to this one.
        days: the totals of all days before `first`.
    """

    identity: str
    first: int
    upto: int
    days: tuple[RetainedDay, ...]


@dataclass(frozen=True)
class RemovedRows:
    """What all removals have deleted from an event log.

    Args:
        number: how many removals there were.
        before: rows with earlier event times were removed, in epoch ms.
        upto: only rows of batches up to this one were removed.
        rows: the number of removed rows.
        batches: for each batch of which only a part was removed, the number of its removed rows.
        tables: the totals of the tables that read the source, by name.
    """

    number: int
    before: int
    upto: int
    rows: int = 0
    batches: Mapping[int, int] = field(default_factory=dict)
    tables: Mapping[str, RetainedTable] = field(default_factory=dict)

    def remaining_rows(self, seq: int, accepted: int, last_event_time: int | None) -> int:
        """The number of rows of a batch that the log still has, according to the ledger.

        Args:
            seq: the batch.
            accepted: the number of rows that the ledger records for it.
            last_event_time: the newest event time of these rows.
        """
        if seq > self.upto:
            return accepted
        return 0 if last_event_time is not None and last_event_time < self.before else accepted - self.batches.get(seq, 0)


@dataclass(frozen=True)
class KeptDays:
    """The days for which a table can still be computed, and accounted for row by row.

    Args:
        first: the first ms of the first of these days, in epoch ms.
        totals: the totals of the days before; None if the table never accounted for them.
        complete_from: see `Progress.complete_from`.
    """

    first: int
    totals: RetainedTable | None = None
    complete_from: int | None = None


def removed_rows_of(lake: Lake, contract: SourceContract) -> RemovedRows | None:
    """What was removed from a source's log, in the log's version that the lake or its snapshot has; None if nothing was removed.

    Raises:
        LakeError: the file with the totals of the removed rows is missing, damaged or unreadable; or the disk has a fault that may pass; or
            the lake is behind a URI, and its store refuses access or cannot be reached.
    """
    number = lake.transaction(contract.log, RETENTION)
    if number is None:
        return None
    try:
        return _read_removed_rows(
            _Root(lake.root, tuple(sorted((lake.storage_options or {}).items()))), contract.name, number, lake.identity(contract.log)
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LakeError.lost_totals(contract.log, f"{lake.root}/{_path(contract.name, number)}", error) from error
    except (OSError, DeltaError) as error:
        if not lake.is_local:
            raise LakeError.no_store(lake.root, error) from error
        fault = lake.passing_fault(contract.log, error)
        raise fault or LakeError.lost_totals(contract.log, f"{lake.root}/{_path(contract.name, number)}", error) from error


@dataclass(frozen=True)
class _Root:
    """The root of a lake with the options of its store, as a key of a cache."""

    root: str
    options: tuple[tuple[str, str], ...]


@lru_cache(maxsize=64)
def _read_removed_rows(lake_root: _Root, source: str, number: int, identity: str | None) -> RemovedRows:
    """What removals up to a committed one have deleted. Its file never changes, so it is cached.

    If the lake was made again in the same folder, `identity` is another.
    """
    with filesystem(lake_root.root, dict(lake_root.options) or None).open_input_stream(_path(source, number)) as file:
        totals = json.loads(file.read())
    if totals["log"] != identity:
        raise ValueError("it is of another log")
    batches = {int(seq): int(rows) for seq, rows in totals["batches"].items()}
    tables = {name: _read_table(table_totals) for name, table_totals in totals["tables"].items()}
    return RemovedRows(number, int(totals["before"]), int(totals["upto"]), int(totals["rows"]), batches, tables)


def _read_table(totals: Mapping[str, Any]) -> RetainedTable:
    days = tuple(RetainedDay(day["side"], day["day"], day["terms"]) for day in totals["days"])
    return RetainedTable(totals["identity"], int(totals["first"]), int(totals["upto"]), days)


def write_totals(lake: Lake, contract: SourceContract, removed: RemovedRows) -> None:
    """Write the totals of a removal. The caller does so before it commits the removal."""
    totals = asdict(removed) | {"log": lake.identity(contract.log)}
    replace_file(lake.root, _path(contract.name, removed.number), json.dumps(totals).encode(), lake.storage_options)


def delete_old_totals(lake: Lake, contract: SourceContract, number: int) -> None:
    """Delete the file of the removal `_KEPT_FILES` before removal `number`: no reader needs its totals any more."""
    if number > _KEPT_FILES:
        files, path = filesystem(lake.root, lake.storage_options), _path(contract.name, number - _KEPT_FILES)
        try:
            files.delete_file(path)
        except (FileNotFoundError, DeltaError):  # an earlier maintenance deleted it
            return


def _path(source: str, number: int) -> str:
    return f"{FOLDER}/{source}/{number}.json"


def margin(asset: DerivedAsset) -> int:
    """How far before a result's `final_at`, in ms, a table may need rows of its inputs to compute the result and to account for it."""
    reads = asset.operator.reads
    if not reads.closes_ranges:
        return 0
    lookbacks = [reads.lookback_of(index) or 0 for index in range(len(asset.inputs))]
    return 1 + max(reads.watermark_delay + reads.longest_lookback, *lookbacks)


def has_lost_rows(removed: RemovedRows, asset: DerivedAsset, now: Progress) -> bool:
    """Whether rows were removed that a table has not handled.

    The table was then not in the pipeline at the last removal, or has lost steps since then. A table that began after it has lost no
    rows, even if it has not handled all remaining rows yet.
    """
    if now.complete_from is not None and now.complete_from >= removed.before + margin(asset):
        return False
    return removed.upto > now.seq or (now.closed_to is not None and removed.before > now.closed_to + 1 - margin(asset))


def kept_days_of(workspace: Workspace, asset: DerivedAsset) -> KeptDays | None:
    """The days for which an asset can still be computed from its inputs; None for all days."""
    lake = workspace.lake
    complete_from, identity = stored_progress(lake, asset).complete_from, table_identity(lake, asset)
    totals, starts = list[RetainedTable](), [] if complete_from is None else [complete_from]
    for upstream in workspace.inputs_of(asset):
        if upstream.table is not None:
            starts += [] if (start := _start_of(lake, upstream.table)) is None else [start + margin(asset)]
        elif (removed := removed_rows_of(lake, workspace.sources[upstream.name])) is not None:
            table = removed.tables.get(asset.name)
            if table is not None and table.identity == identity:
                totals.append(table)
            else:
                starts.append(removed.before + margin(asset))
    if not starts and not totals:
        return None
    first = -(-max([*starts, *[table.first for table in totals]]) // DAY_MS) * DAY_MS
    return KeptDays(first, max(totals, key=lambda table: (table.first, table.upto), default=None), complete_from)


def _start_of(lake: Lake, table: DerivedAsset) -> int | None:
    """The first event time from which on the rows of an input table are complete; None if all are."""
    start = stored_progress(lake, table).complete_from
    return None if start is None else start + table.operator.reads.watermark_delay
