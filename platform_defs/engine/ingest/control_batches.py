"""Control batches, which have no rows: they set watermarks, record idle sources, move the clock, or drain.

A control batch that would change nothing is not written, so that a control call can be repeated after a crash.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from platform_defs.engine.faults import point
from platform_defs.engine.ingest.clock import Wait, clock_rows, follows_clock, may_be_pending, waiting_sources, watermark_at
from platform_defs.engine.ingest.errors import IngestError
from platform_defs.engine.ingest.idle_sources import idle_sources
from platform_defs.engine.ingest.looks import Look
from platform_defs.engine.ingest.uncommitted import clear_uncommitted
from platform_defs.engine.ingest.writer import LedgerWriter
from platform_defs.engine.ledger.ledger import Batch, Kind, Ledger, SourceBatch, next_row
from platform_defs.engine.ledger.open_batch import OpenBatch
from platform_defs.engine.ledger.snapshot import LedgerSnapshot


@dataclass(frozen=True)
class ControlBatches(LedgerWriter):
    """Writes control batches to the ledger.

    Args:
        waits: how long results may be pending, for each source whose watermark follows the clock; see `clock.waits_of`.
    """

    waits: Mapping[str, Sequence[Wait]] = field(default_factory=dict, kw_only=True)

    def watermark(self, marks: Mapping[str, int]) -> Batch | None:
        """Raise the watermarks of sources to given values (epoch ms). A value below a source's watermark has no effect.

        An idle source becomes active again, until its idle timeout has passed once more.

        Returns:
            The batch; None if every source has reached its value and none is idle.

        Raises:
            IngestError: a name is not that of a source.
        """
        return self._write("watermark", marks, lambda _: marks)

    def drain(self, longest_delay: int, sources: Collection[str] | None = None) -> Batch | None:
        """Mark the end of the input: raise the watermarks of sources to the newest event time of all of them + `longest_delay` + 1 ms.

        Idle sources become active again: the watermark of an operator whose sources are all idle does not advance. The watermark of a
        source with processing time is raised to the ledger's clock only, since a later row has a later time, and would be late otherwise.

        Args:
            longest_delay: in ms, the longest time that any result may wait for a row.
            sources: the sources whose input has ended; None for all.

        Returns:
            The batch; None if the sources have no events, or if each has reached that watermark and none is idle. A source with processing
            time counts as having reached it if no result of its tables can be pending.

        Raises:
            IngestError: a name is not that of a source.
        """
        ending = self.contracts if sources is None else sources

        def marks(last: Mapping[str, SourceBatch]) -> Mapping[str, int]:
            newest_times = [time for name in ending if name in last and (time := last[name].max_event_time) is not None]
            return dict.fromkeys(ending, max(newest_times) + longest_delay + 1) if newest_times else {}

        return self._write("drain", ending, marks)

    def record_idle_sources(self, looks: Mapping[str, Look] | None = None) -> Batch | None:
        """Record the sources without rows for longer than their idle timeout, and move the clock of sources with processing time.

        Args:
            looks: by source, the newest look for its input; see `idle_sources`.

        Returns:
            The batch; None if no source has become idle, and no result waits for the clock.
        """
        known = LedgerSnapshot.of(self.ledger)
        if not self._newly_idle(known, looks) and not self._waiting_for_clock(known):
            return None
        with self.lake.writer("ledger"):
            batch = self._begin()
            idle = self._inactive_rows(batch, looks)
            if not idle and not self._waiting_for_clock(batch.known):
                return None
            return self._commit(batch, idle)

    def _waiting_for_clock(self, known: Ledger) -> Sequence[str]:
        return waiting_sources(known, self.contracts, self.waits, known.now()) if known.head else []

    def _newly_idle(self, known: Ledger, looks: Mapping[str, Look] | None) -> Mapping[str, SourceBatch]:
        return idle_sources(known, self.contracts, known.now(), looks) if known.head else {}

    def _write(
        self, kind: Kind, names: Collection[str], marks_after: Callable[[Mapping[str, SourceBatch]], Mapping[str, int]]
    ) -> Batch | None:
        """Raise the watermarks of sources, to values that are computed under the ledger's lock, as other writers may add rows before."""
        unknown = [name for name in names if name not in self.contracts]
        if unknown:
            raise IngestError.no_source(unknown[0], self.contracts)
        with self.lake.writer("ledger"):
            batch, unchanged = self._begin(), set[str]()
            last = batch.known.newest_rows()
            marks = marks_after(last)
            if kind == "drain":
                on_clock = {name: watermark_at(self.contracts[name], batch.now) for name in marks if follows_clock(self.contracts[name])}
                marks = {name: min(watermark, on_clock.get(name, watermark)) for name, watermark in marks.items()}
                unchanged |= {name for name in on_clock if name in last and not may_be_pending(last, name, self.waits.get(name, ()))}
            if all(name in unchanged or _has_reached(last.get(name), watermark) for name, watermark in marks.items()):
                return None
            return self._commit(
                batch, tuple(_raise_mark(last.get(name), name, watermark, batch, kind) for name, watermark in marks.items())
            )

    def _commit(self, batch: OpenBatch, rows: Batch) -> Batch:
        committed = rows + clock_rows(batch.known.newest_rows(), self.contracts, batch.seq, batch.now, {row.source for row in rows})
        clear_uncommitted(self.spark, self.lake, batch, self.contracts)
        point("control_batch.before_ledger")
        batch.commit([committed])
        point("control_batch.after_ledger")
        return committed


def _has_reached(last: SourceBatch | None, watermark: int) -> bool:
    """Whether a source's watermark has reached `watermark`, and the source is not idle."""
    return last is not None and not last.idle and last.watermark is not None and last.watermark >= watermark


def _raise_mark(last: SourceBatch | None, source: str, watermark: int, batch: OpenBatch, kind: Kind) -> SourceBatch:
    row = last or SourceBatch(seq=batch.seq, kind=kind, ingested_at=batch.now, source=source)
    raised = watermark if row.watermark is None else max(watermark, row.watermark)
    return next_row(row, seq=batch.seq, kind=kind, ingested_at=batch.now, watermark=raised, idle=False)
