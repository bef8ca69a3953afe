"""The accounts of a lake's assets. Each is computed from one snapshot."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from assets.contracts import DerivedAsset
from platform_defs.engine.accounting.account import Differences, account, count_batches, pairs
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
    """Accounts for every row of an asset's inputs.

    Args:
        snapshot: returns a snapshot of an asset and its inputs.
        naming_lost_files: returns a context in which Spark's error about a missing data file names the file.
        lake: the lake.
        assets: the derived assets, by name.
        clock: the wall clock, in epoch ms.
    """

    snapshot: Callable[[str], Advance]
    naming_lost_files: Callable[[], AbstractContextManager[None]]
    lake: Lake
    assets: Mapping[str, DerivedAsset]
    clock: Callable[[], int]

    def recorded_account(self, asset: str) -> RecordedAccount | None:
        """The newest recorded accounts of an asset; None if there are none of its present table. It needs no session."""
        return read_account(self.lake, self.assets[asset])

    def forget(self, asset: str) -> None:
        """Delete the recorded accounts of an asset, because its rows were repaired after them."""
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

    def account_for(self, asset: str, days: Days | None = None) -> tuple[list[DayAccount], Differences]:
        """Account for the rows of days (None: of all days), and record the account, so that `recorded_account` returns it.

        Returns:
            The accounts, as `days` returns them; and the batches for which ledger and log differ, as `count_differences` returns them.

        Raises:
            ProgressError: the asset's table was made with other settings.
        """
        with self.naming_lost_files():
            return self._account_for(self.snapshot(asset), days)

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
            accounts, differences = self._account_for(advance, days_of_step(advance, step))
        violations = [account_of_day for account_of_day in accounts if not account_of_day.holds]
        if violations or differences:
            raise LawError.of_table(asset, violations, differences)
        return accounts

    def _account_for(self, advance: Advance, days: Days | None) -> tuple[list[DayAccount], Differences]:
        accounts, counted = account(advance, days), count_batches(advance, days)
        record(advance.workspace.lake, advance.asset, accounts, counted, days, self.clock())
        return accounts, counted.differences

    def has_pairs(self, asset: str) -> bool:
        """Whether `pairs` counts an asset's pairs: all inputs are sources, and the results name the rows of each."""
        return names_every_row(self.assets[asset], self.assets)

    def pairs(self, asset: str) -> int | None:
        """The number of results with a row of every input; None unless `has_pairs`."""
        if not self.has_pairs(asset):
            return None
        with self.naming_lost_files():
            return pairs(self.snapshot(asset))

    def count_differences(self, asset: str, days: Days | None = None) -> Differences:
        """The batches, by source and `seq`, for which ledger and log differ in their number of rows; see `CountedBatches`."""
        with self.naming_lost_files():
            return count_batches(self.snapshot(asset), days).differences
