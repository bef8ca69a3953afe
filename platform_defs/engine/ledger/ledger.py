"""The ledger: the total order of all ingested batches, and the commit point of ingest.

A batch is a micro-batch of rows, or a control batch without rows that sets watermarks. It is stored as one row for each source that it
records; all rows of a batch (or of several) are in one commit. Readers see only the batches up to `head`. This module maintains and
validates the order; a `LedgerStore` stores the rows.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import chain, islice
from threading import RLock

import pyarrow as pa

from platform_defs.engine.formats.files import File, Known
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.arrow_values import arrow_scalar
from platform_defs.engine.ledger.batches import Entries, together
from platform_defs.engine.ledger.clocks import CLOCK_STEP, first_time, is_set_back, processing_times, time_of_batch
from platform_defs.engine.ledger.columns import pc
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.history import COLUMNS, History, SourceHistory, newest_by_source
from platform_defs.engine.ledger.known_files import KnownFiles
from platform_defs.engine.ledger.order import why_not_next
from platform_defs.engine.ledger.rows import COUNTS, SCHEMA, Entry, Kind, SourceEntry, as_table, entries_of, moved, table_of
from platform_defs.engine.ledger.store import EVERYTHING, FORMAT, TABLE, DeltaLedgerStore, LedgerStore, Version

__all__ = [
    "FORMAT",
    "SCHEMA",
    "TABLE",
    "Entries",
    "Entry",
    "Kind",
    "Ledger",
    "LedgerStore",
    "SourceEntry",
    "as_table",
    "moved",
]
_NEWEST = tuple(name for name in SCHEMA.names if name != "offsets")


class Ledger:
    """The ledger of a lake. Batches that were read are cached in columns, and only newer commits of any writer are read.

    Args:
        lake: the lake.
        clock: the wall clock, in epoch ms.
        store: the store of the rows; by default the lake's own table.
    """

    def __init__(self, lake: Lake, clock: Callable[[], int], store: LedgerStore | None = None) -> None:
        self._clock = clock
        self._store: LedgerStore = DeltaLedgerStore(lake) if store is None else store
        self._mutex = RLock()
        self._forget()

    def _forget(self) -> None:
        self._version: Version | None = None
        self._history = History()
        self._last: dict[str, SourceEntry] = {}
        self._files: dict[str, KnownFiles] = {}
        self._files_upto = 0

    @property
    def history(self) -> History:
        """All batches, in columns.

        Raises:
            LedgerError: a batch is missing, repeated or goes back in time, or a file cannot be read.
            LakeError: a later version of Tidemark created the lake.
        """
        with self._mutex:  # sources are ingested in parallel, and each reads it
            version = self._store.look()
            if version is None or (self._version is not None and version.table != self._version.table):
                self._forget()
            if version is not None and version != self._version:
                self._take_new(version)
            return self._history

    def _take_new(self, version: Version) -> None:
        self._take_rows()
        if self._history.rows != version.rows:  # rows were added to known batches
            self._forget()
            self._take_rows()
        self._version = version

    def _take_rows(self) -> None:
        """Read the rows after the known batches: a few as whole rows, many in parts of which only the columns are kept."""
        known = self._history
        parts = self._store.rows(_NEWEST, known.head) if known.head else self._store.rows(COLUMNS, EVERYTHING)
        first = list(islice(parts, 1)) if known.head else []
        found = known.followed_by(chain(first, parts))
        if found is None:
            raise self._corruption()
        self._history = found
        if first and first[0].num_rows == found.rows - known.rows:
            self._last |= newest_by_source(row for entry in entries_of(together(first, _NEWEST)) for row in entry)
            return
        newest = {
            name: seq[-1]
            for name, of in found.sources.items()
            if len(seq := of.columns["seq"]) and (name not in self._last or seq[-1] > self._last[name].seq)
        }
        self._last |= self._read_last(newest)

    def _read_last(self, newest: dict[str, int]) -> dict[str, SourceEntry]:
        """The newest rows of sources, given by their batch numbers."""
        found: dict[str, SourceEntry] = {}
        for seq in sorted(set(newest.values())):
            rows = together(self._store.rows(_NEWEST, seq - 1, seq), _NEWEST)
            found |= {row.source: row for entry in entries_of(rows) for row in entry if newest.get(row.source) == seq}
        return found

    def _corruption(self) -> LedgerError:
        """The error for the first new batch that does not follow the one before it, found by reading row by row."""
        head, times, last = self._history.head, self._history.times, dict(self._last)
        before = times[-1] if head else None
        for entry in entries_of(together(self._store.rows(_NEWEST, head or EVERYTHING), _NEWEST)):
            wrong = why_not_next(entry, head, before, last)
            if wrong:
                return LedgerError.corrupted(entry[0].seq, wrong, self._store.name, ", ".join(self._store.files_of(entry[0].seq)))
            head, before = head + 1, entry[0].ingested_at
            last |= newest_by_source(entry)
        return LedgerError.corrupted(head, "its rows contradict each other", self._store.name, "unknown")

    def entries(self) -> Entries:
        """All batches, by batch number."""
        return Entries(self._store, self.head)

    @property
    def head(self) -> int:
        """The newest batch number; 0 when there is none."""
        return self.history.head

    def last(self) -> dict[str, SourceEntry]:
        """The newest row of each source, without its offsets."""
        _ = self.history
        return dict(self._last)

    def source(self, name: str) -> SourceHistory:
        """A source's batches, in columns."""
        return self.history.source(name)

    def totals(self, source: str) -> dict[str, int]:
        """The counts of a source, over all of its batches."""
        return self.totals_by_source().get(source) or dict.fromkeys(COUNTS, 0)

    def totals_by_source(self, after: int = 0) -> dict[str, dict[str, int]]:
        """The counts of each source, over its batches after a batch; sources without batches are left out."""
        sums: dict[str, dict[str, int]] = {}
        for part in self._store.rows(["seq", "source", *COUNTS], after, self.head):
            for source in pc.unique(part["source"]):
                of, known = part.filter(pc.equal(part["source"], source)), sums.get(source.as_py()) or {}
                sums[source.as_py()] = {name: known.get(name, 0) + (pc.sum(of[name]).as_py() or 0) for name in COUNTS}
        return sums

    def offsets(self, source: str) -> set[str]:
        """All recorded offsets of a source, read from the store. Use `known` to check whether files are known."""
        found: set[str] = set()
        for part in self._store.rows(["seq", "source", "offsets"], 0, self.head):
            of = part.filter(pc.equal(part["source"], arrow_scalar(source, pa.string())))
            found.update(pc.list_flatten(of["offsets"]).to_pylist())
        return found

    def offsets_in_order(self, source: str) -> list[tuple[int, str]]:
        """All recorded offsets of a source, each with its batch number, ordered by batch."""
        found: list[tuple[int, str]] = []
        for part in self._store.rows(["seq", "source", "offsets"], 0, self.head):
            of = part.filter(pc.equal(part["source"], arrow_scalar(source, pa.string())))
            found += [(seq, o) for seq, some in zip(of["seq"].to_pylist(), of["offsets"].to_pylist(), strict=True) for o in some or ()]
        return sorted(found, key=lambda pair: pair[0])

    def known(self, source: str, files: Collection[File]) -> Known:
        """The ledger's records of some files of a source."""
        return self._known_files(source).among(files)

    def topic_ends(self, source: str) -> dict[str, int]:
        """The offset after the last one that was read, by the path of each partition of Kafka's topics."""
        return self._known_files(source).topic_ends()

    def unrecorded(self, source: str, files: Sequence[File]) -> list[File]:
        """The files of a source that the ledger does not record in their present state."""
        known = self.known(source, files)
        return [file for file in files if not known.holds(file)]

    def _known_files(self, source: str) -> KnownFiles:
        with self._mutex:
            head = self.head
            if head > self._files_upto:
                for part in self._store.rows(["seq", "source", "offsets"], self._files_upto, head):
                    for name in pc.unique(part["source"]).to_pylist():
                        offsets = pc.list_flatten(part.filter(pc.equal(part["source"], name))["offsets"].combine_chunks())
                        self._files.setdefault(name, KnownFiles()).add(offsets)
                self._files_upto = head
            return self._files.get(source) or KnownFiles()

    def wall_clock(self) -> int:
        """The wall clock in epoch ms, which decides whether a source is idle and whether an event time is in the future."""
        return self._clock()

    def now(self, after: int = 0) -> int:
        """The time for the next batch, in epoch ms: the wall clock, but always later than `after` and the newest batch's time."""
        return max(after + 1, self._next_time(self.history))

    def _next_time(self, known: History) -> int:
        return max(self._clock(), known.times[-1] + 1 if len(known.times) else 0)

    def processing_times(self, head: int, after: int = 0) -> tuple[int, pa.Array]:
        """`after`, and the processing times of the batches `after < seq <= head`; see `clocks.processing_times`."""
        return after, processing_times(self.history.clocks.between(after, head))

    def clock_set_back(self, after: int, head: int) -> bool:
        """Whether the wall clock was set back between two of the batches `after <= seq <= head`."""
        return is_set_back(self.history.clocks.between(max(0, after - 1), head))

    def first_batch_at(self) -> int:
        """The wall clock at the first batch; now if there is none. See `clocks.first_time` for a clock that was wrong then."""
        return first_time(self.history.clocks, self.wall_clock())

    def last_active_at(self, source: str) -> int | None:
        """The wall clock at which rows of a source were last read, or its watermark was last set; None if neither has happened.

        See `clocks.time_of_batch` for a clock that was wrong then.
        """
        seq = self.source(source).active_in
        return None if seq is None else time_of_batch(self.history.clocks, seq, self.wall_clock())

    def require(self, seq: int, witness: str) -> None:
        """Raise unless the ledger has a batch that another table records.

        Raises:
            LedgerError: the ledger has lost the batch.
        """
        if seq > self.head:
            raise LedgerError.too_short(self.head, seq, witness, self._store.name)

    def next_batch(self) -> tuple[int, int, Version | None]:
        """The number and the time (epoch ms) of the next batch, and the version that it follows; see `Batch.begin`."""
        with self._mutex:
            known = self.history  # read once, so that number, time and version are consistent
            return known.head + 1, self._next_time(known), self._version

    def fence(self, seen: Version | None) -> Version:
        """Make an empty commit on a version, so that any other batch that began at it fails; returns the new version.

        Raises:
            LakeError: another writer has committed since.
        """
        with self._mutex:
            self._unmoved(seen)
            self._store.fence()
            made = self._store.look()
            if made is None or made.number != (0 if seen is None else seen.number + 1):  # another writer has committed after it
                raise LakeError.overtaken(TABLE, "batch")
            return made

    def commit_after(self, seen: Version | None, entries: Sequence[Entry]) -> None:
        """Commit batches as `commit` does, only on the given version.

        Raises:
            LakeError: another writer has committed since.
        """
        with self._mutex:
            self._commit(self._unmoved(seen), entries)

    def _unmoved(self, seen: Version | None) -> History:
        found = self.history
        if self._version != seen:
            raise LakeError.overtaken(TABLE, "batch")
        return found

    def commit(self, entries: Sequence[Entry]) -> None:
        """Commit batches atomically. Their rows must already be in the logs.

        Raises:
            LakeError: another writer has committed a batch with this number.
            LedgerError: the batches do not follow the newest.
        """
        with self._mutex:
            self._commit(self.history, entries)

    def _commit(self, known: History, entries: Sequence[Entry]) -> None:
        """Commit on the version that was read last: reading it again here would allow a commit on a newer version."""
        seqs, head = [entry[0].seq for entry in entries], known.head
        if seqs[0] <= head and seqs == list(range(seqs[0], seqs[0] + len(seqs))):
            raise LakeError.overtaken(TABLE, "batch")
        if seqs != list(range(head + 1, head + 1 + len(seqs))):
            raise LedgerError(f"batches {seqs} do not follow the ledger's newest, {head}")
        clock = self._clock()
        if head and clock < known.clocks[0]:  # a clock behind the first batch is not recorded
            clock = known.times[-1] + 1
        self._store.append(table_of(tuple(_with_clock(row, clock) for row in entry) for entry in entries))

    def compact(self) -> None:
        """Compact the ledger's files, and write a checkpoint of its log."""
        self._store.compact()


def _with_clock(row: SourceEntry, clock: int) -> SourceEntry:
    """A row with the wall clock, if that is behind the ledger's clock."""
    return replace(row, clock=clock) if clock < row.ingested_at - CLOCK_STEP else row
