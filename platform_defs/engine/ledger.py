"""The ledger: one total order of everything that was let in, and the commit point of ingest.

An entry is a micro-batch, or has no rows and only moves watermarks. It is stored as one row a source it tells
of, all rows of an entry (or of several) in one Delta commit; readers see the entries up to `head` and nothing else.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from threading import Lock
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from platform_defs.engine.ledger_error import LedgerError
from platform_defs.faults import point
from platform_defs.resources.errors import LakeError
from platform_defs.resources.lake import Lake

TABLE = "ledger"
MANY_FILES = 64
FORMAT = 1  # of the lake: told by the ledger from its first commit on; one more for each change that an older version misreads
Kind = Literal["rows", "watermark", "idle", "drain", "retry"]

_TIME = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("ingested_at", _TIME),
        ("source", pa.string()),
        ("watermark", _TIME),
        ("max_event_time", _TIME),
        ("first_event_time", _TIME),
        ("last_event_time", _TIME),
        ("rows_read", pa.int64()),
        ("accepted", pa.int64()),
        ("duplicate", pa.int64()),
        ("quarantined", pa.int64()),
        ("markers", pa.int64()),
        ("warned", pa.int64()),
        ("idle", pa.bool_()),
        ("offsets", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True, kw_only=True)
class SourceEntry:
    """What one entry says of one source. Times are epoch ms; None where there is none.

    Args:
        seq: the entry's place in the total order, from 1.
        kind: what made the entry.
        ingested_at: the wall clock; strictly rising from entry to entry.
        source: the source.
        watermark: the source's watermark after the entry.
        max_event_time: the newest event time of the source so far.
        first_event_time: the oldest event time among the entry's rows.
        last_event_time: the newest event time among the entry's rows.
        rows_read: rows read: accepted + duplicate + quarantined + markers.
        accepted: rows that reached the log.
        duplicate: rows whose key the log holds already.
        quarantined: rows kept out with a reason.
        markers: rows that only carried a watermark.
        warned: accepted rows that broke a rule whose action is to warn.
        idle: whether the source no longer holds the watermark back.
        offsets: what was read: one `path|modified|length` a file.
    """

    seq: int
    kind: Kind
    ingested_at: int
    source: str
    watermark: int | None = None
    max_event_time: int | None = None
    first_event_time: int | None = None
    last_event_time: int | None = None
    rows_read: int = 0
    accepted: int = 0
    duplicate: int = 0
    quarantined: int = 0
    markers: int = 0
    warned: int = 0
    idle: bool = False
    offsets: tuple[str, ...] = ()


Entry = tuple[SourceEntry, ...]
_IN_MS = pa.schema([f.with_type(pa.timestamp("ms", tz="UTC")) if f.type == _TIME else f for f in _SCHEMA])
_AS_INTS = pa.schema([f.with_type(pa.int64()) if f.type == _TIME else f for f in _SCHEMA])


class Ledger:
    """The ledger of a lake. What was read is kept; only what was committed since, by whom ever, is read again.

    Args:
        lake: the lake.
        clock: the wall clock, in epoch ms.
    """

    def __init__(self, lake: Lake, clock: Callable[[], int]) -> None:
        self._lake, self._clock = lake, clock
        self._mutex = Lock()
        self._table: DeltaTable | None = None
        self._place: int | None = None
        self._forget()

    def _forget(self) -> None:
        self._version = -1
        self._rows_known = 0
        self._entries: list[Entry] = []
        self._last: dict[str, SourceEntry] = {}
        self._offsets: dict[str, set[str]] = {}

    def entries(self) -> list[Entry]:
        """All entries, by `seq`; the entry with `seq` n stands at index n - 1.

        Raises:
            LedgerError: an entry is missing, repeated or goes back in time, or a file cannot be read.
            LakeError: a later version of the project made the lake.
        """
        with self._mutex:  # sources are let in side by side, and each asks
            delta = self._open()
            if delta is not None and delta.version() > self._version:
                self._check_format(delta)
                self._take_new(delta)
            return self._entries

    def _check_format(self, delta: DeltaTable) -> None:
        told = re.search(r"format (\d+)", delta.metadata().description or "")
        if told is not None and int(told[1]) > FORMAT:
            raise LakeError.newer(self._lake.root, int(told[1]), FORMAT)

    def _take_new(self, delta: DeltaTable) -> None:
        self._take_rows(delta)
        if self._rows_known != _rows_told(delta):  # rows came to entries that are known
            self._forget()
            self._take_rows(delta)
        self._version = delta.version()

    def _take_rows(self, delta: DeltaTable) -> None:
        for entry in _grouped(self._rows(delta)):
            self._take(entry, delta)

    @property
    def head(self) -> int:
        """The newest `seq`; 0 when there is none."""
        return len(self.entries())

    def last(self) -> dict[str, SourceEntry]:
        """What was last said of each source."""
        self.entries()
        return dict(self._last)

    def offsets(self, source: str) -> set[str]:
        """Everything read from a source so far."""
        self.entries()
        return self._offsets.get(source, set())

    def now(self, after: int = 0) -> int:
        """The wall clock for the next entry: later than the newest entry's, even where the clock stepped back."""
        entries = self.entries()
        return max(self._clock(), after + 1, entries[-1][0].ingested_at + 1 if entries else 0)

    def require(self, seq: int, witness: str) -> None:
        """Pass if the ledger has an entry that another table tells of.

        Raises:
            LedgerError: it has not; it has lost it.
        """
        if seq > self.head:
            raise LedgerError.too_short(self.head, seq, witness, self._lake.path(TABLE))

    def commit(self, entries: Sequence[Entry]) -> None:
        """Commit entries, all or none. Everything they tell of must be in the logs already."""
        expected = range(self.head + 1, self.head + 1 + len(entries))
        if [entry[0].seq for entry in entries] != list(expected):
            raise ValueError(f"entries {[e[0].seq for e in entries]} do not follow the head {self.head}")
        rows = [asdict(said) for entry in entries for said in entry]
        self._lake.append_small(as_table(rows), TABLE, seen=self._table, description=f"Tidemark lake, format {FORMAT}")
        self._keep_small()

    def compact(self) -> None:
        """Put the ledger's files together, and make a checkpoint of its log."""
        delta = self._open()
        if delta is not None:
            point("ledger.before_compact")
            delta.optimize.compact()
            point("ledger.after_compact")
            delta.create_checkpoint()

    def _keep_small(self) -> None:
        """One file a commit would make a long ledger slow to open."""
        delta = self._open()
        if delta is not None and len(delta.file_uris()) >= MANY_FILES:
            self.compact()

    def _open(self) -> DeltaTable | None:
        """The table as it is now: opened once, and told of what was committed since, which takes an eighth of the time."""
        place = self._lake.place(TABLE)
        try:
            if self._table is None or place != self._place:  # not there yet, or another has taken its place
                self._forget()
                self._table, self._place = self._lake.delta(TABLE), place
            else:
                self._table.update_incremental()
            return self._table
        except (DeltaError, OSError) as error:
            table = self._lake.path(TABLE)
            raise LedgerError.unreadable(len(self._entries), table, f"{table}/_delta_log", _one_line(error)) from error

    def _rows(self, delta: DeltaTable) -> list[SourceEntry]:
        """What the entries after those known say, in order. A file whose statistics end before them is not opened."""
        new = pc.field("seq") > len(self._entries) if self._entries else None
        try:
            found = delta.to_pyarrow_dataset().to_table(columns=_SCHEMA.names, filter=new)
        except (OSError, pa.ArrowException, DeltaError) as error:
            file, why = _unreadable_file(delta) or ("unknown", _one_line(error))
            raise LedgerError.unreadable(len(self._entries), self._lake.path(TABLE), file, why) from error
        rows = found.cast(_IN_MS).cast(_AS_INTS).sort_by([("seq", "ascending"), ("source", "ascending")])
        return [SourceEntry(**row | {"offsets": tuple(row["offsets"])}) for row in rows.to_pylist()]

    def _take(self, entry: Entry, delta: DeltaTable) -> None:
        wrong = self._wrong(entry)
        if wrong:
            raise LedgerError.broken(entry[0].seq, wrong, self._lake.path(TABLE), ", ".join(_files_of(delta, entry[0].seq)))
        self._rows_known += len(entry)
        self._entries.append(entry)
        for said in entry:
            self._last[said.source] = said
            self._offsets.setdefault(said.source, set()).update(said.offsets)

    def _wrong(self, entry: Entry) -> str | None:
        """What keeps an entry from following those before it."""
        seq, now, before = entry[0].seq, entry[0].ingested_at, self._entries[-1][0].ingested_at if self._entries else None
        if seq != len(self._entries) + 1:
            return f"it follows entry {len(self._entries)}, so entries between them are missing"
        if len({said.source for said in entry}) < len(entry):
            return "it tells of a source twice"
        if any(said.ingested_at != now for said in entry) or (before is not None and now <= before):
            return f"its ingested_at {now} does not rise from the entry before, {before}"
        return next((w for said in entry if (w := _fallen(said, self._last.get(said.source)))), None)


