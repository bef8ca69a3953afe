"""The metrics of a lake, for Prometheus: read from the ledger and from the progress of tables at each scrape, without Spark."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Any

from deltalake.exceptions import DeltaError
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from assets.ports import TERMS
from operators.errors import TidemarkError
from platform_defs.engine import Engine
from platform_defs.engine.inputs.progress import step_time
from platform_defs.engine.ledger.rows import COUNTS
from platform_defs.engine.ledger.store import TABLE
from platform_defs.engine.operations.freshness import Freshness
from platform_defs.engine.operations.held_back import held_back
from platform_defs.monitoring.kept_tables import keeping_tables
from platform_defs.safe_text import one_line, without_credentials

_OUTCOMES = {"accepted": "accepted", "duplicate": "duplicate", "quarantined": "quarantined", "markers": "marker"}
_log = logging.getLogger(__name__)


class LakeMetrics(Collector):
    """Collects the metrics of an engine's lake.

    The labels have the names of sources, tables and terms only, so the number of series does not grow with rows, keys or days. If the lake
    cannot be read, `tidemark_up` is 0 and no other metric is exported.

    Args:
        engine: the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._mutex = keeping_tables(engine), Lock()
        self._totals = _Totals()
        self._reason: str | None = None

    def describe(self) -> Iterable[Metric]:
        """No metric: the registry would otherwise read the lake when the collector is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics, from one snapshot of the lake."""
        began = time.monotonic()
        try:
            with self._mutex:
                found = [*self._collected()]
        except (TidemarkError, DeltaError, OSError) as error:
            self._report(without_credentials(one_line(str(error))))
            found = [_gauge("up", "Whether the lake could be read for this scrape.", value=0)]
        else:
            self._report(None)
            found.append(_gauge("up", "Whether the lake could be read for this scrape.", value=1))
        yield from found
        yield _gauge("scrape_seconds", "How long it took to read the lake for this scrape.", value=time.monotonic() - began)

    def _report(self, reason: str | None) -> None:
        """Log why the lake cannot be read, once for each reason."""
        if reason is not None and reason != self._reason:
            _log.warning("the lake cannot be read for metrics: %s", reason)
        self._reason = reason

    def _collected(self) -> Iterator[Metric]:
        engine = self._engine.snapshot()
        totals = self._totals.upto(engine)
        yield _counter("ledger_batches_total", "Batches of the ledger.", value=engine.ledger.head)
        if engine.ledger.head:
            newest = _seconds(engine.ledger.history.clocks[-1])
            yield _gauge("ledger_batch_timestamp_seconds", "When the newest batch of the ledger was committed.", value=newest)
        failed = engine.failures.of_ingest() is not None
        yield _gauge("ingest_failed", "Whether an ingest has failed since the newest batch of the ledger.", value=failed)
        yield from _sources(engine, totals)
        yield from _tables(engine)


class _Totals:
    """The counts of each source, to which each scrape adds those of new batches only."""

    def __init__(self) -> None:
        self._of, self._head, self._found = "", 0, dict[str, dict[str, int]]()

    def upto(self, engine: Engine) -> Mapping[str, Mapping[str, int]]:
        """The counts up to the newest batch of a snapshot; all zero for a source without batches."""
        ledger, identity = engine.ledger, engine.lake.identity(TABLE) or ""
        if identity != self._of or ledger.head < self._head:
            self._of, self._head, self._found = identity, 0, {}
        if ledger.head > self._head:
            for source, counts in ledger.totals_by_source(self._head).items():
                known = self._found.get(source) or {}
                self._found[source] = {name: known.get(name, 0) + rows for name, rows in counts.items()}
            self._head = ledger.head
        return {name: self._found.get(name) or dict.fromkeys(COUNTS, 0) for name in engine.sources}


