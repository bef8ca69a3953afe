"""The newest account of each table, kept in the lake, so that a status can show it without computing it again.

It is one small JSON file for each table, below the lake's folder `_accounts`: for each side and day the newest account. A file that cannot
be read, and the accounts of a table that was created again since, are ignored.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from deltalake.exceptions import DeltaError

from assets.contracts import DerivedAsset
from assets.ports import TERMS
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.inputs.progress import table_identity
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
    """

    side: str
    day: str
    at: int
    holds: bool
    terms: dict[str, int]

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "RecordedDay":
        """An account from its JSON.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: the JSON is not an account.
        """
        terms = {str(term): int(rows) for term, rows in stored["terms"].items()}
        return cls(str(stored["side"]), str(date.fromisoformat(stored["day"])), int(stored["at"]), bool(stored["holds"]), terms)


@dataclass(frozen=True)
class RecordedAccount:
    """The newest accounts of a table.

    Args:
        days: one for each side and day with rows or results.
        at: when the newest of them was computed, in epoch ms. A table that reads only upserted tables has an account without days.
        differences: the batches whose row counts differ: source, batch, the ledger's count and the log's.
    """

    days: Sequence[RecordedDay]
    at: int
    differences: Sequence[tuple[str, int, int, int]] = ()

    @property
    def holds(self) -> bool:
        """Whether the conservation law held on every side and day, and ledger and logs had the same rows."""
        return not self.violations and not self.differences

    @property
    def violations(self) -> list[RecordedDay]:
        """The sides and days for which the law did not hold."""
        return [day for day in self.days if not day.holds]

    @property
    def oldest_at(self) -> int:
        """When the oldest of them was computed, in epoch ms."""
        return min((day.at for day in self.days), default=self.at)

    @property
    def terms(self) -> dict[str, dict[str, int]]:
        """For each term, the rows of all days by side."""
        rows_by_term: dict[str, Counter[str]] = {term: Counter() for term in TERMS}
        for day in self.days:
            for term, counter in rows_by_term.items():
                counter[day.side] += day.terms.get(term, 0)
        return {term: dict(sorted(counter.items())) for term, counter in rows_by_term.items()}


def record(
    lake: Lake,
    asset: DerivedAsset,
    accounts: Iterable[DayAccount],
    differences: Mapping[tuple[str, int], tuple[int, int]],
    days: tuple[date, date] | None,
    at: int,
) -> None:
    """Keep accounts of a table in place of earlier accounts of the same days. If the lake cannot be written to, it logs a warning.

    Args:
        lake: the lake.
        asset: the table.
        accounts: the accounts.
        differences: the batches whose row counts differ: (source, batch) to the ledger's count and the log's.
        days: the first and the last day that the accounts cover; None for all.
        at: when they were computed, in epoch ms.
    """
    recorded_days = [RecordedDay(a.side, str(a.day), at, a.holds, {term: getattr(a, term) for term in TERMS}) for a in accounts]
    differing = [(source, batch, *counts) for (source, batch), counts in sorted(differences.items())]
    try:
        with lake.live.writer(f"{FOLDER}/{asset.name}"):
            identity = table_identity(lake, asset)
            if identity is None or identity != table_identity(lake.live, asset):  # it was rebuilt since
                return
            if days is not None and (earlier := _of_table(lake, asset, identity)) is not None:
                recorded_days += [day for day in earlier.days if not str(days[0]) <= day.day <= str(days[1])]
                differing += [difference for difference in earlier.differences if difference[:2] not in differences]
            stored = {"table": identity, "at": at, "days": [asdict(day) for day in recorded_days], "differences": differing}
            replace_file(lake.root, _path(asset), json.dumps(stored).encode(), lake.storage_options)
    except (OSError, DeltaError, LakeError) as error:
        _log.warning("the account of %s was not recorded for `tidemark status`: %s", asset.name, error)


def forget(lake: Lake, asset: DerivedAsset) -> None:
    """Delete the recorded accounts of a table, because its rows were repaired since."""
    try:
        with lake.live.writer(f"{FOLDER}/{asset.name}"), suppress(FileNotFoundError):
            filesystem(lake.root, lake.storage_options).delete_file(_path(asset))
    except (OSError, DeltaError, LakeError) as error:
        _log.warning("`tidemark status` may show an account of %s from before its rebuild: %s", asset.name, error)


def read_account(lake: Lake, asset: DerivedAsset) -> RecordedAccount | None:
    """A table's recorded accounts; None if there are none of the present table."""
    return _of_table(lake, asset, table_identity(lake, asset))


def _of_table(lake: Lake, asset: DerivedAsset, identity: str | None) -> RecordedAccount | None:
    """The recorded accounts of the table with an identity."""
    try:
        with filesystem(lake.root, lake.storage_options).open_input_stream(_path(asset)) as file:
            stored = json.loads(file.read())
        days = [RecordedDay.read(day) for day in stored["days"]]
        differences = [(str(source), int(batch), int(ledger), int(log)) for source, batch, ledger, log in stored["differences"]]
        account = RecordedAccount(days, int(stored["at"]), differences)
        table = stored["table"]
    except (OSError, DeltaError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return account if table == identity else None


def _path(asset: DerivedAsset) -> str:
    return f"{FOLDER}/{asset.name}.json"
