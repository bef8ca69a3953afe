"""The offsets that a ledger records: the files that were read, and the ranges of offsets of Kafka's topics."""

from collections.abc import Iterator
from threading import RLock

import pyarrow as pa

from platform_defs.engine.ledger.arrow_values import arrow_scalar
from platform_defs.engine.ledger.columns import pc
from platform_defs.engine.ledger.known_files import KnownFiles
from platform_defs.engine.ledger.store import LedgerStore

_COLUMNS = ("seq", "source", "offsets")


class RecordedFiles:
    """The recorded files of all sources, as columns; only those of new batches are read.

    Args:
        store: the ledger's store.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store, self._mutex = store, RLock()
        self._files: dict[str, KnownFiles] = {}
        self._upto = 0

    def files_of(self, source: str, head: int) -> KnownFiles:
        """The files of a source in the batches up to `head`."""
        with self._mutex:
            if head > self._upto:
                try:
                    for part in self._store.rows(_COLUMNS, self._upto, head):
                        for name, offsets in _offsets_by_source(part):
                            self._files.setdefault(name, KnownFiles()).add(offsets)
                except BaseException:  # some parts were added: the next call reads all of them again
                    self._files.clear()
                    self._upto = 0
                    raise
                self._upto = head
            return self._files.get(source) or KnownFiles()


def _offsets_by_source(part: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    for name in pc.unique(part["source"]):
        yield name.as_py(), pc.list_flatten(part.filter(pc.equal(part["source"], name))["offsets"].combine_chunks())


def offsets_in_order(store: LedgerStore, source: str, head: int) -> list[tuple[int, str]]:
    """The offsets of a source in the batches up to `head`, each with its batch number, ordered by batch."""
    offsets = [pair for part in store.rows(_COLUMNS, 0, head) for pair in _offsets_of(part, source)]
    return sorted(offsets, key=lambda pair: pair[0])


def _offsets_of(part: pa.Table, source: str) -> Iterator[tuple[int, str]]:
    rows = part.filter(pc.equal(part["source"], arrow_scalar(source, pa.string())))
    for seq, offsets in zip(rows["seq"].to_pylist(), rows["offsets"].to_pylist(), strict=True):
        yield from ((seq, offset) for offset in offsets or ())
