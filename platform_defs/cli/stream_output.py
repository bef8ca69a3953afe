"""Advances tables while a stream ingests, and prints what each batch has ingested and how it has changed tables."""

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager

from assets.factories.sentences import count
from platform_defs.cli import render
from platform_defs.engine import Engine
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.ledger.ledger import Entry
from platform_defs.engine.operations.advance_all import AdvanceAll, Failed
from platform_defs.engine.operations.law_in_turn import LawInTurn


class StreamOutput:
    """Advances all tables after a batch.

    Args:
        engine: the engine.
        reads: the inputs of each table.
        print_line: prints one line.
        report: called when a table failed.
        report_account: called when a table could not be accounted for.
    """

    def __init__(
        self,
        engine: Engine,
        reads: Mapping[str, Sequence[str]],
        print_line: Callable[[str], None],
        report: Callable[[str, Failed], None],
        report_account: Callable[[str, Exception], None],
    ) -> None:
        self._engine, self._print, self._written = engine, print_line, Counter[str]()
        self._advance = AdvanceAll(self._steps, reads, report)
        self._law = LawInTurn(self._account, report_account)
        self._batches, self._accepted = 0, 0

    @contextmanager
    def framed(self, landing: str, every: str) -> Iterator[None]:
        """Print a line before the stream starts, and one when it has ended.

        Args:
            landing: the folder that has the sources' folders.
            every: the interval, as the user wrote it.
        """
        self._print(f"Watching {landing} for files of {', '.join(self._engine.sources)} every {every}. Ctrl-C ends it.")
        try:
            yield
        finally:
            self._print(f"Ended after {count(self._batches, 'batch')} with {count(self._accepted, 'accepted row')}.")

    def after(self, batch: Entry) -> None:
        """Print a batch, and advance the tables."""
        self._batches += 1
        self._accepted += sum(of_source.accepted for of_source in batch)
        self._print(render.batch_line(batch))
        self._printing(self._advance)

    def retry(self) -> None:
        """Advance tables whose wait after a failure has ended."""
        self._printing(self._advance.retry)

    def _printing(self, advance: Callable[[], None]) -> None:
        began = time.monotonic()
        advance()
        upserted = {name for name in self._written if self._engine.assets[name].operator.emits.upserts}
        added, changed = (self._tables(names) for names in (self._written.keys() - upserted, upserted))
        parts = [*([f"rows added: {added}"] if added else []), *([f"changes: {changed}"] if changed else [])]
        if parts:
            self._print(f"  {'; '.join(parts)}; {time.monotonic() - began:.1f} s")
        self._written.clear()
        began = time.monotonic()
        if held := self._law():
            self._print(f"  the conservation law holds: {', '.join(held)}; {time.monotonic() - began:.1f} s")

    def _tables(self, names: Set[str]) -> str:
        """The tables among some names with written rows, each with their number."""
        return ", ".join(f"{name} {rows:,}" for name, rows in self._written.items() if name in names and rows)

    def _steps(self, name: str) -> Generator[Step]:
        for step in self._engine.steps(name, checked=True):
            self._written[name] += step.rows
            self._law.changed(name, step)
            yield step

    def _account(self, name: str, step: Step) -> None:
        self._engine.accounts.check(name, step)
