"""The batches of a ledger that this process has read from its store."""

from itertools import chain, islice
from threading import RLock

from platform_defs.engine.ledger.batches import Batches, concat_parts
from platform_defs.engine.ledger.columns import pc
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.history import History, SourceHistory, newest_by_source
from platform_defs.engine.ledger.new_rows import COLUMNS
from platform_defs.engine.ledger.order import order_fault
from platform_defs.engine.ledger.recorded_files import RecordedFiles
from platform_defs.engine.ledger.rows import SCHEMA, SourceBatch, batches_of
from platform_defs.engine.ledger.store import EVERYTHING, LedgerStore, Version

_NEWEST = tuple(name for name in SCHEMA.names if name != "offsets")


class KnownBatches:
    """The batches of a ledger, cached in columns; only newer commits of any writer are read.

    If the number of rows in the store is not that of the known and the new batches, everything is read again.

    Args:
        store: the store of the ledger's rows.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._mutex = RLock()
        self._forget()

    def _forget(self) -> None:
        self._version: Version | None = None
        self._history = History()
        self._last: dict[str, SourceBatch] = {}
        self._files = RecordedFiles(self._store)

    @property
    def history(self) -> History:
        """All batches, in columns.

        Raises:
            LedgerError: a batch is missing, repeated or goes back in time, or a file cannot be read.
            LakeError: a later version of Tidemark created the lake.
        """
        with self._mutex:  # sources are ingested in parallel, and each reads it
            version = self._store.refresh()
            if version is None or (self._version is not None and version.table != self._version.table):
                self._forget()
            if version is not None and version != self._version:
                self._read_version(version)
            return self._history

    def _read_version(self, version: Version) -> None:
        self._read_rows()
        if self._history.rows != version.rows:  # rows were added to known batches
            self._forget()
            self._read_rows()
        self._version = version

    def _read_rows(self) -> None:
        """Read the rows after the known batches. Few are kept as objects; of many, only the columns are kept."""
        known_history = self._history
        parts = self._store.rows(_NEWEST, known_history.head) if known_history.head else self._store.rows(COLUMNS, EVERYTHING)
        first_part = list(islice(parts, 1)) if known_history.head else []
        new_history = known_history.with_next_batches(chain(first_part, parts))
        if new_history is None and known_history.head and self._is_summarized(known_history.head):
            self._forget()
            self._read_rows()
            return
        if new_history is None:
            raise self._corruption_error()
        self._history = new_history
        if first_part and first_part[0].num_rows == new_history.rows - known_history.rows:
            self._last |= newest_by_source(row for batch in batches_of(concat_parts(first_part, _NEWEST)) for row in batch)
            return
        newest = {
            name: seq[-1]
            for name, source in new_history.sources.items()
            if len(seq := source.columns["seq"]) and (name not in self._last or seq[-1] > self._last[name].seq)
        }
        self._last |= self._read_last(newest)

    def _read_last(self, newest: dict[str, int]) -> dict[str, SourceBatch]:
        """The newest rows of sources, given by their batch numbers."""
        last_rows: dict[str, SourceBatch] = {}
        for seq in sorted(set(newest.values())):
            rows = concat_parts(self._store.rows(_NEWEST, seq - 1, seq), _NEWEST)
            last_rows |= {row.source: row for batch in batches_of(rows) for row in batch if newest.get(row.source) == seq}
        return last_rows

    def _is_summarized(self, seq: int) -> bool:
        """Whether a summary in the store has replaced a batch and later ones."""
        return any("summary" in pc.unique(part["kind"]).to_pylist() for part in self._store.rows(["seq", "kind"], seq))

    def _corruption_error(self) -> LedgerError:
        """The error for the first new batch that does not follow the one before it, found by reading row by row."""
        head, times, last = self._history.head, self._history.times, dict(self._last)
        before = times[-1] if head else None
        for batch in batches_of(concat_parts(self._store.rows(_NEWEST, head or EVERYTHING), _NEWEST)):
            fault = order_fault(batch, head, before, last)
            if fault:
                return LedgerError.corrupted(batch[0].seq, fault, self._store.name, ", ".join(self._store.files_of(batch[0].seq)))
            head, before = batch[0].seq, batch[0].ingested_at
            last |= newest_by_source(batch)
        return LedgerError.corrupted(head, "its rows contradict each other", self._store.name, "unknown")

    @property
    def head(self) -> int:
        """The newest batch number; 0 when there is none."""
        return self.history.head

    def source(self, name: str) -> SourceHistory:
        """A source's batches, in columns."""
        return self.history.source(name)

    def snapshot(self) -> tuple[History, dict[str, SourceBatch], RecordedFiles, Version | None]:
        """All batches in columns, the newest row of each source and the recorded files, all of one version, and that version."""
        with self._mutex:
            return self.history, dict(self._last), self._files, self._version

    def batches(self) -> Batches:
        """All batches, by batch number."""
        history = self.history
        return Batches(self._store, history.head, history.summarized)

    def newest_rows(self, upto: int | None = None) -> dict[str, SourceBatch]:
        """The newest row of each source, without its offsets; with `upto`, in the batches up to that one."""
        if upto is None:
            _ = self.history
            return dict(self._last)
        batch_numbers = {name: source.table(["seq"], 0, upto)["seq"] for name, source in self.history.sources.items()}
        return self._read_last({name: seq[-1].as_py() for name, seq in batch_numbers.items() if len(seq)})

    @property
    def version(self) -> Version | None:
        """The version that was read last; None if there is no ledger yet."""
        _ = self.history
        return self._version
