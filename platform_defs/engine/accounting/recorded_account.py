"""The newest account of each table, kept in the lake, so that a status can show it without computing it again.

Each table has one small JSON file in the lake's folder `_accounts`, with the newest account of each side and day. A file that cannot be
read is ignored, and so are the accounts of a table that was rebuilt or created again since then. If a table is rebuilt or repaired while
its account is computed, the account is not recorded.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

from deltalake.exceptions import DeltaError

from assets.contracts import DerivedAsset
from assets.ports import TERMS
from platform_defs.engine.accounting.account import CountedBatches
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.accounting.days_of_step import Days
from platform_defs.engine.inputs.progress import PROGRESS, Progress, results_table, stored_progress, table_identity
from platform_defs.engine.lake.data_files import filesystem, replace_file
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.lake.tables import Lake

FOLDER = "_accounts"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecordedDay:
    """The newest account of one side and day.

    Args:
        side: the input.
        day: the day, as text: YYYY-MM-DD.
        at: when it was computed, in epoch ms of the wall clock.
        holds: whether the conservation law held.
        terms: the rows by term (`accepted`, `matched` and so on).
        found_in: None if this day is among the days that the account covered. Otherwise the first and the last day that it covered, while
            missing or extra results were on this other day.
    """

    side: str
    day: str
    at: int
    holds: bool
    terms: dict[str, int]
    found_in: tuple[str, str] | None = None

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "RecordedDay":
        """An account from its JSON.

        Raises:
            ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError: the JSON is not an account.
        """
        terms, found_in = {str(term): int(rows) for term, rows in stored["terms"].items()}, stored.get("found_in")
        days = None if found_in is None else (_day(found_in[0]), _day(found_in[1]))
        return cls(str(stored["side"]), _day(stored["day"]), int(stored["at"]), bool(stored["holds"]), terms, days)

    def is_covered_by(self, days: Days) -> bool:
        """Whether an account of the days `days` replaces this one."""
        first, last = map(str, days)
        return first <= self.day <= last or (self.found_in is not None and first <= self.found_in[0] and self.found_in[1] <= last)


@dataclass(frozen=True)
class RecordedAccount:
    """The newest accounts of a table.

    Args:
        days: one account for each side and day with rows or results. If an upserted table reads another table, there is an account of this
            input only if results are missing or extra.
        at: when the newest account was computed, in epoch ms of the wall clock.
        differences: the batches whose row counts differ: source, batch, the ledger's count and the log's.
        outside: the days with missing or extra results that accounts of other days found; see `RecordedDay.found_in`.
    """

    days: Sequence[RecordedDay]
    at: int
    differences: Sequence[tuple[str, int, int, int]] = ()
    outside: Sequence[RecordedDay] = ()

    @property
    def holds(self) -> bool:
        """Whether the conservation law held on every side and day, and ledger and logs had the same rows."""
        return not self.violations and not self.differences

    @property
    def violations(self) -> list[RecordedDay]:
        """The sides and days for which the law did not hold."""
        return [day for day in (*self.days, *self.outside) if not day.holds]

    @property
    def oldest_at(self) -> int:
        """When the oldest account in `days` was computed, in epoch ms."""
        return min((day.at for day in self.days), default=self.at)

    @property
    def terms(self) -> dict[str, dict[str, int]]:
        """For each term, the number of rows of all days, by side."""
        rows_by_term: dict[str, Counter[str]] = {term: Counter() for term in TERMS}
        for day in (*self.days, *self.outside):
            for term, counter in rows_by_term.items():
                counter[day.side] += day.terms.get(term, 0)
        return {term: dict(sorted(counter.items())) for term, counter in rows_by_term.items()}


def record(lake: Lake, asset: DerivedAsset, accounts: Iterable[DayAccount], counted: CountedBatches, days: Days | None, at: int) -> None:
    """Record accounts of a table in place of earlier accounts of the same days. If the lake cannot be written to, log a warning.

    They are not recorded if the table was rebuilt or repaired after the snapshot was taken.

    Args:
        lake: the snapshot of the lake that was accounted for.
        asset: the table.
        accounts: the accounts.
        counted: the batches whose numbers of rows were compared.
        days: the first and the last day that the accounts cover; None for all.
        at: when they were computed, in epoch ms.
    """
    recorded_days = [_recorded_day(account, days, at) for account in accounts]
    differing = [(source, batch, *counts) for (source, batch), counts in sorted(counted.differences.items())]
    try:
        with lake.live.writer(f"{FOLDER}/{asset.name}"):
            identity = table_identity(lake, asset)
            if identity is None or identity != table_identity(lake.live, asset) or _is_repaired_since(lake, asset):
                return
            if days is not None and (earlier := _of_table(lake, asset, identity)) is not None:
                recorded_days += [day for day in (*earlier.days, *earlier.outside) if not day.is_covered_by(days)]
                differing += [difference for difference in earlier.differences if not _is_compared(difference, counted)]
            stored = {"table": identity, "at": at, "days": [asdict(day) for day in recorded_days], "differences": differing}
            replace_file(lake.root, _path(asset), json.dumps(stored).encode(), lake.storage_options)
    except (OSError, DeltaError, LakeError) as error:
        _log.warning("the account of %s was not recorded for `tidemark status`: %s", asset.name, error)


def _recorded_day(account: DayAccount, days: Days | None, at: int) -> RecordedDay:
    found_in = None if days is None or days[0] <= account.day <= days[1] else (str(days[0]), str(days[1]))
    terms = {term: getattr(account, term) for term in TERMS}
    return RecordedDay(account.side, str(account.day), at, account.holds, terms, found_in)


def _is_compared(difference: tuple[str, int, int, int], counted: CountedBatches) -> bool:
    source, batch, *_ = difference
    first, last = counted.compared.get(source, (1, 0))
    return first <= batch <= last


def _is_repaired_since(lake: Lake, asset: DerivedAsset) -> bool:
    """Whether the live table has a step after the snapshot's newest one that handled nothing new: such a step repaired rows."""
    accounted, later = stored_progress(lake, asset).step, None
    for commit in lake.live.commits(results_table(asset), PROGRESS):
        now = Progress.from_metadata(results_table(asset), commit.value)
        if later is not None and later.step > now.step and replace(later, step=now.step, corrected=now.corrected, id=now.id) == now:
            return True
        if now.step <= accounted:
            return False
        later = now
    return False


