"""Pending work: the progress of assets and the work of the next advance, read from commits and the ledger without a Spark job."""

from dataclasses import dataclass
from datetime import date
from typing import Any

from assets.days import day_of, day_start
from operators.timing import DAY_MS
from platform_defs.engine.advance.corrections import oldest_affected_time
from platform_defs.engine.advance.held_back import find_holding_source
from platform_defs.engine.advance.position import Position, position_of
from platform_defs.engine.advance.step_size import can_change_rows
from platform_defs.engine.ingest.clock import waiting_sources, waits_of
from platform_defs.engine.ingest.idle_sources import idle_sources
from platform_defs.engine.inputs.changelog_reader import APPLIED
from platform_defs.engine.inputs.progress import Progress, progress, stored_progress
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.inputs.retained import KeptDays, RemovedRows, kept_days_of, removed_rows_of
from platform_defs.engine.inputs.same_inputs import require_same_inputs
from platform_defs.engine.inputs.workspace import Workspace


@dataclass(frozen=True)
class PendingWork:
    """Reports pending work.

    Args:
        workspace: the lake and its ledger; it needs no session.
    """

    workspace: Workspace

    def describe_progress(self, asset: str) -> dict[str, Any]:
        """An asset's progress: `steps`, `closed_to` and `watermark` (epoch ms or None), `lag_ms`, `complete_to` (date or None).

        `waits_for` names the tables among its inputs that must be advanced before the asset can close results up to its watermark.
        `held_back_by` is the source that holds back this watermark, and `held_back_ms` how far it is behind the next one (see `held_back`).
        If retention has removed rows of its inputs, `kept_from` is the first day (date) that can still be computed. If the table was made
        after that, `complete_from` is the first day (date) for which it is complete.

        The watermark is the one that the ledger gives the asset's operator. The lag is this watermark minus `closed_to`; before the first
        step, minus the oldest event time, or the time after which the table begins if its inputs have lost older rows. It is 0 if the asset
        is up to date, or if it does not wait for a watermark.
        """
        now = self.progress(asset)
        if not self._has_days(asset):
            without_days = {"closed_to": None, "watermark": None, "complete_to": None, "held_back_by": None, "held_back_ms": None}
            return {"steps": now.step, "lag_ms": 0, "waits_for": [], **without_days, **self._retention_state(asset)}
        position, closed_to = self._position(asset), now.closed_to
        watermark = position.operator_watermark
        start = self._start(asset) if position.closed_to is None else position.closed_to
        lag = 0 if watermark is None or start is None else watermark - start
        complete_to = None if closed_to is None else _day(closed_to + 1 - DAY_MS)
        state: dict[str, Any] = {"steps": now.step, "closed_to": closed_to, "watermark": watermark, "lag_ms": max(0, lag)}
        state |= {"complete_to": complete_to, "waits_for": position.waits_for}
        return state | self._holding_source_state(asset) | self._retention_state(asset)

    def kept_days(self, asset: str) -> KeptDays | None:
        """The days for which an asset can still be computed, if retention has removed rows of its inputs; None for all days."""
        return kept_days_of(self.workspace, self.workspace.assets[asset])

    def removed_rows(self, source: str) -> RemovedRows | None:
        """What retention has removed from a source's event log; None for nothing."""
        return removed_rows_of(self.workspace.lake, self.workspace.sources[source])

    def refusal_reason(self, asset: str) -> str | None:
        """Why an asset's table is refused: it was made with other settings, or from other tables; None if it is not refused."""
        derived = self.workspace.assets[asset]
        try:
            require_same_inputs(self.workspace, derived, progress(self.workspace.lake, derived))
        except ProgressError as error:
            return str(error)
        return None

    def days(self, asset: str, since: int | None = None) -> tuple[date, date] | None:
        """The days that an advance would compute: from the first incomplete or corrected day to the watermark's day; None if it has none.

        Args:
            asset: the asset.
            since: for a table that was never advanced, ignore rows older than this (epoch ms) if there are newer ones. Otherwise a single
                row of 1970 would give fifty years of days.
        """
        if not self._has_days(asset):
            return None
        position = self._position(asset)
        watermark = position.watermark
        if watermark is None:
            return None
        start = self._start(asset, since) if position.closed_to is None else position.closed_to + 1
        start = watermark if start is None else start  # no rows, only a watermark, up to which the advance closes
        corrected = oldest_affected_time(position)
        first = start if corrected is None else min(start, corrected)
        closes = position.closed_to is None or watermark > position.closed_to
        return (_day(min(first, watermark)), _day(watermark)) if closes or corrected is not None else None

    def all_days(self, since: int | None = None) -> tuple[date, date] | None:
        """The days that an advance of all assets would compute; see `days`."""
        ranges = [days for name in self.workspace.assets if (days := self.days(name, since)) is not None]
        return (min(first for first, _ in ranges), max(last for _, last in ranges)) if ranges else None

    def upserted_tables(self) -> list[str]:
        """The assets without days (upserted tables) that have pending work, each after those that it reads.

        Pending work is a new row of a source, a new step of an upstream table, or a step that was killed before its changes were applied.
        If keys have a TTL, it is also a new batch: any for processing time, and one with the asset's source for event time.
        """
        tables, ledger = list[str](), self.workspace.ledger.history
        for name, asset in self.workspace.assets.items():
            if self._has_days(name):
                continue
            now = self.progress(name)
            has_new_rows = can_change_rows(ledger, asset, now.seq, ledger.head)
            upstream_tables = [upstream.name for upstream in self.workspace.tables_of(asset)]
            is_behind = any(upstream in tables or self.progress(upstream).step > now.read.get(upstream, 0) for upstream in upstream_tables)
            if has_new_rows or is_behind or (now.step and self._applied_step(name) < now.step):
                tables.append(name)
        return tables

    def sources_for_control_batch(self) -> list[str]:
        """The sources for which an ingest would write a control batch: they became idle, or results wait for the clock that they follow."""
        ledger, sources = self.workspace.ledger, self.workspace.sources
        if not ledger.head:
            return []
        now, waits = ledger.now(), waits_of(sources, self.workspace.assets)
        return [*idle_sources(ledger, sources, now), *waiting_sources(ledger, sources, waits, now)]

    def current_writer(self) -> str | None:
        """A process that writes the table of an asset at this moment; None if there is none."""
        return next((busy for name in self.workspace.assets if (busy := self.workspace.lake.current_writer(name))), None)

    def _holding_source_state(self, asset: str) -> dict[str, Any]:
        holder = find_holding_source(self.workspace, asset)
        return {"held_back_by": holder and holder.source, "held_back_ms": holder and holder.behind_ms}

    def _retention_state(self, asset: str) -> dict[str, Any]:
        kept_days = self.kept_days(asset)
        if kept_days is None:
            return {}
        complete_from = kept_days.complete_from
        return {"kept_from": _day(kept_days.first)} | ({} if complete_from is None else {"complete_from": _day(complete_from)})

    def _has_days(self, asset: str) -> bool:
        """Whether an asset computes closed ranges, which Dagster materializes by day."""
        return self.workspace.assets[asset].operator.reads.closes_ranges

    def progress(self, asset: str) -> Progress:
        """An asset's progress."""
        return stored_progress(self.workspace.lake, self.workspace.assets[asset])

    def _position(self, asset: str) -> Position:
        return position_of(self.workspace, self.workspace.assets[asset], self.progress(asset))

    def _applied_step(self, asset: str) -> int:
        commit = self.workspace.lake.newest_commit(asset, APPLIED)
        return 0 if commit is None else commit.value["step"]

    def event_times(self, asset: str) -> tuple[int, int] | None:
        """The oldest and newest event time of all upstream sources of an asset; None if they have no rows."""
        ledger, sources = self.workspace.ledger, self.workspace.input_named(asset).sources
        first = min((time for name in sources if (time := ledger.source(name).oldest) is not None), default=None)
        newest = [row.max_event_time for name, row in ledger.newest_rows().items() if name in sources and row.max_event_time is not None]
        return None if first is None or not newest else (first, max(newest))

    def _start(self, asset: str, since: int | None = None) -> int | None:
        """The oldest event time of an asset's sources; with `since`, the oldest recorded time that is not before it, if there is one.

        The ledger records the first and the last time of each batch. If the first one is before `since`, the last one is used.
        """
        sources = [self.workspace.ledger.source(name) for name in self.workspace.input_named(asset).sources]
        later_times = [time for source in sources if since is not None and (time := source.oldest_since(since)) is not None]
        return min(later_times or [source.oldest for source in sources if source.oldest is not None], default=None)


def _day(epoch_ms: int) -> date:
    """The day of an instant, limited to the days that Python's `date` can represent."""
    return day_of(max(day_start(date.min), min(epoch_ms, day_start(date.max))))
