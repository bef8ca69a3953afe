"""A batch of the ledger that is not committed yet, and the version of the ledger at which it began."""

from collections.abc import Sequence
from threading import Lock

from platform_defs.engine.ledger.ledger import Batch, Ledger
from platform_defs.engine.ledger.snapshot import LedgerSnapshot


class OpenBatch:
    """A batch that is not committed yet. Its commit fails if anything was committed to the ledger since the batch began.

    Args:
        ledger: the ledger.
        known: the ledger at the version that the batch follows. The ledger need not be read again for the batch: the batch's commit and
            fence fail if the ledger has another version.

    Attributes:
        seq: the batch's number.
        now: its time: the wall clock in epoch ms, later than that of the batch before.
    """

    def __init__(self, ledger: Ledger, known: LedgerSnapshot) -> None:
        self.ledger, self.known = ledger, known
        self.seq, self.now, self._expected = known.next_batch()
        self._mutex = Lock()

    @classmethod
    def begin(cls, ledger: Ledger) -> "OpenBatch":
        """Begin the batch after the newest one."""
        return cls(ledger, LedgerSnapshot(ledger))

    def fence(self) -> None:
        """Make every other open batch fail. This is required before uncommitted rows are deleted.

        The rows may belong to another process that still acts as the writer; its commit would refer to deleted rows.

        Raises:
            LakeError: another writer has committed to the ledger since this batch began.
        """
        with self._mutex:  # sources are ingested in parallel
            self._expected = self.ledger.fence(self._expected)

    def commit(self, batches: Sequence[Batch]) -> None:
        """Commit the batch, and following batches in the same commit.

        Raises:
            LakeError: another writer has committed to the ledger since this batch began.
        """
        with self._mutex:
            self.ledger.commit_after(self._expected, batches)