def forget(lake: Lake, asset: DerivedAsset) -> None:
    """Delete the recorded accounts of a table, because its rows were repaired after them."""
    try:
        with lake.live.writer(f"{FOLDER}/{asset.name}"), suppress(FileNotFoundError):
            filesystem(lake.root, lake.storage_options).delete_file(_path(asset))
    except (OSError, DeltaError, LakeError) as error:
        _log.warning("`tidemark status` may show an account of %s from before its rebuild: %s", asset.name, error)


def read_account(lake: Lake, asset: DerivedAsset) -> RecordedAccount | None:
    """A table's recorded accounts; None if there are none of the present table."""
    return _of_table(lake, asset, table_identity(lake, asset))


def _of_table(lake: Lake, asset: DerivedAsset, identity: str | None) -> RecordedAccount | None:
    """A table's recorded accounts; None if there are none of the table with this identity, or the file cannot be read."""
    try:
        with filesystem(lake.root, lake.storage_options).open_input_stream(_path(asset)) as file:
            stored = json.loads(file.read())
        entries = [RecordedDay.read(day) for day in stored["days"]]
        days, outside = [day for day in entries if day.found_in is None], [day for day in entries if day.found_in is not None]
        differences = [(str(source), int(batch), int(ledger), int(log)) for source, batch, ledger, log in stored["differences"]]
        account = RecordedAccount(days, int(stored["at"]), differences, outside)
        table = stored["table"]
    except (OSError, DeltaError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return account if table == identity else None


def _day(text: str) -> str:
    return str(date.fromisoformat(text))


def _path(asset: DerivedAsset) -> str:
    return f"{FOLDER}/{asset.name}.json"
