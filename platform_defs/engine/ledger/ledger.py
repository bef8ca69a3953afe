"""The ledger: the total order of all ingested batches, and the commit point of ingest.

A batch is a micro-batch of rows, or a control batch without rows, such as a watermark. The ledger has one row for each batch and source
that the batch records. One commit adds all rows of one or more batches. Readers see only the batches up to `head`, the newest batch
number. This module maintains and validates the order; a `LedgerStore` stores the rows.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from platform_defs.engine.formats.files import File, FileRecords
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.batches import Batches
from platform_defs.engine.ledger.clocks import CLOCK_STEP, first_time, is_reset, is_set_back, processing_times, time_at, time_of_batch
from platform_defs.engine.ledger.columns import pc
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.history import History
from platform_defs.engine.ledger.known_batches import KnownBatches
from platform_defs.engine.ledger.known_files import KnownFiles
from platform_defs.engine.ledger.recorded_files import offsets_in_order
from platform_defs.engine.ledger.rows import COUNTS, SCHEMA, Batch, Kind, SourceBatch, as_table, next_row, table_of
from platform_defs.engine.ledger.store import FORMAT, TABLE, DeltaLedgerStore, LedgerStore, Version

__all__ = [
    "FORMAT",
    "SCHEMA",
    "TABLE",
    "Batch",
    "Batches",
    "Kind",
    "Ledger",
    "LedgerStore",
    "SourceBatch",
    "as_table",
    "next_row",
]


class Ledger(KnownBatches):
    """The ledger of a lake. It caches the batches that it has read, as columns, and reads only the newer commits of any writer.

    Args:
        lake: the lake.
        clock: the wall clock, in epoch ms.
        store: the store of the rows; by default the lake's own table.
    """

    def __init__(self, lake: Lake, clock: Callable[[], int], store: LedgerStore | None = None) -> None:
        super().__init__(DeltaLedgerStore(lake) if store is None else store)
        self._clock = clock

    def totals(self, source: str) -> dict[str, int]:
        """The counts of a source (`COUNTS`), summed over all of its batches."""
        return self.totals_by_source().get(source) or dict.fromkeys(COUNTS, 0)

    def totals_by_source(self, after: int = 0, upto: int | None = None) -> dict[str, dict[str, int]]:
        """The counts of each source (`COUNTS`), summed over its batches with `after < seq <= upto`.

        Sources without a batch in this range are left out. If `after` is before the last summarized batch, all summarized batches count.

        Args:
            after: a batch number; 0 for all batches.
            upto: a batch number; None for the newest.
        """
        sums: dict[str, dict[str, int]] = {}
        for part in self._store.rows(["seq", "source", *COUNTS], after, self.head if upto is None else upto):
            for source in pc.unique(part["source"]):
                rows, before = part.filter(pc.equal(part["source"], source)), sums.get(source.as_py()) or {}
                sums[source.as_py()] = {name: before.get(name, 0) + (pc.sum(rows[name]).as_py() or 0) for name in COUNTS}
        return sums

    def offsets(self, source: str) -> set[str]:
        """All recorded offsets of a source (see `File.offset`), read from the store. To look up some files, use `file_records`."""
        return {offset for _, offset in self.offsets_in_order(source)}

    def offsets_in_order(self, source: str) -> list[tuple[int, str]]:
        """All recorded offsets of a source, each with its batch number, ordered by batch."""
        return offsets_in_order(self._store, source, self.head)

    def file_records(self, source: str, files: Collection[File]) -> FileRecords:
        """The ledger's records of some files of a source."""
        return self._known_files(source).records_of(files)

    def topic_ends(self, source: str) -> dict[str, int]:
        """By the path of each Kafka partition, the offset after the last one that was read."""
        return self._known_files(source).topic_ends()

    def files_to_read(self, source: str, files: Sequence[File]) -> list[File]:
        """The files that must be read: the ledger does not record their present state, or records a request to read them again."""
        records = self.file_records(source, files)
        return [file for file in files if not records.has_present_state(file)]

    def _known_files(self, source: str) -> KnownFiles:
        head = self.head  # read before `_files`, because it replaces `_files` if the ledger was created again or summarized
        return self._files.files_of(source, head)

    def wall_clock(self) -> int:
        """The wall clock in epoch ms, which decides whether a source is idle and whether an event time is in the future."""
        return self._clock()

    def now(self, after: int = 0) -> int:
        """The time for the next batch, in epoch ms: the wall clock, but always later than `after` and the newest batch's time."""
        return max(after + 1, self._next_time(self.history))

    def _next_time(self, history: History) -> int:
        return max(self._clock(), history.times[-1] + 1 if len(history.times) else 0)

    def processing_times(self, head: int, after: int = 0) -> tuple[int, pa.Array]:
        """The processing times of the batches with `after < seq <= head`; see `clocks.processing_times`.

        If the ledger begins with a summary, only the last summarized batch and later ones have known times.

        Returns:
            The batch before the first one whose time is returned: `after`, or the last batch whose time is not known if that is later.
            The times, in epoch ms, ascending.
        """
        history = self.history
        first = max(after, history.summarized - 1)
        return first, processing_times(history.clocks.between(first, head))

    def processing_time(self, seq: int) -> int | None:
        """The processing time that a batch had while it was the newest, in epoch ms; None for 0, before the first batch.

        `seq` is at most `head`, and not below the last summarized batch, because the times of the batches before it are not known.
        """
        return self.processing_times(seq, seq - 1)[1][0].as_py() if seq else None

    def was_clock_set_back(self, after: int, head: int) -> bool:
        """Whether the wall clock was set back between two successive batches with `after <= seq <= head`."""
        return is_set_back(self.history.clocks.between(max(0, after - 1), head))

    def first_batch_at(self) -> int:
        """The wall clock at the first batch, in epoch ms; the present time if there is none. `clocks.first_time` corrects a wrong clock."""
        return first_time(self.history.clocks, self.wall_clock())

    def last_active_at(self, source: str) -> int | None:
        """When rows of a source were last read, or its watermark was last set, in epoch ms of the wall clock; None if neither has happened.

        `clocks.time_of_batch` corrects a clock that was wrong then.
        """
        history = self.history
        batches, clocks, now = history.source(source), history.clocks, self.wall_clock()
        if batches.active_in is None:
            return None
        summarized = batches.before
        if summarized is not None and batches.active_in == summarized.active_in and summarized.active_at is not None:
            return time_at(summarized.active_at, clocks.between(history.summarized - 1), now)
        return time_of_batch(clocks, batches.active_in, now)

    def require(self, seq: int, recorded_in: str) -> None:
        """Raise unless the ledger has a batch that another table records.

        Args:
            seq: the batch number.
            recorded_in: the table that records it, as text for the error.

        Raises:
            LedgerError: the ledger has lost the batch.
        """
        if seq > self.head:
            raise LedgerError.too_short(self.head, seq, recorded_in, self._store.name)

    def fence(self, expected: Version | None) -> Version:
        """Make an empty commit, so that the commit of a batch that another writer began on the version `expected` fails.

        Args:
            expected: the version from `LedgerSnapshot.next_batch`; None if there is no ledger yet.

        Returns:
            The version of the empty commit.

        Raises:
            LakeError: another writer has committed since `expected` was read.
        """
        with self._mutex:
            self._history_at(expected)
            self._store.fence()
            fenced = self._store.refresh()
            if fenced is None or fenced.number != (0 if expected is None else expected.number + 1):  # another writer has committed after it
                raise LakeError.overtaken(TABLE, "batch")
            return fenced

    def commit_after(self, expected: Version | None, batches: Sequence[Batch]) -> None:
        """Commit batches as `commit` does, but only if the ledger still has the version `expected`.

        Raises:
            LakeError: another writer has committed since `expected` was read.
            LedgerError: the batches do not follow the newest one.
        """
        with self._mutex:
            self._commit(self._history_at(expected), batches)

    def _history_at(self, expected: Version | None) -> History:
        """The history, if the ledger still has the version `expected`; otherwise it raises `LakeError`."""
        history = self.history
        if self._version != expected:
            raise LakeError.overtaken(TABLE, "batch")
        return history

    def commit(self, batches: Sequence[Batch]) -> None:
        """Commit batches atomically. Their rows must already be in the logs.

        Raises:
            LakeError: another writer has committed a batch with the first of these numbers.
            LedgerError: the batches do not follow the newest one.
        """
        with self._mutex:
            self._commit(self.history, batches)

    def _commit(self, history: History, batches: Sequence[Batch]) -> None:
        """Commit on the version of `history`. The ledger is not read again here: the commit could then succeed on a newer version."""
        seqs, head = [batch[0].seq for batch in batches], history.head
        if seqs[0] <= head and seqs == list(range(seqs[0], seqs[0] + len(seqs))):
            raise LakeError.overtaken(TABLE, "batch")
        if seqs != list(range(head + 1, head + 1 + len(seqs))):
            raise LedgerError(f"batches {seqs} do not follow the ledger's newest, {head}")
        clock = self._clock()
        if head and is_reset(clock, history.clocks):
            clock = history.times[-1] + 1
        self._store.append(table_of(tuple(_with_clock(row, clock) for row in batch) for batch in batches))

    def summarize(self, expected: Version | None, batch: Batch) -> None:
        """Replace the rows of the oldest batches by a summary, atomically, and only if the ledger still has the version `expected`.

        Other processes notice the summary because the ledger then has fewer rows.

        Args:
            expected: the version for which the summary was computed.
            batch: the summary: one row for each source, with the number of the last summarized batch.

        Raises:
            LakeError: another writer has committed since `expected` was read.
            ValueError: the summary does not have fewer rows than it replaces.
        """
        with self._mutex:
            history, upto = self._history_at(expected), batch[0].seq
            if len(batch) >= history.rows_upto(upto):
                fault = f"it has {len(batch)}, and the batches up to {upto} have {history.rows_upto(upto)}"
                raise ValueError(f"a summary must have fewer rows than it replaces: {fault}")
            self._store.replace(table_of([batch]), upto)

    def compact(self) -> None:
        """Compact the ledger's files, and write a checkpoint of its log."""
        with self._mutex:
            self._store.compact()


def _with_clock(row: SourceBatch, clock: int) -> SourceBatch:
    """The row; with the wall clock if that is more than `CLOCK_STEP` behind the time of the row's batch."""
    return replace(row, clock=clock) if clock < row.ingested_at - CLOCK_STEP else row
