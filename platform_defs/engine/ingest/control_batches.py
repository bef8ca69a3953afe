"""Control batches, which have no rows: they set watermarks, record idle sources, or drain.

A control batch that would change nothing is not written, so that a control call can be repeated after a crash.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from platform_defs.engine.ingest.errors import IngestError
from platform_defs.engine.ingest.idle_sources import idle_sources
from platform_defs.engine.ingest.uncommitted import clear_uncommitted
from platform_defs.engine.ingest.writer import LedgerWriter
from platform_defs.engine.ledger.ledger import Entry, Kind, SourceEntry, moved
from platform_defs.engine.ledger.open_batch import Batch
from platform_defs.faults import point


@dataclass(frozen=True)
class Signals(LedgerWriter):
    """Writes control batches to the ledger."""

    def watermark(self, given: Mapping[str, int]) -> Entry | None:
        """Raise the watermarks of sources to given values (epoch ms). A value below a source's watermark has no effect.

        An idle source becomes active again, until its idle timeout has passed once more.

        Returns:
            The batch; None if every source has reached its value and none is idle.
        """
        return self._write("watermark", given)

    def drain(self, reach: int) -> Entry | None:
        """Mark the end of the input: raise every source's watermark to the newest event time of all sources + `reach` + 1 ms.

        Idle sources become active again: the watermark of an operator whose sources are all idle does not advance.

        Args:
            reach: in ms, the longest time that any result may wait for a row.

        Returns:
            The batch; None if there are no events, or if every source has reached that watermark and none is idle.
        """
        seen = [s.max_event_time for s in self.ledger.last().values() if s.max_event_time is not None]
        return self._write("drain", dict.fromkeys(self.contracts, max(seen) + reach + 1)) if seen else None

    def idle(self) -> Entry | None:
        """Record the sources without rows for longer than their idle timeout; None if there is none."""
        if not self._newly_idle():
            return None
        with self.lake.writer("ledger"):
            batch, idle = self._begin(), self._newly_idle()
            entry = tuple(moved(s, seq=batch.seq, kind="silent", ingested_at=batch.now, idle=True) for s in idle.values())
            return self._commit(batch, entry) if entry else None

    def _newly_idle(self) -> Mapping[str, SourceEntry]:
        return idle_sources(self.ledger, self.contracts, self.ledger.now()) if self.ledger.head else {}

    def _write(self, kind: Kind, given: Mapping[str, int]) -> Entry | None:
        unknown = [name for name in given if name not in self.contracts]
        if unknown:
            raise IngestError.no_source(unknown[0], self.contracts)
        with self.lake.writer("ledger"):
            batch, last = self._begin(), self.ledger.last()
            if all(_has_reached(last.get(name), mark) for name, mark in given.items()):
                return None
            return self._commit(batch, tuple(_raised(last.get(name), name, mark, batch, kind) for name, mark in given.items()))

    def _commit(self, batch: Batch, entry: Entry) -> Entry:
        clear_uncommitted(self.spark, self.lake, batch, self.contracts)
        point("signals.before_ledger")
        batch.commit([entry])
        point("signals.after_ledger")
        return entry


def _has_reached(last: SourceEntry | None, mark: int) -> bool:
    """Whether a source's watermark has reached `mark`, and the source is not idle."""
    return last is not None and not last.idle and last.watermark is not None and last.watermark >= mark


def _raised(last: SourceEntry | None, source: str, mark: int, batch: Batch, kind: Kind) -> SourceEntry:
    row = last or SourceEntry(seq=batch.seq, kind=kind, ingested_at=batch.now, source=source)
    raised = mark if row.watermark is None else max(mark, row.watermark)
    return moved(row, seq=batch.seq, kind=kind, ingested_at=batch.now, watermark=raised, idle=False)
