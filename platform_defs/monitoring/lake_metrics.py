"""The metrics of a lake, for Prometheus: read from the ledger and from the progress of tables at each scrape, without Spark."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Any

from deltalake.exceptions import DeltaError
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from assets.ports import TERMS
from operators.errors import TidemarkError
from platform_defs.engine import Engine
from platform_defs.engine.inputs.progress import step_time
from platform_defs.engine.ledger.rows import COUNTS
from platform_defs.engine.ledger.store import TABLE
from platform_defs.engine.operations.freshness import Freshness
from platform_defs.engine.operations.state_size import state_size
from platform_defs.monitoring.catalog import family
from platform_defs.safe_text import one_line, without_credentials

_OUTCOMES = {"accepted": "accepted", "duplicate": "duplicate", "quarantined": "quarantined", "markers": "marker"}
_UNREADABLE = (TidemarkError, DeltaError, OSError)
_log = logging.getLogger(__name__)


class LakeMetrics(Collector):
    """Collects the metrics of an engine's lake.

    The labels have the names of sources, tables and terms only, so the number of series does not grow with rows, keys or days. If the lake
    cannot be read, `tidemark_up` is 0, and of the other metrics only `tidemark_scrape_seconds` is exported.

    Args:
        engine: the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._mutex = engine, Lock()
        self._totals = _Totals()
        self._reason: str | None = None
        self._left_out = set[str]()

    def describe(self) -> Iterable[Metric]:
        """No metric: the registry would otherwise read the lake when the collector is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics, from one snapshot of the lake."""
        began = time.monotonic()
        try:
            with self._mutex:
                collected = [*self._collect_lake()]
        except _UNREADABLE as error:
            self._report(without_credentials(one_line(str(error))))
            collected = [family("up", 0)]
        else:
            self._report(None)
            collected.append(family("up", 1))
        yield from collected
        yield family("scrape_seconds", time.monotonic() - began)

    def _report(self, reason: str | None) -> None:
        """Log why the lake cannot be read, once for each reason."""
        if reason is not None and reason != self._reason:
            _log.warning("the lake cannot be read for metrics: %s", reason)
        self._reason = reason

    def _collect_lake(self) -> Iterator[Metric]:
        engine = self._engine.snapshot()
        totals = self._totals.upto(engine)
        yield family("ledger_batches_total", engine.ledger.head)
        if engine.ledger.head:
            newest = _seconds(engine.ledger.history.clocks[-1])
            yield family("ledger_batch_timestamp_seconds", newest)
        has_failed = engine.failures.of_ingest() is not None
        yield family("ingest_failed", has_failed)
        if engine.sinks:
            yield _sinks(engine)
        yield from _sources(engine, totals)
        yield from self._collect_tables(engine)

    def _collect_tables(self, engine: Engine) -> Iterator[Metric]:
        """The metrics of the tables. Why a table cannot be read is logged once, until it can be read or the reason changes."""
        tables = _TableMetrics(engine)
        for name in engine.assets:
            tables.add(name)
        for text in tables.left_out:
            if text not in self._left_out:
                _log.warning("%s", text)
        self._left_out = {*tables.left_out}
        yield from tables.families()


class _Totals:
    """The counts of each source. Each scrape adds only the counts of new batches."""

    def __init__(self) -> None:
        self._identity, self._head, self._counts = "", 0, dict[str, dict[str, int]]()

    def upto(self, engine: Engine) -> Mapping[str, Mapping[str, int]]:
        """The counts up to the newest batch of a snapshot; all zero for a source without batches."""
        ledger, identity = engine.ledger, engine.lake.identity(TABLE) or ""
        if identity != self._identity or not ledger.history.summarized <= self._head <= ledger.head:
            self._identity, self._head, self._counts = identity, 0, {}
        if ledger.head > self._head:
            for source, counts in ledger.totals_by_source(self._head).items():
                earlier = self._counts.get(source) or {}
                self._counts[source] = {name: earlier.get(name, 0) + rows for name, rows in counts.items()}
            self._head = ledger.head
        return {name: self._counts.get(name) or dict.fromkeys(COUNTS, 0) for name in engine.sources}


