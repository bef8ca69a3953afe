"""Entries without rows: a given watermark, sources fallen idle, the end of the input.

A signal that would change nothing writes nothing, so one whose fate a crash left open can be given again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from platform_defs.engine.ingest.errors import IngestError
from platform_defs.engine.ingest.ingest import idle_sources
from platform_defs.engine.ingest.uncommitted import clear_orphans
from platform_defs.engine.ingest.writer import LedgerWriter
from platform_defs.engine.ledger.ledger import Entry, Kind, SourceEntry, moved
from platform_defs.engine.ledger.open_batch import Batch
from platform_defs.faults import point


@dataclass(frozen=True)
class Signals(LedgerWriter):
    """Writes the ledger's entries without rows."""

    def watermark(self, given: Mapping[str, int]) -> Entry | None:
        """Lift sources to given watermarks (epoch ms). One below a source's own changes nothing: it never goes back.

        A source that was idle takes part again, until it has been silent for its idle timeout anew.

        Returns:
            The entry; None where every source has reached its mark and none is idle.
        """
        return self._write("watermark", given)

    def drain(self, reach: int) -> Entry | None:
        """Close the end of the input: lift every source past the newest event of all, by `reach` and 1 ms.

        Idle sources take part again: an operator whose sources are all idle stands still, whatever their watermarks are.

        Args:
            reach: in ms, the longest that any result may wait for a row.

        Returns:
            The entry; None where no event was ever seen, or every source is past it already and none is idle.
        """
        seen = [s.max_event_time for s in self.ledger.last().values() if s.max_event_time is not None]
        return self._write("drain", dict.fromkeys(self.contracts, max(seen) + reach + 1)) if seen else None

    def idle(self) -> Entry | None:
        """Record the sources that have been silent for longer than their idle timeout; None when there is none."""
        if not self._silent():
            return None
        with self.lake.writer("ledger"):
            batch, silent = self._begin(), self._silent()
            entry = tuple(moved(s, seq=batch.seq, kind="silent", ingested_at=batch.now, idle=True) for s in silent.values())
            return self._commit(batch, entry) if entry else None

    def _silent(self) -> Mapping[str, SourceEntry]:
        return idle_sources(self.ledger, self.contracts, self.ledger.now()) if self.ledger.head else {}

    def _write(self, kind: Kind, given: Mapping[str, int]) -> Entry | None:
        unknown = [name for name in given if name not in self.contracts]
        if unknown:
            raise IngestError.no_source(unknown[0], self.contracts)
        with self.lake.writer("ledger"):
            batch, last = self._begin(), self.ledger.last()
            if all(_stands(last.get(name), mark) for name, mark in given.items()):
                return None
            return self._commit(batch, tuple(_lifted(last.get(name), name, mark, batch, kind) for name, mark in given.items()))

    def _commit(self, batch: Batch, entry: Entry) -> Entry:
        clear_orphans(self.spark, self.lake, batch, self.contracts)
        point("signals.before_ledger")
        batch.commit([entry])
        point("signals.after_ledger")
        return entry


def _stands(last: SourceEntry | None, mark: int) -> bool:
    """Whether a source's watermark has reached a mark, and holds the watermarks of its readers."""
    return last is not None and not last.idle and last.watermark is not None and last.watermark >= mark


def _lifted(last: SourceEntry | None, source: str, mark: int, batch: Batch, kind: Kind) -> SourceEntry:
    row = last or SourceEntry(seq=batch.seq, kind=kind, ingested_at=batch.now, source=source)
    lifted = mark if row.watermark is None else max(mark, row.watermark)
    return moved(row, seq=batch.seq, kind=kind, ingested_at=batch.now, watermark=lifted, idle=False)
