"""What every writer of the ledger works on, and how each begins a batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from assets.contracts import SourceContract
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import Ledger
from platform_defs.engine.ledger.open_batch import Batch


@dataclass(frozen=True)
class LedgerWriter:
    """A writer of the ledger.

    Args:
        spark: the session.
        lake: the lake.
        ledger: its ledger.
        contracts: the sources, by name.
        require: passes if the ledger has every batch that a table has handled; else raises `LedgerError`.
    """

    spark: SparkSession
    lake: Lake
    ledger: Ledger
    contracts: Mapping[str, SourceContract]
    require: Callable[[], None] = field(default=lambda: None, kw_only=True)

    def _begin(self) -> Batch:
        """Begin a batch, which would take the number of one that the ledger has lost.

        It begins first: what is asked of the ledger afterwards is true of it, or the batch does not land.
        """
        batch = Batch.begin(self.ledger)
        self.require()
        return batch
