"""A batch of the ledger that is being made, bound to the version of the ledger that it began with."""

from collections.abc import Sequence
from threading import Lock

from platform_defs.engine.ledger.ledger import Entry, Ledger
from platform_defs.engine.ledger.store import Version


class Batch:
    """A batch that is being made. Its commit lands only where nothing was committed to the ledger since it began.

    Args:
        ledger: the ledger.
        seq: the batch's number.
        now: when it is made: the wall clock in epoch ms, later than the batch before.
        seen: the ledger's version that it follows; None where there is no ledger yet.
    """

    def __init__(self, ledger: Ledger, seq: int, now: int, seen: Version | None) -> None:
        self.ledger, self.seq, self.now = ledger, seq, now
        self._seen = seen
        self._mutex = Lock()

    @classmethod
    def begin(cls, ledger: Ledger) -> "Batch":
        """Begin a batch: the one after the newest."""
        return cls(ledger, *ledger.next_batch())

    def fence(self) -> None:
        """Refuse every other batch that is being made: whoever deletes rows that no batch names does this first.

        The rows may be another's who still believes to be the writer. That one's commit would name rows that are gone.

        Raises:
            LakeError: another has committed to the ledger since this batch began.
        """
        with self._mutex:  # sources are ingested side by side
            self._seen = self.ledger.fence(self._seen)

    def commit(self, entries: Sequence[Entry]) -> None:
        """Commit the batch, and those that follow it in the same commit.

        Raises:
            LakeError: another has committed to the ledger since this batch began.
        """
        with self._mutex:
            self.ledger.commit_after(self._seen, entries)
