"""The ledger as it is at one batch: what a step, an account and a status compute from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from platform_defs.engine.ledger import Entry, Ledger, SourceEntry


@dataclass(frozen=True)
class LedgerView:
    """The batches of a ledger up to one, whatever is committed later.

    Args:
        ledger: the ledger as it goes on.
        head: the last batch.
    """

    ledger: Ledger
    head: int

    @classmethod
    def of(cls, ledger: "Ledger | LedgerView") -> "LedgerView":
        """A ledger as it is now; a view is the one it is."""
        return ledger if isinstance(ledger, LedgerView) else cls(ledger, ledger.head)

    @cached_property
    def _entries(self) -> Sequence[Entry]:
        return self.ledger.entries()[: self.head]

    def entries(self) -> Sequence[Entry]:
        """The batches, by `seq`; the batch with `seq` n stands at index n - 1."""
        return self._entries

    def last(self) -> dict[str, SourceEntry]:
        """The newest row of each source."""
        if self.ledger.head == self.head:
            return self.ledger.last()
        return {of_source.source: of_source for entry in self._entries for of_source in entry}

    def now(self, after: int = 0) -> int:
        """The wall clock for the next batch; see `Ledger.now`."""
        return self.ledger.now(after)

    def require(self, seq: int, witness: str) -> None:
        """Pass if the ledger has a batch that another table records; see `Ledger.require`."""
        self.ledger.require(seq, witness)


def last_with_rows(entries: Sequence[Entry], source: str, quarantined: bool = False) -> int:
    """The newest batch that brought rows of a source to its log, or to its quarantine; 0 where none did.

    No row of the source with a later `seq` counts, though the batch of that number be there: an ingest that was killed left it while
    the source was away from the pipeline.
    """
    for entry in reversed(entries):
        for of_source in entry:
            if of_source.source == source and (of_source.quarantined if quarantined else of_source.accepted):
                return of_source.seq
    return 0
