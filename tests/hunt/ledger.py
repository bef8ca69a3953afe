"""The ledger's rows in memory: a part for each commit, as the table that the ledger reads and as the objects that the model reads."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from platform_defs.engine.ledger.rows import SourceBatch, as_ints, batches_of


@dataclass(frozen=True, eq=False)
class Part:
    """The rows of one commit."""

    ints: pa.Table
    rows: tuple[SourceBatch, ...]
    first: int
    last: int

    @classmethod
    def of(cls, table: pa.Table) -> "Part":
        ints = as_ints(table)
        rows = tuple(row for source_batch in batches_of(ints) for row in source_batch)
        return cls(ints, rows, rows[0].seq, rows[-1].seq)


@dataclass(frozen=True, eq=False)
class LedgerRow:
    """A ledger row, and the part that contains it."""

    source_batch: SourceBatch
    part: Part


def within(seq: pa.ChunkedArray, after: int, upto: int) -> pa.ChunkedArray:
    """Which batch numbers lie in `after < seq <= upto`."""
    return pc.and_(pc.greater(seq, after), pc.less_equal(seq, upto))