def _sources(engine: Engine, totals: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
    rows = family("source_rows_total")
    rows_read = family("source_read_rows_total")
    warned = family("source_warned_rows_total")
    for name, counts in totals.items():
        for count, outcome in _OUTCOMES.items():
            rows.add_metric([name, outcome], counts[count])
        rows_read.add_metric([name], counts["rows_read"])
        warned.add_metric([name], counts["warned"])
    yield from (rows, rows_read, warned)
    watermark = family("source_watermark_timestamp_seconds")
    lag = family("source_watermark_lag_seconds")
    event = family("source_event_timestamp_seconds")
    active = family("source_active_timestamp_seconds")
    idle, failed = family("source_idle"), family("source_failed")
    waits, ahead = family("source_waits_for_info"), family("source_ahead_seconds")
    for name, wait in engine.ingestion.ahead.items():
        waits.add_metric([name, wait.source], 1)
        _add(ahead, [name], _seconds(wait.ahead_ms))
    now, last = engine.clock(), engine.ledger.newest_rows()
    for name in engine.sources:
        newest = last.get(name)
        idle.add_metric([name], bool(newest and newest.idle))
        failed.add_metric([name], engine.failures.of_source(name) is not None)
        _add(watermark, [name], _seconds(newest and newest.watermark))
        _add(lag, [name], None if newest is None or newest.watermark is None else (now - newest.watermark) / 1000)
        _add(event, [name], _seconds(newest and newest.max_event_time))
        _add(active, [name], _seconds(engine.ledger.last_active_at(name)))
    yield from (watermark, lag, event, active, idle, failed, *(metric for metric in (waits, ahead) if metric.samples))


def _sinks(engine: Engine) -> Metric:
    """For each table that has a topic, whether its newest publish has failed."""
    failed = family("sink_failed")
    for name in engine.sinks:
        failed.add_metric([name], engine.failures.of_sink(name) is not None)
    return failed


class _TableMetrics:
    """The families of the tables' metrics. All tables share one workspace, which caches their watermarks."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._pending, self._freshness = engine, (pending := engine.pending), Freshness(pending.workspace)
        self._all, self.left_out = list[Metric](), dict[str, None]()
        self.readable = self._new_family("table_readable")
        self.steps = self._new_family("table_steps_total")
        self.step_at = self._new_family("table_step_timestamp_seconds")
        self.watermark = self._new_family("table_watermark_timestamp_seconds")
        self.closed = self._new_family("table_finalized_timestamp_seconds")
        self.lag = self._new_family("table_lag_seconds")
        self.unhandled = self._new_family("table_unhandled_rows")
        self.state_rows = self._new_family("table_state_rows")
        self.state_bytes = self._new_family("table_state_bytes")
        self.state_files = self._new_family("table_state_files")
        self.skipped_files = self._new_family("table_skipped_files")
        self.waiting = self._new_family("table_stale_seconds")
        self.refused = self._new_family("table_refused")
        self.failed = self._new_family("table_failed")
        self.failed_at = self._new_family("table_failure_timestamp_seconds")
        self.law = self._new_family("table_law_holds")
        self.account_at = self._new_family("table_account_timestamp_seconds")
        self.account_age = self._new_family("table_account_age_seconds")
        self.account = self._new_family("table_account_rows")
        self.held = self._new_family("table_held_back_by_info")
        self.held_seconds = self._new_family("table_held_back_seconds")
        self.waits_for = self._new_family("table_waits_for_info")

    def _new_family(self, name: str) -> Any:
        self._all.append(family(name))
        return self._all[-1]

    def families(self) -> list[Metric]:
        """The families with at least one sample."""
        return [metric for metric in self._all if metric.samples]

    def add(self, name: str) -> None:
        """Add the metrics of a table. If the table cannot be read, its metrics are left out, and those of its readers that depend on it."""
        try:
            now = self._pending.progress(name)
        except _UNREADABLE as error:
            self._leave_out(name, error)
            self.readable.add_metric([name], 0)
            return
        self.readable.add_metric([name], 1)
        self.steps.add_metric([name], now.step)
        collectors = (
            self._add_times,
            self._add_position,
            self._add_refused,
            self._add_waiting,
            self._add_state,
            self._add_failure,
            self._add_account,
        )
        for collect in collectors:
            try:
                collect(name)
            except _UNREADABLE as error:
                self._leave_out(name, error)

    def _leave_out(self, name: str, error: Exception) -> None:
        self.left_out[f"{name} cannot be read for metrics: {without_credentials(one_line(str(error)))}"] = None

    def _add_times(self, name: str) -> None:
        _add(self.step_at, [name], _seconds(step_time(self._engine.lake, self._engine.assets[name])))

    def _add_position(self, name: str) -> None:
        state = self._pending.describe_progress(name)
        _add(self.watermark, [name], _seconds(state["watermark"]))
        _add(self.closed, [name], _seconds(state["closed_to"]))
        self.lag.add_metric([name], state["lag_ms"] / 1000)
        for upstream in state["waits_for"]:
            self.waits_for.add_metric([name, upstream], 1)
        if state["held_back_by"] is not None:
            self.held.add_metric([name, state["held_back_by"]], 1)
            _add(self.held_seconds, [name], _seconds(state["held_back_ms"]))

    def _add_refused(self, name: str) -> None:
        self.refused.add_metric([name], self._pending.progress(name).step > 0 and self._pending.refusal_reason(name) is not None)

    def _add_waiting(self, name: str) -> None:
        self.unhandled.add_metric([name], self._freshness.unhandled_rows(name))
        waiting = self._freshness.waiting(name)
        self.waiting.add_metric([name], 0 if waiting is None else max(0, self._engine.clock() - waiting.since) / 1000)

    def _add_state(self, name: str) -> None:
        for kind, size in state_size(self._pending.workspace, self._engine.assets[name]).items():
            self.state_rows.add_metric([name, kind], size.rows)
            self.state_bytes.add_metric([name, kind], size.bytes)
            self.state_files.add_metric([name, kind], size.files)
            self.skipped_files.add_metric([name, kind], size.skipped_files)

    def _add_failure(self, name: str) -> None:
        failure = self._engine.failures.of(name)
        self.failed.add_metric([name], failure is not None)
        _add(self.failed_at, [name], _seconds(failure and failure.at))

    def _add_account(self, name: str) -> None:
        account = self._engine.accounts.recorded_account(name)
        if account is None:
            return
        self.law.add_metric([name], account.holds)
        self.account_at.add_metric([name], account.oldest_at / 1000)
        self.account_age.add_metric([name], max(0, self._engine.clock() - account.oldest_at) / 1000)
        for term in TERMS:
            for side, rows in account.terms[term].items():
                self.account.add_metric([name, side, term], rows)


def _seconds(epoch_ms: int | None) -> float | None:
    return None if epoch_ms is None else epoch_ms / 1000


def _add(metric: Any, labels: list[str], value: float | None) -> None:
    if value is not None:
        metric.add_metric(labels, value)