def _fallen(said: SourceEntry, last: SourceEntry | None) -> str | None:
    if last is None or last.watermark is None or (said.watermark is not None and said.watermark >= last.watermark):
        return None
    return f"the watermark of {said.source!r} falls from {last.watermark} to {said.watermark}"


def _rows_told(delta: DeltaTable) -> int:
    """How many rows the table has, by its log."""
    return sum(pa.table(delta.get_add_actions()).column("num_records").to_pylist())


def _unreadable_file(delta: DeltaTable) -> tuple[str, str] | None:
    """The first file that cannot be read, and why."""
    for fragment in delta.to_pyarrow_dataset().get_fragments():
        try:
            fragment.to_table(columns=["seq"])
        except (OSError, pa.ArrowException) as error:
            return fragment.path, _one_line(error)
    return None


def _files_of(delta: DeltaTable, seq: int) -> list[str]:
    """The files that hold rows of an entry."""
    fragments = delta.to_pyarrow_dataset().get_fragments()
    return [f.path for f in fragments if f.count_rows(filter=pc.field("seq") == seq)]


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def as_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """What entries say, as the table holds it."""
    return pa.Table.from_pylist(list(rows), schema=_IN_MS).cast(_SCHEMA)


def moved(said: SourceEntry, **changes: Any) -> SourceEntry:
    """What a next entry says of a source when only `changes` happen: counts and offsets start anew."""
    carried = {"watermark": said.watermark, "max_event_time": said.max_event_time, "idle": said.idle}
    blank = SourceEntry(seq=said.seq, kind=said.kind, ingested_at=said.ingested_at, source=said.source)
    return replace(blank, **{**carried, **changes})


def _grouped(rows: Iterable[SourceEntry]) -> list[Entry]:
    entries: list[list[SourceEntry]] = []
    for said in rows:
        if not entries or entries[-1][0].seq != said.seq:
            entries.append([])
        entries[-1].append(said)
    return [tuple(entry) for entry in entries]
