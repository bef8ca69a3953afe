"""Rows that an attempt left in a log or a quarantine without a ledger entry: reused, or removed before anything else."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from assets.contracts import SourceContract
from operators.contract import SEQ
from platform_defs.engine.ledger import TABLE
from platform_defs.engine.ledger_error import LedgerError
from platform_defs.faults import point
from platform_defs.resources.lake import Lake

ATTEMPT = "attempt"
REPLAY = "replay"
"""The input of an attempt that spans several entries."""


def clear_orphans(
    spark: SparkSession, lake: Lake, contracts: Mapping[str, SourceContract], seq: int, attempts: Mapping[str, dict[str, Any]] | None = None
) -> None:
    """Remove what any source holds of `seq` or later, but for what this very attempt left when it was cut short.

    Every writer of the ledger calls this first: an entry must not adopt rows that it does not tell of.

    Args:
        spark: the session.
        lake: the lake.
        contracts: all sources, also those without new input.
        seq: the entry about to be written.
        attempts: for each source with input, what its commits will remember.

    Raises:
        LedgerError: a table holds an attempt at a later entry, so the one before it was committed and is lost.
    """
    for name, contract in contracts.items():
        for table in (contract.log, contract.quarantine):
            left = lake.newest(table, ATTEMPT)
            if left is not None and left.value["seq"] > seq and left.value["input"] != REPLAY:
                raise LedgerError.too_short(seq - 1, left.value["seq"] - 1, f"table {table}", lake.path(TABLE))
            if left is not None and left.value["seq"] >= seq and left.value != (attempts or {}).get(name):
                remove_orphans(spark, lake, table, seq)


def remove_orphans(spark: SparkSession, lake: Lake, table: str, seq: int) -> None:
    """Delete a table's rows of `seq` or later."""
    point("orphans.before_remove")
    lake.delete(spark, table, f"{SEQ} >= {seq}", {ATTEMPT: {"seq": seq - 1, "input": "orphans removed"}})
    point("orphans.after_remove")
