"""A ledger's batches as a sequence of objects, which are read on access."""

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import pyarrow as pa

from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.rows import AS_INTS, SCHEMA, Batch, batches_of
from platform_defs.engine.ledger.store import LedgerStore


class Batches(Sequence[Batch]):
    """All batches of a ledger, by batch number; the batch with `seq` n is at index n - 1.

    Each access reads the store. Code that needs many batches reads the ledger's columns instead (`Ledger.history`). The batches that a
    summary has replaced cannot be read (`LedgerError`).

    Args:
        store: the ledger's store.
        head: the newest batch number.
        summarized: the last batch that a summary has replaced; 0 for none. The batches up to it cannot be read.
    """

    def __init__(self, store: LedgerStore, head: int, summarized: int = 0) -> None:
        self._store, self._head, self._summarized = store, head, summarized

    def __len__(self) -> int:
        return self._head

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> list[Batch]: ...
    def __getitem__(self, index: int | slice) -> Batch | list[Batch]:
        if isinstance(index, int):
            return self._read(range(self._head)[index], range(self._head)[index] + 1)[0]
        numbers = range(self._head)[index]
        return self._read(min(numbers), max(numbers) + 1)[:: numbers.step] if numbers else []

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._read(0, self._head))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"Batches({self[self._summarized :]!r})"

    def _read(self, first: int, end: int) -> list[Batch]:
        if first >= end:
            return []
        if first < self._summarized:
            raise LedgerError.summarized(first + 1, self._summarized)
        return batches_of(concat_parts(self._store.rows(SCHEMA.names, first, end), SCHEMA.names))


def concat_parts(parts: Iterable[pa.Table], names: Sequence[str]) -> pa.Table:
    """The parts as one table; an empty table if there is none."""
    tables = list(parts)
    return pa.concat_tables(tables) if tables else pa.schema([AS_INTS.field(name) for name in names]).empty_table()
