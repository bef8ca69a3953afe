"""Retention of event logs: remove rows that are older than a source's `retention`, and that no table may still read.

Rows are removed by whole days (UTC) of event time. Before the first day that must be kept, the log also keeps the rows to which tables look
back, and those within the duplicate horizon of a source with a key. So each kept day can still be computed again, and a duplicate on it is
still found. The account of the removed days must hold, and its totals are kept (see `inputs.retained`). If it does not, no row is removed.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from assets.contracts import DerivedAsset, SourceContract
from assets.days import day_of
from operators.engine_columns import EVENT_TIME, SEQ
from operators.errors import OperatorError, TidemarkError
from operators.timing import DAY_MS, length_ms
from platform_defs.engine.accounting.account import account
from platform_defs.engine.accounting.retained_days import add_terms, later_rows, start_of, sums_of_accounts
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.advance.oldest_change import final_before
from platform_defs.engine.faults import point
from platform_defs.engine.ingest.uncommitted import ATTEMPT
from platform_defs.engine.inputs.progress import stored_progress, table_identity
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.retained import (
    RemovedRows,
    RetainedDay,
    RetainedTable,
    delete_old_totals,
    kept_days_of,
    margin,
    removed_rows_of,
    write_totals,
)
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.commits import RETENTION
from platform_defs.engine.lake.sql_rows import before_sql, sql_rows
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.snapshot import last_with_rows

_ROW_COLUMNS = ("seq", "accepted", "first_event_time", "last_event_time")


@dataclass(frozen=True)
class Removal:
    """What retention removes from a table, or why it removes nothing more.

    Args:
        rows: the number of rows that it removes.
        kept_from: the first day of which all rows are kept (of a changelog the first step, of the ledger or of recorded lateness decisions
            the first batch), as text; None if no row was ever removed.
        held_back: why rows are kept that the setting would remove; None if there are none.
        removed: of an event log, what this removal and earlier ones delete from it; None for other tables, or if no row is to be removed.
        number: of a quarantine, the first day (since 1970) whose rows are kept; of a changelog, the last step that is to be replaced; of
            the ledger or of recorded lateness decisions, the last batch that is to be replaced or removed. None for an event log, or if
            nothing is to be removed.
    """

    rows: int = 0
    kept_from: str | None = None
    held_back: str | None = None
    removed: RemovedRows | None = None
    number: int | None = None


@dataclass(frozen=True)
class LakeRetention:
    """How long a lake keeps its changelogs, its quarantines and its ledger, in ms of the wall clock; None for ever.

    Args:
        changelogs: the steps of upserted tables.
        quarantines: rejected rows. A file of which no row was read stays listed until it is read.
        ledger: the batches of the ledger.
    """

    changelogs: int | None = None
    quarantines: int | None = None
    ledger: int | None = None


KEEP_ALL = LakeRetention()
"""Nothing is removed."""


class Retention(Protocol):
    """Removes old rows from one table."""

    def plan(self) -> Removal | None:
        """What is to be removed; None if the table keeps its rows for ever and none was removed before."""
        ...

    def remove(self, planned: Removal) -> Removal:
        """Remove the planned rows; returns what was removed. The caller holds the lock of the table's writer."""
        ...


class _HeldBackError(TidemarkError):
    """No row may be removed; the text says why."""


@dataclass(frozen=True)
class _Limit:
    """Which rows may be removed.

    Args:
        first: the first ms of the first day that is kept.
        upto: the last batch of which rows may be removed.
        reason: what keeps older rows than the setting asks for; None if nothing does.
    """

    first: int
    upto: int
    reason: str | None = None


