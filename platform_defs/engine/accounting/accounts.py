"""The accounts of a lake's assets: each of one snapshot."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date

from platform_defs.engine.accounting.account import account, pairs, uncounted_entries
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.accounting.one_step import account_step
from platform_defs.engine.accounting.traced_rows import names_rows
from platform_defs.engine.advance.advance import Advance, Step


@dataclass(frozen=True)
class Accounts:
    """Accounts for every row of the sources that an asset reads.

    Args:
        snapshot: an asset and its inputs as they are now.
        naming_lost_files: names the file where Spark fails over one that is missing.
    """

    snapshot: Callable[[str], Advance]
    naming_lost_files: Callable[[], AbstractContextManager[None]]

    def days(self, asset: str, days: tuple[date, date] | None = None) -> list[DayAccount]:
        """Account for the rows by side and by the day of their event time; see `account`.

        Raises:
            ProgressError: the asset's table was made with other settings.
        """
        with self.naming_lost_files():
            return account(self.snapshot(asset), days)

    def step(self, asset: str, step: Step) -> list[DayAccount]:
        """Account for the rows that one step finalized, at the cost of the step."""
        with self.naming_lost_files():
            return account_step(self.snapshot(asset), step)

    def pairs(self, asset: str) -> int | None:
        """How many results are made of a row of every input; None where results do not name rows of sources."""
        with self.naming_lost_files():
            advance = self.snapshot(asset)
            return pairs(advance) if names_rows(advance) else None

    def uncounted(self, asset: str, days: tuple[date, date] | None = None) -> dict[tuple[str, int], tuple[int, int]]:
        """Where ledger and log disagree about an asset's sources: (source, seq) to accepted and held; by the rows' days."""
        with self.naming_lost_files():
            return uncounted_entries(self.snapshot(asset), days)
