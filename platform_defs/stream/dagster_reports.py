"""Turns a stream's reports into few Dagster events: at an interval, materializations, check results and a summary, if anything changed.

A stream runs for weeks, and Dagster stores events permanently. So the reports of an interval become one materialization for each changed
asset and day, and one result of the conservation law for each table and day that was accounted for.
"""

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, Protocol, cast

import dagster as dg
from dagster import AssetCheckEvaluation
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from assets.contracts import DerivedAsset
from assets.days import day_end
from assets.factories.closed_range_table import progress_metadata
from assets.factories.conservation_law import LAW, law_check
from assets.factories.event_log import batch_metadata
from assets.factories.kafka_topic import published_metadata, topic_key
from assets.factories.keys import event_key
from assets.factories.lineage import column_metadata
from assets.factories.partitions import range_of
from assets.factories.work import Advanced
from platform_defs.engine import Engine, LawError
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.lake.errors import LakeError
from platform_defs.engine.ledger.ledger import Batch
from platform_defs.engine.operations.advance_all import PendingRetry
from platform_defs.engine.operations.failures import describe_error
from platform_defs.engine.operations.publish_to_topic import Published, sum_of
from platform_defs.orchestration.readable_tables import UNREADABLE
from platform_defs.stream.changed_days import changed_days
from platform_defs.stream.interval_reports import IntervalReports
from platform_defs.stream.reports import Accounts, Steps

_RETRY_S = 30.0
"""How long a stream waits before it reports again if Dagster's event store, or the lake, has failed."""
_Event = Callable[[], "Sequence[_Event] | None"]
"""Stores one event, or returns the events to store in its place."""
_log = logging.getLogger(__name__)
_Differences = Mapping[tuple[str, int], tuple[int, int]]


class RunEvents(Protocol):
    """The part of the context of a step of Dagster that stores events. In a process that Dagster Pipes has started, it sends them."""

    @property
    def log(self) -> Any:
        """The log of the run."""
        ...

    def log_event(self, event: Any) -> None:
        """Store an event."""
        ...

    def consume_events(self) -> Iterable[Any]:
        """Remove and return the events that were kept for the end of the step."""
        ...


