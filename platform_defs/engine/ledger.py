"""The ledger: one total order of everything that was let in, and the commit point of ingest.

An entry is a micro-batch, or has no rows and only moves watermarks. It is stored as one row a source it tells
of, all rows of an entry (or of several) in one Delta commit; readers see the entries up to `head` and nothing else.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from platform_defs.resources.lake import Lake

TABLE = "ledger"
Kind = Literal["rows", "watermark", "idle", "drain"]

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
    """The ledger of a lake. Reads are cached by the table's version.

    Args:
        lake: the lake.
        clock: the wall clock, in epoch ms.
    """

    def __init__(self, lake: Lake, clock: Callable[[], int]) -> None:
        self._lake, self._clock = lake, clock
        self._version: int | None = None
        self._entries: list[Entry] = []

    def entries(self) -> list[Entry]:
        """All entries, by `seq`; the entry with `seq` n stands at index n - 1."""
        delta = self._lake.delta(TABLE)
        if delta is not None and delta.version() != self._version:
            rows = delta.to_pyarrow_table(columns=_SCHEMA.names).cast(_IN_MS).cast(_AS_INTS).sort_by("seq")
            self._entries = _grouped(SourceEntry(**row | {"offsets": tuple(row["offsets"])}) for row in rows.to_pylist())
            self._version = delta.version()
        return self._entries

    @property
    def head(self) -> int:
        """The newest `seq`; 0 when there is none."""
        return len(self.entries())

    def last(self) -> dict[str, SourceEntry]:
        """What was last said of each source."""
        return {said.source: said for entry in self.entries() for said in entry}

    def offsets(self, source: str) -> set[str]:
        """Everything read from a source so far."""
        return {o for entry in self.entries() for said in entry if said.source == source for o in said.offsets}

    def now(self, after: int = 0) -> int:
        """The wall clock for the next entry: later than the newest entry's, even where the clock stepped back."""
        entries = self.entries()
        return max(self._clock(), after + 1, entries[-1][0].ingested_at + 1 if entries else 0)

    def commit(self, entries: Sequence[Entry]) -> None:
        """Commit entries, all or none. Everything they tell of must be in the logs already."""
        expected = range(self.head + 1, self.head + 1 + len(entries))
        if [entry[0].seq for entry in entries] != list(expected):
            raise ValueError(f"entries {[e[0].seq for e in entries]} do not follow the head {self.head}")
        rows = [asdict(said) for entry in entries for said in entry]
        self._lake.append_small(pa.Table.from_pylist(rows, schema=_IN_MS).cast(_SCHEMA), TABLE)
        self._keep_small()

    def _keep_small(self) -> None:
        """One file a commit would make a long ledger slow to open."""
        delta = self._lake.delta(TABLE)
        if delta is not None and delta.version() % 100 == 99:
            delta.optimize.compact()
            delta.create_checkpoint()


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
