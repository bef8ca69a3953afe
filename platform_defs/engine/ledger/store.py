"""The store of a ledger's rows: a small protocol, and its implementation as a Delta table of the lake.

The ledger's logic (the order, its validation, the newest row of each source) needs few operations of a store. An in-memory store that
implements them runs the same logic without files.
"""

import logging
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from operators.errors import TidemarkError
from platform_defs.engine.faults import point
from platform_defs.engine.lake.commits import commit_once, commit_options, reporting_overtaken, write_checkpoint
from platform_defs.engine.lake.data_skipping import store_of
from platform_defs.engine.lake.errors import LakeError, UnreadableLogError, store_reason
from platform_defs.engine.lake.merged_files import FAULTS, can_merge, merge_files
from platform_defs.engine.lake.opened_tables import OpenedTable
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.row_ranges import is_above, rows_in_range
from platform_defs.engine.ledger.rows import AS_INTS, IN_MS, SCHEMA, cast_columns

TABLE = "ledger"
MANY_FILES = 64
"""After an append, a ledger with this many small files is compacted."""
FULL_BYTES = 1024 * 1024
"""A file of this size is not compacted again, so that a compaction costs the same at any age of the ledger."""
FORMAT = 3  # of the lake, recorded in the ledger's description; increment it for a change that older versions would misread
SUMMARY_FORMAT = 4  # of a lake whose ledger begins with a summary
EVERYTHING = -(1 << 62)
"""A batch number below all others, even that of a damaged row."""
_ROWS_AT_ONCE = 1 << 13
_SUMMARY = "summary"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Version:
    """A state of a store.

    Args:
        table: the table's identity, which changes when it is deleted and created again.
        number: the number of the newest commit, from 0.
        rows: the number of rows.
    """

    table: str
    number: int
    rows: int


class LedgerStore(Protocol):
    """Stores a ledger's rows, one for each batch and source.

    Every method except `refresh` and `compact` uses the version that `refresh` last returned.
    """

    @property
    def name(self) -> str:
        """The store's name in error messages."""
        ...

    def refresh(self) -> Version | None:
        """The newest version; None if there is no ledger yet.

        Raises:
            LedgerError: the ledger's log cannot be read.
            LakeError: a later version of Tidemark created the lake, or the store or the disk has a fault that may pass.
        """
        ...

    def rows(self, columns: Sequence[str], after: int = 0, upto: int | None = None) -> Iterator[pa.Table]:
        """The rows of `after < seq <= upto` at that version, in parts, and in any order.

        Args:
            columns: the columns, in the order and with the types of `AS_INTS`: times are epoch ms.
            after: the batch number after which to read.
            upto: the last batch number to read; None for all.

        Raises:
            LedgerError: a file is missing or damaged.
            LakeError: the store or the disk has a fault that may pass.
        """
        ...

    def append(self, rows: pa.Table) -> None:
        """Commit rows (of the schema `SCHEMA`) on that version, atomically.

        Raises:
            LakeError: another writer has committed.
        """

    def replace(self, rows: pa.Table, upto: int) -> None:
        """Commit rows (of the schema `SCHEMA`) in place of all rows with `seq <= upto`, on that version, atomically.

        Raises:
            LakeError: another writer has committed.
        """

    def fence(self) -> None:
        """Make an empty commit on that version, or create an empty store if there is none.

        Raises:
            LakeError: another writer has committed.
        """

    def files_of(self, seq: int) -> list[str]:
        """The files with rows of a batch, for an error message."""
        ...

    def compact(self) -> None:
        """Compact small files; the rows do not change."""