@dataclass(frozen=True)
class LogRetention:
    """Removes rows from the event log of one source.

    Args:
        workspace: the session, the lake and its ledger.
        contract: the source.
        snapshot: returns a snapshot of a table and its inputs.
    """

    workspace: Workspace
    contract: SourceContract
    snapshot: Callable[[str], Advance]

    def plan(self) -> Removal | None:
        """What is to be removed; None if the source keeps its rows for ever and none was removed before.

        Planning needs no lock, because rows of committed batches never change.
        """
        earlier, retention = removed_rows_of(self.workspace.lake, self.contract), self.contract.retention
        if retention is None:
            return None if earlier is None else Removal(kept_from=self._kept_from(earlier))
        try:
            limit = self._limit(length_ms(retention, "retention"), 0 if earlier is None else earlier.upto)
            return self._plan_removal(limit, earlier) or Removal(kept_from=self._kept_from(earlier), held_back=limit.reason)
        except (_HeldBackError, ProgressError, LedgerError, OperatorError) as error:
            return Removal(kept_from=self._kept_from(earlier), held_back=str(error))

    def remove(self, planned: Removal) -> Removal:
        """Make a planned removal. The caller holds the ledger's lock; after a kill, the next maintenance plans it again.

        Raises:
            LakeError: another writer has committed to the log.
        """
        removed, lake = planned.removed, self.workspace.lake
        if removed is None:
            return planned
        delta = lake.delta(self.contract.log)
        if delta is None or (delta.transaction_version(RETENTION) or 0) != removed.number - 1:
            return self._held_back_by("another maintenance removed rows meanwhile")
        rebuilt = [asset.name for asset in self._readers if table_identity(lake, asset) != removed.tables[asset.name].identity]
        if rebuilt:  # it may still need rows that were planned for removal
            return self._held_back_by(f"{rebuilt[0]} was rebuilt meanwhile")
        point("retention.before_totals")
        write_totals(lake, self.contract, removed)
        point("retention.after_totals")
        lake.remove(self.workspace.spark, self.contract.log, _condition(removed.before, removed.upto), removed.number, delta)
        point("retention.after_remove")
        delete_old_totals(lake, self.contract, removed.number)
        return planned

    def _held_back_by(self, reason: str) -> Removal:
        return Removal(kept_from=self._kept_from(removed_rows_of(self.workspace.lake, self.contract)), held_back=reason)

    @property
    def _readers(self) -> list[DerivedAsset]:
        return [asset for asset in self.workspace.assets.values() if self.contract.name in asset.inputs]

    def _kept_from(self, removed: RemovedRows | None) -> str | None:
        """The first day that every table can still compute, of those whose progress can be read."""
        if removed is None:
            return None
        starts = list[int]()
        for asset in self._readers:
            with suppress(ProgressError):  # it also holds back a removal; the plan reports it if there is a retention
                starts += [] if (kept_days := kept_days_of(self.workspace, asset)) is None else [kept_days.first]
        return str(day_of(max(starts, default=-(-removed.before // DAY_MS) * DAY_MS)))

    def _limit(self, retention: int, removed_upto: int) -> _Limit:
        """Which rows may be removed: by the setting, by what readers may still read, and by the batches that all readers have handled.

        Args:
            retention: the setting, in ms.
            removed_upto: the last batch of which rows were removed before; 0 for none.
        """
        newest_batch = self.workspace.ledger.newest_rows().get(self.contract.name)
        if newest_batch is None or newest_batch.watermark is None:
            raise _HeldBackError(f"{self.contract.name} has no watermark yet")
        newest, max_event_time = newest_batch.watermark, newest_batch.max_event_time
        newest = newest if max_event_time is None else min(newest, max_event_time)  # a drain raises the watermark beyond all events
        limit = _Limit(newest - retention, last_with_rows(self.workspace.ledger, self.contract.name))
        for asset in self._readers:
            now = stored_progress(self.workspace.lake, asset)
            if not now.seq:
                raise _HeldBackError(f"{asset.name} has no step yet")
            if now.seq < removed_upto:  # the last batch of a removal is never before that of an earlier one
                raise _HeldBackError(f"before {asset.name} was made, rows were removed of batches that it has not handled yet")
            final = final_before(self.workspace, asset) if asset.operator.reads.closes_ranges else limit.first
            if final is None:
                raise _HeldBackError(f"results of {asset.name} may still change at any age")
            is_earlier = final < limit.first
            reason = f"{asset.name} may still read rows of {day_of(final)}" if is_earlier else limit.reason
            limit = _Limit(min(limit.first, final), min(limit.upto, now.seq), reason)
        return _Limit(limit.first // DAY_MS * DAY_MS, limit.upto, limit.reason)

    def _plan_removal(self, limit: _Limit, removed_before: RemovedRows | None) -> Removal | None:
        """The removal at a limit; None if it would remove no row."""
        margins = [margin(asset) for asset in self._readers]
        horizon = length_ms(self.contract.duplicate_horizon, "duplicate_horizon") if self.contract.unique_key else 0
        before = limit.first - max([*margins, horizon])
        removed_so_far = RemovedRows(0, before, 0) if removed_before is None else removed_before
        if before < removed_so_far.before:
            return None
        batches = self._batches(before, limit.upto)
        has_rows = any(removed_so_far.remaining_rows(seq, rows, last) for seq, rows, _, last in batches)
        counts = self._counts(before, limit.upto) if has_rows else {}
        if not counts:
            return None
        removed_by_batch = dict[int, int]()
        for seq, rows, _, last in batches:
            rows_in_ledger = removed_so_far.remaining_rows(seq, rows, last)
            if last >= before:
                removed_by_batch[seq] = rows - rows_in_ledger + counts.get(seq, 0)
            elif rows_in_ledger != counts.get(seq, 0):
                difference = f"{rows_in_ledger:,} rows of batch {seq} in the ledger, {counts.get(seq, 0):,} in the log"
                raise _HeldBackError(f"ledger and log of {self.contract.name} differ: {difference}")
        rows, tables = sum(counts.values()), {asset.name: self._totals(asset, limit) for asset in self._readers}
        removed = RemovedRows(
            removed_so_far.number + 1,
            before,
            limit.upto,
            removed_so_far.rows + rows,
            {seq: count for seq, count in removed_by_batch.items() if count},
            tables,
        )
        kept_from = str(day_of(max([limit.first, *[table.first for table in tables.values()]])))
        return Removal(rows, kept_from, limit.reason, removed)

    def _batches(self, before: int, upto: int) -> list[tuple[int, int, int, int]]:
        """The batches with rows before a time: number, rows, first and last event time."""
        columns = self.workspace.ledger.source(self.contract.name).batches_with_rows(0, upto)
        rows = zip(*[columns[column].to_pylist() for column in _ROW_COLUMNS], strict=True)
        return [(seq, accepted, first, last) for seq, accepted, first, last in rows if first < before]

    def _counts(self, before: int, upto: int) -> Mapping[int, int]:
        """The number of rows in the log to be removed, by batch."""
        lake = self.workspace.lake
        if (reason := unfinished_ingest(self.workspace, self.contract, self.contract.log)) is not None:
            raise _HeldBackError(reason)
        sql = f"SELECT {SEQ} AS batch, count(*) AS rows FROM events WHERE {_condition(before, upto)} GROUP BY {SEQ}"
        counts = sql_rows(lake, {"events": self.contract.log}, sql)
        return dict(zip(counts["batch"].to_pylist(), counts["rows"].to_pylist(), strict=True))

    def _totals(self, asset: DerivedAsset, limit: _Limit) -> RetainedTable:
        """The totals of a table for the days before the first that is kept, of the rows up to the limit's batch.

        Raises:
            _HeldBackError: the account of one of these days does not hold.
        """
        advance = self.snapshot(asset.name)
        workspace, kept_days = advance.workspace, kept_days_of(advance.workspace, asset)
        first = limit.first if kept_days is None else max(limit.first, kept_days.first)
        times = [time for name in asset.inputs if (time := workspace.ledger.source(name).oldest) is not None]
        days = day_of(min([*times, first - 1])), day_of(first) - timedelta(days=1)
        accounts = account(advance, days)
        if violations := [
            day_account for day_account in accounts if not day_account.holds or (day_account.pending and asset.operator.reads.closes_ranges)
        ]:
            raise _HeldBackError(f"the account of {asset.name} does not hold for {violations[0].side} on {violations[0].day}")
        sums = sums_of_accounts(accounts)
        add_terms(sums, later_rows(advance, first, limit.upto, start_of(advance, kept_days)), sign=-1)
        retained_days = [
            RetainedDay(side, str(day), {term: rows for term, rows in terms.items() if rows}) for (side, day), terms in sorted(sums.items())
        ]
        identity = table_identity(workspace.lake, asset)
        assert identity is not None, "a table with a step exists"
        return RetainedTable(identity, first, limit.upto, tuple(retained for retained in retained_days if retained.terms))


def unfinished_ingest(workspace: Workspace, contract: SourceContract, table: str) -> str | None:
    """Why no row of a log or a quarantine may be removed: a killed ingest left rows that the next ingest uses or removes. None if not."""
    attempt = workspace.lake.newest_commit(table, ATTEMPT)
    if attempt is None or attempt.value["seq"] <= workspace.ledger.head:
        return None
    return f"an ingest of {contract.name} was interrupted; the next ingest continues it"


def _condition(before: int, upto: int) -> str:
    """The condition for the rows that are removed, in the SQL of DataFusion."""
    return f"{before_sql(EVENT_TIME, before)} AND {SEQ} <= {upto}"
