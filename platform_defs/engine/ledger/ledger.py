"""The ledger: the total order of all ingested batches, and the commit point of ingest.

A batch is a micro-batch of rows, or a control batch without rows that sets watermarks. It is stored as one row for each source that it
records; all rows of a batch (or of several) are in one commit. Readers see only the batches up to `head`. This module maintains and
validates the order; a `LedgerStore` stores the rows.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from platform_defs.engine.formats.files import File, Known
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.batches import Entries
from platform_defs.engine.ledger.clocks import CLOCK_STEP, first_time, is_set_back, processing_times, time_at, time_of_batch
from platform_defs.engine.ledger.columns import pc
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.history import History
from platform_defs.engine.ledger.known_batches import KnownBatches
from platform_defs.engine.ledger.known_files import KnownFiles
from platform_defs.engine.ledger.recorded_files import offsets_in_order
from platform_defs.engine.ledger.rows import COUNTS, SCHEMA, Entry, Kind, SourceEntry, as_table, moved, table_of
from platform_defs.engine.ledger.store import FORMAT, TABLE, DeltaLedgerStore, LedgerStore, Version

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


class Ledger(KnownBatches):
    """The ledger of a lake. Batches that were read are cached in columns, and only newer commits of any writer are read.

    Args:
        lake: the lake.
        clock: the wall clock, in epoch ms.
        store: the store of the rows; by default the lake's own table.
    """

    def __init__(self, lake: Lake, clock: Callable[[], int], store: LedgerStore | None = None) -> None:
        super().__init__(DeltaLedgerStore(lake) if store is None else store)
        self._clock = clock

    def totals(self, source: str) -> dict[str, int]:
        """The counts of a source, over all of its batches."""
        return self.totals_by_source().get(source) or dict.fromkeys(COUNTS, 0)

    def totals_by_source(self, after: int = 0, upto: int | None = None) -> dict[str, dict[str, int]]:
        """The counts of each source, over its batches after a batch and up to another; sources without batches are left out.

        If `after` is before the end of the summary, all summarized batches are counted.
        """
        sums: dict[str, dict[str, int]] = {}
        for part in self._store.rows(["seq", "source", *COUNTS], after, self.head if upto is None else upto):
            for source in pc.unique(part["source"]):
                of, known = part.filter(pc.equal(part["source"], source)), sums.get(source.as_py()) or {}
                sums[source.as_py()] = {name: known.get(name, 0) + (pc.sum(of[name]).as_py() or 0) for name in COUNTS}
        return sums

    def offsets(self, source: str) -> set[str]:
        """All recorded offsets of a source, read from the store. Use `known` to check whether files are known."""
        return {offset for _, offset in self.offsets_in_order(source)}

    def offsets_in_order(self, source: str) -> list[tuple[int, str]]:
        """All recorded offsets of a source, each with its batch number, ordered by batch."""
        return offsets_in_order(self._store, source, self.head)

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
        head = self.head  # read first: it forgets the files if the ledger was replaced
        return self._files.of(source, head)

    def wall_clock(self) -> int:
        """The wall clock in epoch ms, which decides whether a source is idle and whether an event time is in the future."""
        return self._clock()

    def now(self, after: int = 0) -> int:
        """The time for the next batch, in epoch ms: the wall clock, but always later than `after` and the newest batch's time."""
        return max(after + 1, self._next_time(self.history))

    def _next_time(self, known: History) -> int:
        return max(self._clock(), known.times[-1] + 1 if len(known.times) else 0)

    def processing_times(self, head: int, after: int = 0) -> tuple[int, pa.Array]:
        """The processing times of the batches `after < seq <= head`, and `after`; see `clocks.processing_times`.

        The times of batches before the end of a summary are not known. The returned number is then the last batch without a known time.
        """
        known = self.history
        first = max(after, known.summarized - 1)
        return first, processing_times(known.clocks.between(first, head))

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
        known = self.history
        of, clocks, now = known.source(source), known.clocks, self.wall_clock()
        if of.active_in is None:
            return None
        if of.before is not None and of.active_in == of.before.active_in and of.before.active_at is not None:
            return time_at(of.before.active_at, clocks.between(known.summarized - 1), now)
        return time_of_batch(clocks, of.active_in, now)

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

    def summarize(self, seen: Version | None, entry: Entry) -> None:
        """Replace the rows of all batches up to one by a summary of them, atomically and only on the given version.

        The summary must have fewer rows than it replaces: other processes recognize it by the number of rows.

        Raises:
            LakeError: another writer has committed since.
        """
        with self._mutex:
            known, upto = self._unmoved(seen), entry[0].seq
            if len(entry) >= known.rows_upto(upto):
                fault = f"it has {len(entry)}, and the batches up to {upto} have {known.rows_upto(upto)}"
                raise ValueError(f"a summary must have fewer rows than it replaces: {fault}")
            self._store.replace(table_of([entry]), upto)

    def compact(self) -> None:
        """Compact the ledger's files, and write a checkpoint of its log."""
        self._store.compact()


def _with_clock(row: SourceEntry, clock: int) -> SourceEntry:
    """A row with the wall clock, if that is behind the ledger's clock."""
    return replace(row, clock=clock) if clock < row.ingested_at - CLOCK_STEP else row
