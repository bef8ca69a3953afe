"""What every writer of the ledger works on."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from assets.contracts import SourceContract
from platform_defs.engine.ledger import Ledger
from platform_defs.resources.lake import Lake


@dataclass(frozen=True)
class LedgerWriter:
    """A writer of the ledger.

    Args:
        spark: the session.
        lake: the lake.
        ledger: its ledger.
        contracts: the sources, by name.
    """

    spark: SparkSession
    lake: Lake
    ledger: Ledger
    contracts: Mapping[str, SourceContract]
