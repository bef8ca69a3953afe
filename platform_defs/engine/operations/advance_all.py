"""Advancing many assets beside a stream: what stops one of them does not stop the others, nor the ingest."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from platform_defs.engine.accounting.one_step import LawError
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.ledger.errors import LedgerError

FATAL = (LedgerError, LawError)
"""What no later try passes by itself: the ledger is corrupted, or rows are missing or counted twice."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 300.0


@dataclass(frozen=True)
class Failed:
    """Why an asset does not advance just now.

    Args:
        error: what its newest try ended in.
        tries: how many tries failed one after the other.
        wait_s: how long it is left alone now.
        until: when it is tried again, by the clock of the caller.
    """

    error: Exception
    tries: int
    wait_s: float
    until: float


@dataclass
class AdvanceAll:
    """Advances assets in their order, each as far as it goes.

    An asset that fails is reported and left alone for 1 s, then for twice as long after each failure, for 5 minutes at most. Other
    assets go on, those made of it too: they read as much of it as there is. A broken ledger or conservation law is raised.

    Args:
        steps: advances one asset.
        assets: the assets, each after those that it is made of.
        report: called when an asset failed.
        now: a clock that never goes back, in s.
    """

    steps: Callable[[str], Iterable[Step]]
    assets: Sequence[str]
    report: Callable[[str, Failed], None]
    now: Callable[[], float] = time.monotonic
    failed: dict[str, Failed] = field(default_factory=dict, init=False)

    def __call__(self) -> None:
        """Advance every asset that is not left alone just now.

        Raises:
            LedgerError: the ledger is corrupted.
            LawError: a step broke the conservation law.
        """
        for name in self.assets:
            if name not in self.failed or self.now() >= self.failed[name].until:
                self._advance(name)

    def retry(self) -> None:
        """Advance again if the time of a failed asset has come; what is made of it follows."""
        if any(self.now() >= f.until for f in self.failed.values()):
            self()

    def _advance(self, name: str) -> None:
        try:
            for _ in self.steps(name):
                pass
        except FATAL:
            raise
        except Exception as error:
            tries = self.failed[name].tries + 1 if name in self.failed else 1
            wait_s = min(_FIRST_WAIT_S * 2 ** min(tries - 1, 30), _LONGEST_WAIT_S)
            self.failed[name] = Failed(error, tries, wait_s, self.now() + wait_s)
            self.report(name, self.failed[name])
        else:
            self.failed.pop(name, None)