def _sources(engine: Engine, totals: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
    rows = _counter("source_rows_total", "Rows that were read, by their outcome; each row has one.", ["source", "outcome"])
    read = _counter("source_read_rows_total", "Rows that were read.", ["source"])
    warned = _counter("source_warned_rows_total", "Accepted rows that violate a rule whose action is to warn.", ["source"])
    for name, counts in totals.items():
        for count, outcome in _OUTCOMES.items():
            rows.add_metric([name, outcome], counts[count])
        read.add_metric([name], counts["rows_read"])
        warned.add_metric([name], counts["warned"])
    yield from (rows, read, warned)
    mark = _gauge("source_watermark_timestamp_seconds", "The source's watermark.", ["source"])
    lag = _gauge("source_watermark_lag_seconds", "How far the source's watermark is behind the clock.", ["source"])
    event = _gauge("source_event_timestamp_seconds", "The newest event time of the source.", ["source"])
    active = _gauge("source_active_timestamp_seconds", "When rows were last read, or the watermark was last set.", ["source"])
    idle = _gauge("source_idle", "Whether the source is idle and does not hold back watermarks.", ["source"])
    now, last = engine.clock(), engine.ledger.last()
    for name in engine.sources:
        newest = last.get(name)
        idle.add_metric([name], bool(newest and newest.idle))
        _add(mark, [name], _seconds(newest and newest.watermark))
        _add(lag, [name], None if newest is None or newest.watermark is None else (now - newest.watermark) / 1000)
        _add(event, [name], _seconds(newest and newest.max_event_time))
        _add(active, [name], _seconds(engine.ledger.last_active_at(name)))
    yield from (mark, lag, event, active, idle)


def _tables(engine: Engine) -> Iterator[Metric]:
    found = _TableMetrics(engine)
    for name in engine.assets:
        found.add(name)
    yield from found.families()


class _TableMetrics:
    """The families of the tables' metrics. All tables share one cache of watermarks over the ledger."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._pending, self._freshness = engine, (pending := engine.pending), Freshness(pending.reading)
        by, self._all = ["table"], list[Metric]()
        self.steps = self._of(_counter("table_steps_total", "Committed steps; a rebuild starts again.", by))
        self.step_at = self._of(_gauge("table_step_timestamp_seconds", "When the newest step was committed.", by))
        self.mark = self._of(_gauge("table_watermark_timestamp_seconds", "Up to where results could be final.", by))
        self.closed = self._of(_gauge("table_finalized_timestamp_seconds", "Up to where results are final.", by))
        self.lag = self._of(_gauge("table_lag_seconds", "Event time for which results could be final and are not.", by))
        self.unhandled = self._of(_gauge("table_unhandled_rows", "Accepted rows in batches that the table has not handled.", by))
        self.waiting = self._of(_gauge("table_stale_seconds", "For how long the table has not reflected rows; 0 if it is fresh.", by))
        self.refused = self._of(_gauge("table_refused", "Whether the table is refused until it is rebuilt.", by))
        self.failed = self._of(_gauge("table_failed", "Whether an advance has failed since the table's newest step.", by))
        self.failed_at = self._of(_gauge("table_failure_timestamp_seconds", "When that advance failed.", by))
        self.law = self._of(_gauge("table_law_holds", "Whether the conservation law held in the last account.", by))
        self.account_at = self._of(_gauge("table_account_timestamp_seconds", "When the oldest part of the last account was computed.", by))
        self.account_age = self._of(_gauge("table_account_age_seconds", "How long ago that was.", by))
        labels = [*by, "side", "term"]
        self.account = self._of(_gauge("table_account_rows", "Rows of a side by term, in the last account.", labels))
        self.held = self._of(_gauge("table_held_back_by_info", "The source that holds back the table's watermark.", [*by, "source"]))

    def _of(self, family: Any) -> Any:
        self._all.append(family)
        return family

    def families(self) -> list[Metric]:
        """The families with at least one sample."""
        return [family for family in self._all if family.samples]

    def add(self, name: str) -> None:
        """Add the metrics of a table."""
        by, now, state = [name], self._pending.progress(name), self._pending.described(name)
        self.steps.add_metric(by, now.step)
        _add(self.step_at, by, _seconds(step_time(self._engine.lake, self._engine.assets[name])))
        _add(self.mark, by, _seconds(state["watermark"]))
        _add(self.closed, by, _seconds(state["closed_to"]))
        self.lag.add_metric(by, state["lag_ms"] / 1000)
        self.refused.add_metric(by, now.step > 0 and self._pending.refused_because(name) is not None)
        self._add_waiting(name)
        self._add_failure(name)
        self._add_account(name)

    def _add_waiting(self, name: str) -> None:
        waiting, holder = self._freshness.waiting(name), held_back(self._pending.reading, name)
        self.waiting.add_metric([name], 0 if waiting is None else max(0, self._engine.clock() - waiting.since) / 1000)
        self.unhandled.add_metric([name], self._freshness.unhandled_rows(name))
        if holder is not None:
            self.held.add_metric([name, holder.source], 1)

    def _add_failure(self, name: str) -> None:
        failure = self._engine.failures.of(name)
        self.failed.add_metric([name], failure is not None)
        _add(self.failed_at, [name], _seconds(failure and failure.at))

    def _add_account(self, name: str) -> None:
        account = self._engine.accounts.recorded(name)
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


def _add(family: Any, labels: list[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, value)


def _gauge(name: str, text: str, labels: list[str] | None = None, value: float | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tidemark_{name}", text, value=value, labels=labels)


def _counter(name: str, text: str, labels: list[str] | None = None, value: float | None = None) -> CounterMetricFamily:
    return CounterMetricFamily(f"tidemark_{name}", text, value=value, labels=labels)
