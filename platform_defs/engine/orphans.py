"""Rows that an attempt left in a log or a quarantine without a ledger entry: reused, or removed before anything else."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from assets.contracts import SourceContract
from operators.contract import SEQ
from platform_defs.engine.ledger import TABLE, Ledger
from platform_defs.engine.ledger_error import LedgerError
from platform_defs.engine.ledger_view import last_with_rows
from platform_defs.faults import point
from platform_defs.resources.lake import Lake
from platform_defs.resources.pinned import PinnedLake

ATTEMPT = "attempt"
REMOVED = "orphans removed"
"""The input of a commit that removed rows."""
REPLAY = "replay"
"""The input of an attempt that spans several entries."""


def require_logs(lake: Lake, ledger: Ledger, contracts: Mapping[str, SourceContract]) -> None:
    """Pass if the logs and quarantines of some sources hold every batch that the ledger says brought rows to them.

    Raises:
        LedgerError: one has lost its newest commits.
    """
    for contract in contracts.values():
        for table, wanted in _named(ledger, contract).items():
            newest = lake.newest(table, ATTEMPT) if wanted else None
            held = 0 if newest is None else newest.value["seq"]
            if held < wanted:
                raise LedgerError.log_too_short(table, held, wanted, lake.path(table))


def clear_orphans(
    spark: SparkSession,
    lake: Lake,
    ledger: Ledger,
    contracts: Mapping[str, SourceContract],
    seq: int,
    attempts: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """Remove what any source holds that no batch names, but for what this very attempt left when it was cut short.

    Every writer of the ledger calls this first: a batch must not adopt rows that it does not name. They may be of an earlier number:
    a source that was away from the pipeline while others went on comes back with what a killed ingest left.

    Args:
        spark: the session.
        lake: the lake.
        ledger: its ledger.
        contracts: all sources, also those without new input.
        seq: the batch about to be written.
        attempts: for each source with input, what its commits will record.

    Raises:
        LedgerError: a table holds an attempt at a later batch, so the one before it was committed and is lost.
    """
    for name, contract in contracts.items():
        for table, named in _named(ledger, contract).items():
            pinned = PinnedLake.of(lake)
            left = pinned.newest(table, ATTEMPT)
            if left is None:
                continue
            if left.value["seq"] > seq and left.value["input"] != REPLAY:
                raise LedgerError.too_short(seq - 1, left.value["seq"] - 1, f"table {table}", lake.path(TABLE))
            if left.value["seq"] > named and left.value["input"] != REMOVED and left.value != (attempts or {}).get(name):
                remove_orphans(spark, pinned, table, named, seq)


def _named(ledger: Ledger, contract: SourceContract) -> dict[str, int]:
    """For a source's log and its quarantine, the newest batch that the ledger says brought rows to it; 0 for none."""
    rejected = ledger.source(contract.name).rejected_in or 0
    return {contract.log: last_with_rows(ledger, contract.name), contract.quarantine: rejected}


def remove_orphans(spark: SparkSession, lake: Lake, table: str, named: int, seq: int) -> None:
    """Delete a table's rows of batches after one, as far as the lake knows the table.

    Args:
        spark: the session.
        lake: the lake; where another has committed to the table since it was looked at, nothing is deleted.
        table: the table.
        named: the newest batch that the ledger names for it.
        seq: the batch about to be written.
    """
    seen = lake.delta(table)
    if seen is None:
        return
    point("orphans.before_remove")
    lake.live.delete(spark, table, f"{SEQ} > {named}", {ATTEMPT: {"seq": seq - 1, "input": REMOVED}}, seen)
    point("orphans.after_remove")
