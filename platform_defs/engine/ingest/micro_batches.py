"""Runs the micro-batches of a stream. At an interval without new input it writes a control batch for idle sources and the clock instead."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from platform_defs.engine.formats.files import File
from platform_defs.engine.lake.errors import LakeBusy, LakeError
from platform_defs.engine.lake.lost_jvm import lost_jvm
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.ledger import Batch

MAX_BATCHES_KEPT = 1_000
"""The number of newest batches that a stream keeps in memory."""
BUSY_PATIENCE_S = 600.0
"""How long a micro-batch of a continuous stream waits for another process that writes the ledger, in seconds."""
LOOK_AGAIN_AFTER_MS = 60_000
"""How long a continuous stream ingests the files of one look, in ms of the wall clock. If files are left then, it looks for input again."""
_MIN_INGEST_PER_LISTING = 9
"""A continuous stream also ingests for at least this many times as long as the listing of the files took before it looks again. So listing
takes at most a tenth of the time in which a backlog is read."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0
_log = logging.getLogger(__name__)


@dataclass
class MicroBatches:
    """Runs the micro-batches of a stream.

    Args:
        ingest: ingests files as one batch of the ledger; returns None if no file was new.
        record_idle: writes a control batch for sources that became idle, or for the clock; returns None if none was needed.
        on_batch: called after each batch is committed.
        on_quiet: called at an interval without a new batch.
        patience_s: how long to wait for another process that writes the ledger; 0 for no wait.
        look_again_after_ms: how long to ingest the files of one look before the next look, in ms (see `LOOK_AGAIN_AFTER_MS`); None to
            ingest all of them.
        sleep: waits for some seconds.
    """

    ingest: Callable[[Sequence[File]], Batch | None]
    record_idle: Callable[[], Batch | None]
    on_batch: Callable[[Batch], None]
    on_quiet: Callable[[], None]
    patience_s: float = 0.0
    look_again_after_ms: int | None = None
    sleep: Callable[[float], None] = time.sleep
    batches: deque[Batch] = field(default_factory=lambda: deque(maxlen=MAX_BATCHES_KEPT), init=False)

    @property
    def newest(self) -> Batch | None:
        """The newest batch; None if there is none yet."""
        return self.batches[-1] if self.batches else None

    def must_look_again(self, *, listing_ms: int, batches_ms: int) -> bool:
        """Whether the micro-batches since a look have taken so long that the stream looks again before it ingests the remaining files.

        Args:
            listing_ms: how long listing the files took, in ms.
            batches_ms: how long the micro-batches have taken since, in ms.
        """
        return self.look_again_after_ms is not None and batches_ms > max(self.look_again_after_ms, _MIN_INGEST_PER_LISTING * listing_ms)

    def files(self, files: Sequence[File]) -> None:
        """Ingest the files of a micro-batch.

        Raises:
            LakeBusy: another process wrote the ledger for longer than `patience_s`.
        """
        self._report_batch(self._retry_while_busy(partial(self.ingest, files)))

    def quiet(self) -> None:
        """Write a control batch for idle sources and the clock, if needed. An error is logged, and the next interval tries again.

        Raises:
            LedgerError: the ledger is corrupted, so that a retry cannot succeed.
            JvmLostError: the JVM has ended.
        """
        try:
            batch = self.record_idle()
        except LedgerError:
            raise
        except Exception as error:
            if (jvm_error := lost_jvm(error)) is not None:
                raise jvm_error from error
            reason = str(error) if isinstance(error, LakeError) else type(error).__name__  # Spark's text may quote rows
            _log.warning("idle sources could not be recorded; the next interval tries again: %s", reason)
            return
        self.on_quiet() if batch is None else self._report_batch(batch)

    def _report_batch(self, batch: Batch | None) -> None:
        if batch is not None:
            self.batches.append(batch)
            self.on_batch(batch)

    def _retry_while_busy(self, ingest: Callable[[], Batch | None]) -> Batch | None:
        waited = 0.0
        for wait in _waits():
            try:
                return ingest()
            except LakeBusy as busy:
                if waited >= self.patience_s:
                    raise
                _log.warning("the micro-batch waits %.0f s: %s", wait, busy)
            self.sleep(wait)
            waited += wait
        raise AssertionError("waits have no end")


def _waits() -> Iterable[float]:
    wait = _FIRST_WAIT_S
    while True:
        yield wait
        wait = min(2 * wait, _LONGEST_WAIT_S)