class DagsterReports:
    """Collects the reports of a stream, and logs them as events of a run; see `platform_defs.stream.reports.Reports`.

    A table that begins to fail, or to wait for another writer, is logged at once; its further tries are not logged. If an event cannot be
    stored, the remaining events are kept and tried again half a minute later, so that a fault of the network does not end the stream.

    Args:
        context: the step of the run, or an object that sends the events to it.
        engine: the engine.
        days: the daily partitions of tables that close ranges.
        interval_s: the shortest time between two summaries, in seconds.
        now: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        context: RunEvents,
        engine: Engine,
        days: dg.DailyPartitionsDefinition,
        interval_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context, self._engine, self._days, self._interval_s, self._now = context, engine, days, interval_s, now
        self._next_at, self._columns = now(), dict[str, dict[str, Any]]()
        self._waiting, self._unpublished, self._unaccounted = dict[str, bool](), dict[str, bool](), set[str]()
        self._collected, self._events = IntervalReports(), deque[_Event]()

    def report_batch(self, batch: Batch) -> None:
        """Collect a batch; sources without rows in it are not reported."""
        self._collected.batches += 1
        for row in batch:
            if row.kind == "rows":
                self._collected.rows[row.source].append(row)

    def report_steps(self, steps: Steps, took_s: float) -> None:
        """Collect steps."""
        for name, steps_of_table in steps.items():
            self._collected.steps[name] += steps_of_table

    def report_accounts(self, accounts: Accounts, took_s: float) -> None:
        """Collect accounts; a later account of a day replaces an earlier one."""
        self._unaccounted -= accounts.keys()
        for name, accounts_of_table in accounts.items():
            self._collected.accounts[name] |= {(account.side, account.day): account for account in accounts_of_table}

    def report_failure(self, asset: str, failure: PendingRetry) -> None:
        """Log that a table waits, unless this was logged before."""
        self._log_failed(self._waiting, asset, "does not advance", failure)

    def report_published(self, published: Mapping[str, Published]) -> None:
        """Collect the publishes of tables to topics."""
        for name, published_steps in published.items():
            self._collected.topics[name] = sum_of(self._collected.topics.get(name), published_steps)

    def report_unpublished(self, asset: str, failure: PendingRetry) -> None:
        """Log that a table is not published, unless this was logged before."""
        self._log_failed(self._unpublished, asset, "is not published to Kafka", failure)

    def _log_failed(self, logged: dict[str, bool], asset: str, what_fails: str, failure: PendingRetry) -> None:
        if logged.get(asset) == failure.is_busy:
            return
        logged[asset] = failure.is_busy
        if failure.is_busy:
            self._log_line("info", f"{asset} is skipped until it is free: {describe_error(failure.error)}. Other tables continue")
        else:
            self._log_line("warning", f"{asset} {what_fails}: {describe_error(failure.error)}. It is tried again; other tables continue")

    def report_unaccounted(self, asset: str, error: Exception) -> None:
        """Log that a table could not be accounted for, unless this was logged before."""
        if asset in self._unaccounted:
            return
        self._unaccounted.add(asset)
        self._log_line("warning", f"{asset} could not be accounted for: {describe_error(error)}. The next try is after its next step")

    def report_turn(self, waiting: Mapping[str, PendingRetry], unpublished: Mapping[str, PendingRetry]) -> None:
        """Log the tables that no longer wait and, if the last summary is long enough ago, the collected reports."""
        self._log_free(self._waiting, waiting, "advancing again")
        self._log_free(self._unpublished, unpublished, "publishing to Kafka again")
        if self._now() < self._next_at:
            return
        try:
            self.publish()
        except Exception as error:
            _log.warning("the reports of the stream could not be stored; the next try is in %.0f s: %s", _RETRY_S, describe_error(error))
            self._next_at = self._now() + _RETRY_S

    def _log_free(self, logged: dict[str, bool], waiting: Mapping[str, PendingRetry], works: str) -> None:
        """Log and forget the tables that were logged as waiting and no longer wait."""
        if no_longer_waiting := sorted(logged.keys() - waiting.keys()):
            self._log_line("info", f"{', '.join(no_longer_waiting)}: {works}")
        for name in no_longer_waiting:
            del logged[name]

    def publish(self) -> None:
        """Log the collected reports as events; none if nothing has changed. If an event cannot be stored, the next call goes on with it."""
        self._store()  # events that an earlier call could not store
        collected = self._collected
        if collected.is_empty:
            return
        ingested = [dg.AssetMaterialization(event_key(source), metadata=batch_metadata(rows)) for source, rows in collected.rows.items()]
        self._events += [partial(self._log, event) for event in ingested]
        self._events += [partial(self._materializations, name, steps, collected.lags) for name, steps in collected.steps.items()]
        metadata_by_table = {name: published_metadata(cast(Any, published)) for name, published in collected.topics.items()}
        topics = [dg.AssetMaterialization(topic_key(name), metadata=metadata) for name, metadata in metadata_by_table.items()]
        self._events += [partial(self._log, event) for event in topics]
        for name, accounts in collected.accounts.items():
            self._events += [partial(self._log, evaluation) for evaluation in self._evaluations(name, [*accounts.values()])]
        self._events.append(partial(self._summarize, collected))
        self._collected, self._next_at = IntervalReports(), self._now() + self._interval_s
        self._store()

    def _store(self) -> None:
        """Store the events in turn. The event of a table that cannot be read is left out. Another error keeps this event and later ones."""
        while self._events:
            further = None
            try:
                further = self._events[0]()
            except UNREADABLE as error:
                self._log_line("warning", f"an event is left out: {describe_error(error)}")
            self._events.popleft()
            self._events.extendleft(reversed(further or ()))

    def violated(self, error: LawError) -> None:
        """Log that the conservation law does not hold for a table: for each of its days, and last for the table as a whole.

        The collected reports are logged first, since the newest result of a check counts. If they cannot be stored, the violation is logged
        all the same.
        """
        with suppress(Exception):
            self.publish()
        for evaluation in self._evaluations(error.asset, error.accounts, error.differences):
            self._log(evaluation)
        result = _law(error.accounts, error.differences)
        self._log(_evaluation(error.asset, result, None))

    @contextmanager
    def stored_at_end(self) -> Iterator[None]:
        """At the end of a stream, also after an error, log the remaining reports. After an error, errors of the logging are ignored."""
        try:
            yield
        except LawError as error:
            with suppress(Exception):  # the violation is recorded in the lake already
                self.violated(error)
            raise
        except BaseException:
            with suppress(Exception):
                self.publish()
            raise
        self.publish()

    def _materializations(self, name: str, steps: Sequence[Step], lags: dict[str, float]) -> list[_Event]:
        """A table's materializations, one for each changed day if it has partitions; adds its lag in seconds to `lags`."""
        derived, state, rows = self._engine.assets[name], self._engine.pending.describe_progress(name), sum(step.rows for step in steps)
        columns, lags[name] = self._columns_of(derived), state["lag_ms"] / 1000
        if not derived.operator.reads.closes_ranges:
            metadata = {"steps": len(steps), "changes": rows} | columns
            return [partial(self._log, dg.AssetMaterialization(name, metadata=metadata))]
        times = self._engine.pending.event_times(name)
        days = changed_days(steps, self._days, times[0] if times else None)
        metadata, events = {"steps": len(steps), "rows": rows} | progress_metadata(state), list[_Event]()
        for day in days:
            is_final = state["closed_to"] is not None and state["closed_to"] >= day_end(day)
            metadata_of_day = metadata | {"finalized": is_final} | (columns if day == days[-1] else {})
            events.append(partial(self._log, dg.AssetMaterialization(name, partition=str(day), metadata=metadata_of_day)))
        return events

    def _columns_of(self, derived: DerivedAsset) -> dict[str, Any]:
        """The metadata of a table's columns; none if the table cannot be read now, as while it is rebuilt."""
        if derived.name not in self._columns:
            try:
                self._columns[derived.name] = column_metadata(cast(Any, self._engine), derived)
            except (PySparkException, Py4JJavaError, LakeError):
                return {}
        return self._columns[derived.name]

    def _evaluations(
        self, name: str, accounts: Sequence[DayAccount], differences: _Differences = MappingProxyType({})
    ) -> Iterator[AssetCheckEvaluation]:
        """The results of the conservation law of a table: by day if it has partitions, else for all days at once."""
        days = range_of(self._days) if self._engine.assets[name].operator.reads.closes_ranges else None
        by_day = defaultdict[str | None, list[DayAccount]](list)
        for account in accounts:
            by_day[str(account.day) if days and days[0] <= account.day <= days[1] else None].append(account)
        for day, accounts_of_day in sorted(by_day.items(), key=lambda item: (item[0] is None, item[0] or "")):
            yield _evaluation(name, _law(accounts_of_day, differences), day)

    def _summarize(self, collected: IntervalReports) -> None:
        clauses = collected.parts + ([f"waiting: {', '.join(sorted(self._waiting))}"] if self._waiting else [])
        clauses += [f"not published: {', '.join(sorted(self._unpublished))}"] if self._unpublished else []
        self._context.log.info("; ".join(clauses))

    def _log_line(self, level: Literal["info", "warning"], text: str) -> None:
        """Log a line; a line that cannot be stored is in the log of the process."""
        try:
            getattr(self._context.log, level)(text)
        except Exception as error:
            _log.warning("%s (not stored in Dagster: %s)", text, describe_error(error))

    def _log(self, event: Any) -> None:
        """Store an event now. Dagster also keeps it for the end of the step, which a stream may reach after weeks."""
        self._context.log_event(event)
        deque(self._context.consume_events(), maxlen=0)


def _law(accounts: Sequence[Any], differences: _Differences) -> dg.AssetCheckResult:
    return law_check(Advanced({}, accounts, differences))


def _evaluation(name: str, result: dg.AssetCheckResult, day: str | None) -> AssetCheckEvaluation:
    """A check's result as the event that Dagster stores; see `assets.factories.daily_checks`."""
    metadata, words = dict(result.metadata or {}), result.description
    return AssetCheckEvaluation(
        dg.AssetKey(name), LAW, bool(result.passed), metadata, severity=result.severity, description=words, partition=day
    )
