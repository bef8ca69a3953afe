"""The base of all writers of the ledger: their fields, and how they begin a batch."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from assets.contracts import SourceContract
from platform_defs.engine.ingest.idle_sources import idle_sources
from platform_defs.engine.ingest.looks import Look
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Batch, Ledger, next_row
from platform_defs.engine.ledger.open_batch import OpenBatch


@dataclass(frozen=True)
class LedgerWriter:
    """A writer of the ledger.

    Args:
        spark: the session.
        lake: the lake.
        ledger: its ledger.
        contracts: the sources, by name.
        require: raises `LedgerError` unless the ledger has every batch that a table has handled.
    """

    spark: SparkSession
    lake: Lake
    ledger: Ledger
    contracts: Mapping[str, SourceContract]
    require: Callable[[], None] = field(default=lambda: None, kw_only=True)

    def _begin(self) -> OpenBatch:
        """Begin a batch, and check that the ledger has lost none.

        The batch begins first: if the ledger changes during the checks that follow, the batch's commit fails.
        """
        batch = OpenBatch.begin(self.ledger)
        self.require()
        return batch

    def _inactive_rows(self, batch: OpenBatch, looks: Mapping[str, Look] | None, ingested_sources: Collection[str] = ()) -> Batch:
        """A batch's rows for the sources that have become idle (see `idle_sources`), without those that have input in the batch."""
        return tuple(
            next_row(row, seq=batch.seq, kind="inactive", ingested_at=batch.now, idle=True)
            for name, row in idle_sources(batch.known, self.contracts, batch.now, looks).items()
            if name not in ingested_sources
        )
