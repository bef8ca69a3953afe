"""Checks the conservation law for all tables of a stream: they are accounted for in turn, within a share of the stream's time.

An account may cost as much as a step, or more, and a stream makes small steps. So the tables that have changed wait for their accounts. The
table that has waited longest is next, and accounts stop when they have used their share of the time. An expensive account thus makes the
accounts of all tables less frequent. When a continuous stream ends, tables that still wait are not accounted for. The next stream accounts
for such a table after its next step.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from platform_defs.engine.accounting.one_step import LawError
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.lake.lost_jvm import lost_jvm

SHARE = 0.15
"""The share of the stream's time that accounts may take on average; time in which the stream waits for files counts too."""
MOST_SAVED_S = 10.0
"""The most unused time that accounts may use later, in seconds. Without a limit, accounts could stop the stream for long after a quiet
night."""


@dataclass
class StreamAccounting:
    """Accounts for the changed tables of a stream.

    Args:
        account: accounts for the days that a step of a table has changed; raises `LawError` if the law does not hold.
        report: called when an account fails with another error than `LawError`; the next try is after the table's next step.
        share: the share of the time that accounts may take.
        most_saved_s: the most unused time that accounts may use later, in seconds.
        now: a monotonic clock, in seconds.
    """

    account: Callable[[str, Step], object]
    report: Callable[[str, Exception], None]
    share: float = SHARE
    most_saved_s: float = MOST_SAVED_S
    now: Callable[[], float] = time.monotonic
    _waiting: dict[str, Step] = field(default_factory=dict, init=False)
    _failed: dict[str, Step] = field(default_factory=dict, init=False)
    _saved_s: float = field(default=0.0, init=False)
    _last_look_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._last_look_s = self.now()

    def note_step(self, asset: str, step: Step) -> None:
        """Note a step of a table, whose account then waits. Several steps of a table that wait are accounted for as one."""
        earlier = self._waiting.get(asset) or self._failed.pop(asset, None)
        self._waiting[asset] = step if earlier is None else Step(earlier.before, step.after, earlier.rows + step.rows)

    def __call__(self) -> list[str]:
        """Account for changed tables, as long as accounts have time left of their share.

        Returns:
            The tables for which the law holds.

        Raises:
            LawError: the law does not hold for a table.
            JvmLostError: the JVM has ended.
        """
        self._saved_s = min(self._saved_s + self.share * self._elapsed(), self.most_saved_s)
        assets_without_violation = list[str]()
        for asset in [*self._waiting]:
            if self._saved_s <= 0:
                break
            if self._law_holds(asset):
                assets_without_violation.append(asset)
            self._saved_s -= self._elapsed()
        return assets_without_violation

    def account_rest(self) -> list[str]:
        """Account for all waiting tables without a limit of time, at the end of a bounded stream.

        Returns:
            The tables for which the law holds.

        Raises:
            LawError: the law does not hold for a table.
            JvmLostError: the JVM has ended.
        """
        return [asset for asset in [*self._waiting] if self._law_holds(asset)]

    def _elapsed(self) -> float:
        """The seconds since the last call."""
        before, self._last_look_s = self._last_look_s, self.now()
        return self._last_look_s - before

    def _law_holds(self, asset: str) -> bool:
        step = self._waiting.pop(asset)
        try:
            self.account(asset, step)
        except LawError:
            raise
        except Exception as error:
            if (jvm_error := lost_jvm(error)) is not None:
                raise jvm_error from error
            self._failed[asset] = step
            self.report(asset, error)
            return False
        return True
