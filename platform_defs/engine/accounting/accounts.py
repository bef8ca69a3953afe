"""The accounts of a lake's assets. Each is computed from one snapshot."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from assets.contracts import DerivedAsset
from platform_defs.engine.accounting.account import account, count_differences, pairs
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.accounting.days_of_step import Days, days_of_step
from platform_defs.engine.accounting.matches import DayMatches, matches
from platform_defs.engine.accounting.one_step import LawError, account_step
from platform_defs.engine.accounting.recorded_account import RecordedAccount, forget, read_account, record
from platform_defs.engine.accounting.traced_rows import names_every_row
from platform_defs.engine.advance.advance import Advance, Step
from platform_defs.engine.lake.tables import Lake


@dataclass(frozen=True)
class Accounts:
    """Accounts for every row of the sources that an asset reads.

    Args:
        snapshot: returns a snapshot of an asset and its inputs.
        naming_lost_files: makes an error of Spark over a missing data file name that file.
        lake: the lake.
        assets: the derived assets, by name.
        clock: the wall clock, in epoch ms.
    """

    snapshot: Callable[[str], Advance]
    naming_lost_files: Callable[[], AbstractContextManager[None]]
    lake: Lake
    assets: Mapping[str, DerivedAsset]
    clock: Callable[[], int]

    def record(
        self,
        asset: str,
        accounts: Iterable[DayAccount],
        differences: Mapping[tuple[str, int], tuple[int, int]],
        days: Days | None = None,
    ) -> None:
        """Keep accounts of days (None: of all days) in place of earlier ones, so that `recorded_account` returns them.

        Args:
            asset: the asset.
            accounts: the accounts, as `days` returns them.
            differences: the batches whose row counts differ, as `count_differences` returns them.
            days: the first and the last day that the accounts cover.
        """
        record(self.lake, self.assets[asset], accounts, differences, days, self.clock())

    def recorded_account(self, asset: str) -> RecordedAccount | None:
        """The newest recorded accounts of an asset; None if there are none of its present table. It needs no session."""
        return read_account(self.lake, self.assets[asset])

    def forget(self, asset: str) -> None:
        """Delete the recorded accounts of an asset, because its rows were repaired since."""
        forget(self.lake, self.assets[asset])

    def days(self, asset: str, days: Days | None = None) -> list[DayAccount]:
        """Account for the rows by side and by the day of their event time; see `account`.

        Raises:
            ProgressError: the asset's table was made with other settings.
        """
        with self.naming_lost_files():
            return account(self.snapshot(asset), days)

    def matches(self, asset: str, days: Days | None = None) -> list[DayMatches]:
        """Count the matched, unmatched and late rows of a join, by side and day; see `matches`."""
        with self.naming_lost_files():
            return matches(self.snapshot(asset), days)

    def step(self, asset: str, step: Step) -> list[DayAccount]:
        """Account for the rows that one step finalized; the cost grows with the step, not with the table."""
        with self.naming_lost_files():
            return account_step(self.snapshot(asset), step)

    def check(self, asset: str, step: Step) -> list[DayAccount]:
        """Account for the days that a step has changed, and record the account. For an upserted table these are all days.

        Returns:
            The accounts, one for each side and day.

        Raises:
            LawError: the conservation law does not hold, or ledger and log differ in their number of rows.
            ProgressError: the asset's table was made with other settings.
        """
        with self.naming_lost_files():
            advance = self.snapshot(asset)
            days = days_of_step(advance, step)
            accounts, differences = account(advance, days), count_differences(advance, days)
        self.record(asset, accounts, differences, days)
        violations = [account_of_day for account_of_day in accounts if not account_of_day.holds]
        if violations or differences:
            raise LawError.of_table(asset, violations, differences)
        return accounts

    def pairs(self, asset: str) -> int | None:
        """The number of results with a row of every input; None unless all inputs are sources, and results name the rows of each."""
        with self.naming_lost_files():
            advance = self.snapshot(asset)
            return pairs(advance) if names_every_row(advance) else None

    def count_differences(self, asset: str, days: Days | None = None) -> dict[tuple[str, int], tuple[int, int]]:
        """The batches for which ledger and log differ in their number of rows; see `count_differences` of `account`."""
        with self.naming_lost_files():
            return count_differences(self.snapshot(asset), days)