@dataclass
class DeltaLedgerStore:
    """The ledger's table of a lake.

    Args:
        lake: the lake.
    """

    lake: Lake
    _opened: OpenedTable = field(default_factory=OpenedTable, init=False)
    _last: tuple[DeltaTable, Version] | None = field(default=None, init=False)
    """The opened table, and the version that `refresh` returned for it; cached, since the table rarely has a new version."""
    _log: tuple[DeltaTable, int, Any] | None = field(default=None, init=False)
    """The opened table, its version, and what its log records of each file."""

    @property
    def name(self) -> str:
        """The table's path."""
        return self.lake.path(TABLE)

    @property
    def _delta(self) -> DeltaTable | None:
        """The opened table; None if it is not opened, or there is no ledger yet."""
        return self._opened.delta

    def refresh(self) -> Version | None:
        """The table's newest version. The table is opened once and then updated, which takes an eighth of the time."""
        try:
            delta = self._opened.newest(partial(self.lake.log_end, TABLE), partial(self.lake.delta, TABLE))
            if delta is None:
                return None
            number = delta.version()
            if self._last is not None and self._last[0] is delta and self._last[1].number == number:
                return self._last[1]
            if (lake_format := _format_of(delta)) > SUMMARY_FORMAT:
                raise LakeError.newer(self.lake.root, lake_format, SUMMARY_FORMAT)
            rows = sum(rows for [rows] in self._actions(delta, "num_records"))
            self._last = delta, Version(str(delta.metadata().id), number, rows)
            return self._last[1]
        except (DeltaError, OSError, UnreadableLogError) as error:
            self._opened.mark_stale()  # `rows` still reads the version that was known
            fault = self.lake.passing_fault(TABLE, error)
            reason = error.reason if isinstance(error, UnreadableLogError) else store_reason(error)
            raise fault or LedgerError.unreadable(None, self.name, f"{self.name}/_delta_log", reason) from error

    def rows(self, columns: Sequence[str], after: int = 0, upto: int | None = None) -> Iterator[pa.Table]:
        """The rows of a range of batches. Files are read in small parts, and skipped if their statistics are outside of the range."""
        if self._delta is None:
            return
        delta, in_ms, as_ints = self._delta, *(pa.schema([schema.field(c) for c in columns]) for schema in (IN_MS, AS_INTS))
        for path in self._files(delta, after, upto):
            try:
                for part in self._parts(delta, path, columns):
                    if (matching_rows := rows_in_range(part, after, upto)).num_rows:
                        yield cast_columns(cast_columns(matching_rows, in_ms), as_ints)
            except (OSError, pa.ArrowException, DeltaError) as error:
                fault = self.lake.passing_fault(TABLE, error)
                raise fault or LedgerError.unreadable(max(0, after), self.name, path, store_reason(error)) from error

    def _files(self, delta: DeltaTable, after: int, upto: int | None) -> list[str]:
        """The files that can contain rows of a range of batches, ordered by their first batch."""
        bounds = self._actions(delta, "path", "min.seq", "max.seq")
        paths = [(low or 0, path) for path, low, high in bounds if not (high is not None and high <= after) and not is_above(low, upto)]
        return [path for _, path in sorted(paths)]

    def _actions(self, delta: DeltaTable, *names: str) -> list[tuple[Any, ...]]:
        """Values of the table's log for each file; None for a value that is not recorded. `pyarrow.table` would load pandas here.

        The log is read once for each version. Another thread may bring the opened table up to date after its version was looked up: then
        the log is read again next time.
        """
        version, log = delta.version(), self._log
        if log is None or log[0] is not delta or log[1] != version:
            log = self._log = delta, version, delta.get_add_actions(flatten=True)
        actions = log[2]
        columns = [actions[name].to_pylist() if name in actions.column_names else [None] * actions.num_rows for name in names]
        return [*zip(*columns, strict=True)]

    def _parts(self, delta: DeltaTable, path: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """A file's rows in small parts, so that a large file takes little memory. A column that the file lacks is null."""
        # of a file on a disk, its path takes less memory and time than a file system
        source, store = (f"{self.name}/{path}", None) if self.lake.is_local else (path, store_of(delta))
        with pq.ParquetFile(source, filesystem=store, pre_buffer=False, buffer_size=1 << 15) as file:
            names = file.schema_arrow.names
            stored_columns = [c for c in columns if c in names]
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=stored_columns, use_threads=False):
                part = pa.Table.from_batches([batch])
                for column in columns:
                    if column not in stored_columns:
                        part = part.append_column(SCHEMA.field(column), pa.nulls(part.num_rows, SCHEMA.field(column).type))
                yield part.select(list(columns))

    def append(self, rows: pa.Table) -> None:
        """Commit rows. A ledger of an older format gets the present format first, so that older versions refuse it."""
        self._require_format(FORMAT)
        if self._delta is None or _SUMMARY not in [field.name for field in self._delta.schema().fields]:
            rows = rows.drop_columns([_SUMMARY])  # the column is null until the first summary
        self.lake.append_small(rows, TABLE, expected=self._delta, description=_description())
        self._after_commit()

    def replace(self, rows: pa.Table, upto: int) -> None:
        """Replace all rows up to a batch by the given rows, in one commit. Older versions of Tidemark refuse the ledger from then on."""
        point("retention.before_format")
        self._require_format(SUMMARY_FORMAT)
        point("retention.before_summary")
        self.lake.append_small(rows, TABLE, expected=self._delta, replacing=f"seq <= {upto}")
        point("retention.after_summary")
        self._opened.mark_stale()

    def _require_format(self, number: int) -> None:
        if self._delta is None or _format_of(self._delta) >= number:
            return
        self.lake.check_leases()
        alter, options = self._delta.alter, commit_options({"id": (commit_id := uuid.uuid4().hex)})
        with self.lake.reporting_failed_commit(TABLE):
            if commit_once(self._delta, commit_id, lambda: alter.set_table_description(_description(number), **options)):
                raise LakeError.overtaken(TABLE, "batch")

    def _after_commit(self) -> None:
        """Post-commit maintenance. Its faults are logged: the commit has succeeded, and the next one tries again."""
        try:
            self._opened.record_commit(partial(self.lake.log_end, TABLE))
            self._compact_many()
        except (*FAULTS, TidemarkError) as error:
            self._opened.mark_stale()
            _log.warning("the batch is committed, but the ledger was not compacted: %s", store_reason(error))

    def fence(self) -> None:
        """Make an empty commit, or create an empty table."""
        make_empty_commit(self.lake, self._delta, SCHEMA.empty_table().drop_columns([_SUMMARY]))

    def _compact_many(self) -> None:
        """Compact if there are many small files: one file for each commit would make a long ledger slow to open."""
        if self._delta is not None and sum(size < FULL_BYTES for [size] in self._actions(self._delta, "size_bytes")) >= MANY_FILES:
            self.compact()

    def compact(self) -> None:
        """Compact the small files, and write a checkpoint of the log."""
        self.refresh()
        if self._delta is not None:
            self.lake.check_leases()
            point("ledger.before_compact")
            if can_merge(self._delta, self.name):
                merge_files(self._delta, self.name, self.lake.storage_options, FULL_BYTES)
            else:
                self._delta.optimize.compact(target_size=FULL_BYTES, **commit_options({}))
            point("ledger.after_compact")
            self.refresh()
            write_checkpoint(self._delta)

    def files_of(self, seq: int) -> list[str]:
        """The files with rows of a batch."""
        if self._delta is None:
            return []
        files = self._files(self._delta, seq - 1, seq)
        return [f for f in files if any(rows_in_range(part, seq - 1, seq).num_rows for part in self._parts(self._delta, f, ["seq"]))]


def make_empty_commit(lake: Lake, expected: Any, no_rows: Any) -> None:
    """Make an empty commit on the version `expected` of the ledger's table; if it is None, create the table without rows."""
    if expected is None:
        lake.append_small(no_rows, TABLE, expected=None, description=_description())
        return
    with reporting_overtaken(TABLE, "batch"):
        lake.carry_metadata({}, expected)


def _description(number: int = FORMAT) -> str:
    return f"Tidemark lake, format {number}"


def _format_of(delta: DeltaTable) -> int:
    match = re.search(r"format (\d+)", delta.metadata().description or "")
    return 1 if match is None else int(match[1])
