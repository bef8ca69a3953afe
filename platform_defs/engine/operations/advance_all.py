"""Advance many assets while a stream ingests: an asset that fails stops neither the other assets nor the ingest."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from platform_defs.engine.accounting.one_step import LawError
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.lake.errors import LakeBusy
from platform_defs.engine.lake.lost_jvm import lost_jvm
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.operations.in_parallel import advance_in_parallel

FATAL = (LedgerError, LawError)
"""Errors that a retry cannot fix: the ledger is corrupted, or rows are missing or counted twice."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 300.0
BUSY_WAIT_S = 2.0
"""The wait before the next try if a table has another writer: a rebuild, a backfill or maintenance."""


@dataclass(frozen=True)
class PendingRetry:
    """The failure of an asset that waits for its next try.

    Args:
        error: the error of the newest try.
        tries: the number of tries in a row that failed in the same way: because of another writer, or with another error.
        wait_s: the wait before the next try, in seconds.
        until: the time of the next try, by the clock of `AdvanceAll`.
    """

    error: Exception
    tries: int
    wait_s: float
    until: float

    @classmethod
    def after(cls, before: "PendingRetry | None", error: Exception, now: float) -> "PendingRetry":
        """The failure of a try, given the failure of the try before, if it failed too."""
        is_busy = isinstance(error, LakeBusy)
        tries = before.tries + 1 if before is not None and before.is_busy == is_busy else 1
        wait_s = BUSY_WAIT_S if is_busy else min(_FIRST_WAIT_S * 2 ** min(tries - 1, 30), _LONGEST_WAIT_S)
        return cls(error, tries, wait_s, now + wait_s)

    @property
    def is_busy(self) -> bool:
        """Whether the try failed because the table has another writer, or another writer waits for the table. This is not a fault."""
        return isinstance(self.error, LakeBusy)

    @property
    def should_be_reported(self) -> bool:
        """Whether to report this failure. If the table has another writer, only the tries 1, 2, 4, 8 and so on are reported."""
        return not self.is_busy or self.tries & (self.tries - 1) == 0


@dataclass
class AdvanceAll:
    """Advances assets in parallel, each after its inputs, and as far as its watermark allows.

    An asset that fails is reported and waits for 1 s, and for twice as long after each further failure, up to 5 minutes. An asset with
    another writer waits for 2 s. Other assets continue, and those that read the failed asset read the results that it has. An error of
    `FATAL`, or the end of the JVM, is raised.

    Args:
        steps: advances one asset; called in several threads.
        reads: the inputs of each asset, by its name.
        report: called when an asset failed.
        now: a monotonic clock, in seconds.
    """

    steps: Callable[[str], Generator[Step]]
    reads: Mapping[str, Sequence[str]]
    report: Callable[[str, PendingRetry], None]
    now: Callable[[], float] = time.monotonic
    failed: dict[str, PendingRetry] = field(default_factory=dict, init=False)

    def __call__(self) -> None:
        """Advance every asset that does not wait for its next try.

        Raises:
            LedgerError: the ledger is corrupted.
            LawError: a step broke the conservation law.
            JvmLostError: the JVM has ended.
        """
        names = [name for name in self.reads if name not in self.failed or self.now() >= self.failed[name].until]
        advance_in_parallel(self.reads, names, self._steps)
        for name in names:  # report after all have ended: an interrupt cancels jobs, and their errors are not failures
            if name in self.failed and self.failed[name].should_be_reported:
                self.report(name, self.failed[name])

    def retry(self) -> None:
        """If the wait of a failed asset has ended, advance every asset that does not wait."""
        if any(self.now() >= f.until for f in self.failed.values()):
            self()

    def _steps(self, name: str) -> Generator[Step]:
        try:
            yield from self.steps(name)
        except FATAL:
            raise
        except Exception as error:
            if (jvm_error := lost_jvm(error)) is not None:
                raise jvm_error from error
            self.failed[name] = PendingRetry.after(self.failed.get(name), error, self.now())
        else:
            self.failed.pop(name, None)
