"""Advances tables while a stream ingests, and prints what each batch has ingested and which rows it has added to tables."""

import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence

from platform_defs.cli import render
from platform_defs.engine import Engine
from platform_defs.engine.advance.advance import Step
from platform_defs.engine.ledger.ledger import Entry
from platform_defs.engine.operations.advance_all import AdvanceAll, Failed


class StreamOutput:
    """Advances all tables after a batch.

    Args:
        engine: the engine.
        reads: the inputs of each table.
        print_line: prints one line.
        report: called when a table failed.
    """

    def __init__(
        self,
        engine: Engine,
        reads: Mapping[str, Sequence[str]],
        print_line: Callable[[str], None],
        report: Callable[[str, Failed], None],
    ) -> None:
        self._engine, self._print, self._added = engine, print_line, Counter[str]()
        self._advance = AdvanceAll(self._steps, reads, report)

    def after(self, batch: Entry) -> None:
        """Print a batch, and advance the tables."""
        self._print(render.batch_line(batch))
        self._printing(self._advance)

    def retry(self) -> None:
        """Advance tables whose wait after a failure has ended."""
        self._printing(self._advance.retry)

    def _printing(self, advance: Callable[[], None]) -> None:
        began = time.monotonic()
        advance()
        tables = ", ".join(f"{name} {rows:,}" for name, rows in self._added.items() if rows)
        if tables:
            self._print(f"  rows added: {tables}; {time.monotonic() - began:.1f} s")
        self._added.clear()

    def _steps(self, name: str) -> Generator[Step]:
        for step in self._engine.steps(name, checked=True):
            self._added[name] += step.rows
            yield step
