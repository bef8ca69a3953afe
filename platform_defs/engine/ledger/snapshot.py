"""The ledger as it is at one batch: what a step, an account and a status compute from."""

from platform_defs.engine.ledger.columns import pc
from platform_defs.engine.ledger.history import History
from platform_defs.engine.ledger.ledger import Ledger, SourceEntry


class LedgerView(Ledger):
    """A ledger as it is now, whatever is committed later.

    Args:
        ledger: the ledger as it goes on.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._live, self._clock, self._store = ledger, ledger._clock, ledger._store
        self._pinned = ledger.history

    @classmethod
    def of(cls, ledger: Ledger) -> "LedgerView":
        """A ledger as it is now; a view is the one it is."""
        return ledger if isinstance(ledger, LedgerView) else cls(ledger)

    @property
    def history(self) -> History:
        """What was known of all batches then."""
        return self._pinned

    def last(self) -> dict[str, SourceEntry]:
        """What was last recorded of each source then, without its offsets."""
        live = self._live.last()
        newest = {name: of.columns["seq"][-1] for name, of in self._pinned.sources.items()}
        earlier = self._read_last({name: seq for name, seq in newest.items() if live[name].seq != seq})
        return {name: earlier.get(name, live[name]) for name in newest}

    def require(self, seq: int, witness: str) -> None:
        """Pass if the ledger has a batch that another table records; see `Ledger.require`."""
        self._live.require(seq, witness)


def last_with_rows(ledger: Ledger, source: str, head: int | None = None) -> int:
    """The newest batch that brought rows of a source to its log; 0 where none did.

    No row of the source with a later `seq` counts, though the batch of that number be there: an ingest that was killed left it while
    the source was away from the pipeline.
    """
    rows = ledger.source(source).table(["seq", "accepted"], 0, head)
    return pc.max(rows["seq"].filter(pc.greater(rows["accepted"], 0))).as_py() or 0
