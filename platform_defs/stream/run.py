"""A stream: each micro-batch is ingested, then all tables are advanced in parallel, and those that have changed are accounted for in turn.

Meanwhile, tables with a sink are published to Kafka, each after it has made a step.

`tidemark ingest --every` and Dagster's job `stream` both use it, and differ only in what they do with its reports.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext, suppress

from operators.errors import TidemarkError
from platform_defs.engine import Engine
from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.ingest.errors import UnreadError
from platform_defs.engine.lake.interrupts import LostInterrupts
from platform_defs.engine.ledger.ledger import Batch
from platform_defs.engine.operations.advance_all import AdvanceAll
from platform_defs.engine.operations.publish_all import PublishAll
from platform_defs.engine.operations.publish_to_topic import Published
from platform_defs.engine.operations.stream_accounting import StreamAccounting
from platform_defs.engine.operations.topic import kept_clients
from platform_defs.orchestration.readable_tables import UNREADABLE
from platform_defs.settings.stream_trigger import StreamTrigger
from platform_defs.stream.reports import Reports


class StreamError(TidemarkError, RuntimeError):
    """A stream has ended, and tables or topics are behind."""

    @classmethod
    def behind(cls, tables: list[str]) -> "StreamError":
        """Tables that could not be advanced, each with the reason in a report."""
        return cls(
            f"{', '.join(tables)} could not be advanced; the reasons are in the log. Every file that could be read is ingested, and other "
            "tables are advanced. The next run continues from here"
        )

    @classmethod
    def unpublished(cls, tables: list[str]) -> "StreamError":
        """Tables that could not be published to their topics, each with the reason in a report."""
        return cls(
            f"{', '.join(tables)} could not be published to Kafka; the reasons are in the log. All tables are advanced. The next run "
            "continues after the last step on the topic"
        )


class StreamRun:
    """Runs a stream.

    A table that another process writes is skipped until it is free. If another process waits to write a table, the stream releases it after
    the present step (see `engine.lake.waits`). A sink that fails is tried again, and stops neither tables nor ingest.

    Args:
        engine: the engine.
        reports: receives the reports.
        measure_steps: measures the steps of a table while they are made; given the table and its steps, it returns the steps.
    """

    def __init__(
        self,
        engine: Engine,
        reports: Reports,
        measure_steps: Callable[[str, Generator[Step]], Generator[Step]] = lambda _, steps: steps,
    ) -> None:
        self._engine, self._reports, self._measure_steps = engine, reports, measure_steps
        self._steps, self._accounts = defaultdict[str, list[Step]](list), dict[str, list[DayAccount]]()
        self._advance = AdvanceAll(
            self._advance_table, {name: asset.inputs for name, asset in engine.assets.items()}, reports.report_failure
        )
        self._newest, self._interrupts = 0, LostInterrupts()
        self._law = StreamAccounting(self._account, reports.report_unaccounted)
        self._publish = PublishAll(self._publish_table, engine.sinks, reports.report_unpublished)

    def run(self, trigger: StreamTrigger) -> list[Batch]:
        """Run until the stream is interrupted, or until all present files are ingested.

        Tables that are behind are advanced first, and topics that are behind are published: an earlier stream may have ended between a
        batch and its tables.

        Args:
            trigger: when to ingest, and when to end.

        Returns:
            The newest batches.

        Raises:
            LakeError: another stream runs over the same folders, or the lake cannot be written to.
            LawError: the conservation law does not hold for a table.
            LedgerError: the ledger is corrupted.
            JvmLostError: the JVM has ended.
            IngestError: rows violate a rule with the action `fail`, or a folder cannot be used.
            StreamError: all present files are ingested, but a table could not be advanced or published.
            UnreadError: all present files are ingested, except some that could not be read.
        """
        try:
            with self._engine.queries.enable() if trigger.every is not None else nullcontext():
                return self._run(trigger)
        finally:
            self._interrupts.end()

    def _run(self, trigger: StreamTrigger) -> list[Batch]:
        clients = kept_clients(self._engine.spark, self._engine.sinks.values()) if self._engine.sinks else nullcontext()
        with clients, self._publish:
            batches, unread_error = self._ingest(trigger)
            self._account_and_report(self._law.account_rest)
            self._report_published(self._publish.publish_rest())
        if unread_error is not None:
            raise unread_error
        if self._advance.failed:
            raise StreamError.behind(sorted(self._advance.failed))
        if self._publish.failed:
            raise StreamError.unpublished(sorted(self._publish.failed))
        return [*batches]

    def _ingest(self, trigger: StreamTrigger) -> tuple[Sequence[Batch], UnreadError | None]:
        """Ingest and advance until the stream ends; returns the newest batches, and the error of files that could not be read."""
        unread_error: UnreadError | None = None
        try:
            batches = self._engine.ingest(trigger.every, self.after, self.retry, self.start)
        except UnreadError as error:  # all other files were ingested
            batches, unread_error = error.batches, error
        for batch in batches:
            if batch[0].seq > self._newest:  # the last batch, which records the sources that have become idle
                self.after(batch)
        return batches, unread_error

    def start(self) -> None:
        """Advance the tables that are behind, and publish the topics that are. A table that cannot be read stops no other table."""
        self._interrupts.watch()
        for name in self._engine.sinks:
            with suppress(*UNREADABLE):  # its advance reports the error
                self._publish.publish_steps({name: self._engine.pending.progress(name).step})
        self._advance_and_report(self._advance)

    def after(self, batch: Batch) -> None:
        """Report a batch, and advance the tables."""
        self._newest = batch[0].seq
        self._reports.report_batch(batch)
        self._advance_and_report(self._advance)

    def retry(self) -> None:
        """Advance and publish tables whose wait after a failure has ended."""
        self._advance_and_report(self._advance.retry)

    def _advance_and_report(self, advance: Callable[[], None]) -> None:
        began = time.monotonic()
        try:
            advance()
        finally:  # an interrupt or a violation of the law does not undo the steps that were made
            if self._steps:
                self._reports.report_steps(dict(self._steps), time.monotonic() - began)
            self._steps.clear()
        self._account_and_report(self._law)
        self._report_published(self._publish())
        self._interrupts.check()
        self._reports.report_turn(self._advance.failed, self._publish.failed)

    def _report_published(self, published: Mapping[str, Published]) -> None:
        if published:
            self._reports.report_published(published)

    def _publish_table(self, name: str, upto: int) -> Published:
        return self._engine.views.publish_to_topic(name, upto)

    def _account_and_report(self, account: Callable[[], list[str]]) -> None:
        began = time.monotonic()
        try:
            account()
        finally:
            if self._accounts:
                self._reports.report_accounts(dict(self._accounts), time.monotonic() - began)
            self._accounts.clear()

    def _advance_table(self, name: str) -> Generator[Step]:
        for step in self._measure_steps(name, self._engine.steps(name, checked=True, purpose="stream")):
            self._steps[name].append(step)
            self._law.note_step(name, step)
            self._publish.publish_steps({name: step.after.step})  # the step was committed, and keeps the conservation law
            yield step

    def _account(self, name: str, step: Step) -> None:
        with self._engine.failures.recorded_of_account(name):
            self._accounts[name] = self._engine.accounts.check(name, step)
