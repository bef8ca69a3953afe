"""A snapshot of the ledger at one batch, from which a step, an account and a status are computed."""

from platform_defs.engine.ledger.history import History
from platform_defs.engine.ledger.ledger import Ledger, SourceBatch
from platform_defs.engine.ledger.store import Version


class LedgerSnapshot(Ledger):
    """A snapshot of a ledger: its history, and the newest row of each source, are those of one version, whatever is committed later.

    `batches`, `offsets`, totals, and `newest_rows` of earlier batches are read from the store: of the same batches, unless retention
    replaces some of them by a summary meanwhile. The records of files are those of the ledger itself, so `file_records`, `files_to_read`
    and `topic_ends` may include later batches. A snapshot is only read: the methods of `Ledger` that commit fail.

    Args:
        ledger: the ledger itself.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._live, self._clock, self._store = ledger, ledger._clock, ledger._store
        self._snapshot, self._newest, self._files, self._version = ledger.snapshot()

    @classmethod
    def of(cls, ledger: Ledger) -> "LedgerSnapshot":
        """A snapshot of a ledger; a snapshot is returned unchanged."""
        return ledger if isinstance(ledger, LedgerSnapshot) else cls(ledger)

    @property
    def history(self) -> History:
        """All batches up to the snapshot, in columns."""
        return self._snapshot

    @property
    def version(self) -> Version | None:
        """The version of the snapshot; None if there was no ledger."""
        return self._version

    def next_batch(self) -> tuple[int, int, Version | None]:
        """The number and the time (epoch ms) of the batch after the snapshot, and the version that it follows, for `OpenBatch`."""
        return self.head + 1, self._next_time(self.history), self.version

    def newest_rows(self, upto: int | None = None) -> dict[str, SourceBatch]:
        """The newest row of each source, without its offsets, up to the snapshot or in the batches up to `upto`."""
        return dict(self._newest) if upto is None else super().newest_rows(upto)

    def require(self, seq: int, recorded_in: str) -> None:
        """Raise unless the ledger has a batch that another table records. If the snapshot lacks the batch, the ledger itself is read."""
        if seq > self.head:
            self._live.require(seq, recorded_in)


def last_with_rows(ledger: Ledger, source: str, head: int | None = None) -> int:
    """The newest batch with accepted rows of a source, up to the batch `head` if it is given; 0 if there is none.

    Rows in the source's log with a later `seq` are uncommitted, even if a batch with that number exists: a killed ingest can leave them
    before the source is removed from the pipeline for a while.
    """
    history = ledger.source(source)
    return (history.accepted_in if head is None else history.accepted_upto(head)) or 0


def last_with_rejected_rows(ledger: Ledger, source: str) -> int:
    """The newest batch with quarantined rows of a source; 0 if there is none. Later rows in the quarantine are uncommitted."""
    return ledger.source(source).rejected_in or 0
