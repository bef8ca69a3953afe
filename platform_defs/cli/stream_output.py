"""Prints the reports of a stream: batches, new rows of tables, published records, failures, and whether the conservation law holds."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from assets.factories.sentences import count
from platform_defs.cli import render
from platform_defs.engine import Engine
from platform_defs.engine.ledger.ledger import Batch
from platform_defs.engine.operations.advance_all import PendingRetry
from platform_defs.engine.operations.failures import describe_error
from platform_defs.engine.operations.publish_to_topic import Published
from platform_defs.stream.reports import Accounts, Steps


class StreamOutput:
    """Prints the reports of a stream; see `platform_defs.stream.reports.Reports`.

    Args:
        engine: the engine.
        print_line: prints one line.
        warn: prints a warning.
        on_batch: called with each ingested batch, before it is printed.
    """

    def __init__(
        self,
        engine: Engine,
        print_line: Callable[[str], None],
        warn: Callable[[str], None],
        on_batch: Callable[[Batch], None] = lambda _: None,
    ) -> None:
        self._engine, self._print, self._warn, self._on_batch = engine, print_line, warn, on_batch
        self._batches, self._accepted = 0, 0

    @contextmanager
    def framed(self, landing: str, every: str) -> Iterator[None]:
        """Print a line before the stream starts, with the sources and with those that read topics of Kafka, and one when it has ended.

        Args:
            landing: the folder with a folder of input files for each source.
            every: the interval at which the stream looks for new input, as the user wrote it.
        """
        topics = f", and the topics of {', '.join(self._engine.topics)}," if self._engine.topics else ""
        self._print(f"Watching {landing} for files of {', '.join(self._engine.sources)}{topics} every {every}. Ctrl-C ends it.")
        try:
            yield
        finally:
            self._print(f"Ended after {count(self._batches, 'batch')} with {count(self._accepted, 'accepted row')}.")

    def report_batch(self, batch: Batch) -> None:
        """Print the counts of an ingested batch."""
        self._batches += 1
        self._accepted += sum(source_batch.accepted for source_batch in batch)
        self._on_batch(batch)
        self._print(render.batch_line(batch))

    def report_steps(self, steps: Steps, took_s: float) -> None:
        """Print, by table, the number of rows that were added, or of changes of an upserted table."""
        rows = {name: sum(step.rows for step in steps_of_table) for name, steps_of_table in steps.items()}
        upserted = {name for name in rows if self._engine.assets[name].operator.emits.upserts}
        added = [f"{name} {number:,}" for name, number in rows.items() if number and name not in upserted]
        changed = [f"{name} {number:,}" for name, number in rows.items() if number and name in upserted]
        clauses = [f"{label}: {', '.join(texts)}" for label, texts in (("rows added", added), ("changes", changed)) if texts]
        if clauses:
            self._print(f"  {'; '.join(clauses)}; {took_s:.1f} s")

    def report_failure(self, asset: str, failure: PendingRetry) -> None:
        """Warn of a table that does not advance."""
        self._warn_of(asset, "does not advance", failure)

    def report_published(self, published: Mapping[str, Published]) -> None:
        """Print the numbers of records that were published to the tables' topics."""
        records = ", ".join(f"{name} {steps.records:,}" for name, steps in published.items())
        self._print(f"  records published: {records}")

    def report_unpublished(self, asset: str, failure: PendingRetry) -> None:
        """Warn of a table that is not published."""
        self._warn_of(asset, "is not published to Kafka", failure)

    def report_accounts(self, accounts: Accounts, took_s: float) -> None:
        """Print the tables for which the conservation law holds."""
        self._print(f"  the conservation law holds: {', '.join(accounts)}; {took_s:.1f} s")

    def report_unaccounted(self, asset: str, error: Exception) -> None:
        """Warn of a table that could not be accounted for."""
        self._warn(f"{asset} could not be accounted for: {describe_error(error)}. The next try is after its next step")

    def report_turn(self, waiting: Mapping[str, PendingRetry], unpublished: Mapping[str, PendingRetry]) -> None:
        """Print nothing at the end of a turn: its failures were printed when they occurred."""

    def _warn_of(self, asset: str, predicate: str, failure: PendingRetry) -> None:
        """Warn of a failure, given as the predicate of a sentence about the table, such as `does not advance`."""
        if failure.is_busy:
            self._warn(f"{asset} is skipped until it is free: {describe_error(failure.error)}. Other assets continue")
            return
        tries = f"{failure.tries} tries" if failure.tries > 1 else "1 try"
        next_try = f"The next try is in {failure.wait_s:.0f} s; other assets continue"
        self._warn(f"{asset} {predicate} ({tries}): {describe_error(failure.error)}. {next_try}")
