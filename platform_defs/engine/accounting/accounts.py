"""The accounts of a lake's assets. Each is computed from one snapshot."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date

from platform_defs.engine.accounting.account import account, count_differences, pairs
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.accounting.one_step import account_step
from platform_defs.engine.accounting.traced_rows import names_rows
from platform_defs.engine.advance.advance import Advance, Step


@dataclass(frozen=True)
class Accounts:
    """Accounts for every row of the sources that an asset reads.

    Args:
        snapshot: returns a snapshot of an asset and its inputs.
        naming_lost_files: makes an error of Spark over a missing data file name that file.
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
        """Account for the rows that one step finalized; the cost grows with the step, not with the table."""
        with self.naming_lost_files():
            return account_step(self.snapshot(asset), step)

    def pairs(self, asset: str) -> int | None:
        """The number of results with a row of every input; None if results do not name rows of sources."""
        with self.naming_lost_files():
            advance = self.snapshot(asset)
            return pairs(advance) if names_rows(advance) else None

    def count_differences(self, asset: str, days: tuple[date, date] | None = None) -> dict[tuple[str, int], tuple[int, int]]:
        """The batches for which ledger and log differ in their number of rows; see `count_differences` of `account`."""
        with self.naming_lost_files():
            return count_differences(self.snapshot(asset), days)
