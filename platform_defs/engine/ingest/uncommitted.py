"""Rows that an attempt left in a log or a quarantine without a ledger batch: reused, or removed before anything else."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from assets.contracts import SourceContract
from operators.contract import SEQ
from platform_defs.engine.lake.commits import refused_if_overtaken
from platform_defs.engine.lake.tables import Commit, Lake, PinnedLake
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.ledger import TABLE, Ledger
from platform_defs.engine.ledger.open_batch import Batch
from platform_defs.engine.ledger.snapshot import last_with_rows
from platform_defs.faults import point

ATTEMPT = "attempt"
REMOVED = "orphans removed"
"""The input of a commit that removed rows."""
REPLAY = "replay"
"""The input of an attempt that spans several entries."""


def require_logs(lake: Lake, ledger: Ledger, contracts: Mapping[str, SourceContract], *, quarantines: bool = True) -> None:
    """Pass if the logs of some sources, and their quarantines, hold every batch that the ledger says brought rows to them.

    Args:
        lake: the lake.
        ledger: its ledger.
        contracts: the sources.
        quarantines: whether to look at the quarantines too; nothing is computed from them.

    Raises:
        LedgerError: one has lost its newest commits.
    """
    for contract in contracts.values():
        for table, wanted in newest_named(ledger, contract).items():
            if not wanted or (table == contract.quarantine and not quarantines):
                continue
            newest = lake.newest(table, ATTEMPT)
            held = 0 if newest is None else newest.value["seq"]
            if held < wanted:
                raise LedgerError.log_too_short(table, held, wanted, lake.path(table))


def clear_orphans(
    spark: SparkSession,
    lake: Lake,
    batch: Batch,
    contracts: Mapping[str, SourceContract],
    attempts: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """Remove what any source holds that no batch names, but for what this very attempt left when it was cut short.

    Every writer of the ledger calls this first: a batch must not adopt rows that it does not name. They may be of an earlier number:
    a source that was away from the pipeline while others went on comes back with what a killed ingest left.

    Args:
        spark: the session.
        lake: the lake.
        batch: the batch that is being made.
        contracts: all sources, also those without new input.
        attempts: for each source with input, what its commits will record.

    Raises:
        LedgerError: a table holds an attempt at a later batch, so the one before it was committed and is lost.
    """
    for name, contract in contracts.items():
        for table, named in newest_named(batch.ledger, contract).items():
            pinned = PinnedLake.of(lake)
            left = pinned.newest(table, ATTEMPT)
            if left is None:
                continue
            if left.value["seq"] > batch.seq and left.value["input"] != REPLAY:
                raise LedgerError.too_short(batch.seq - 1, left.value["seq"] - 1, f"table {table}", lake.path(TABLE))
            if is_left_over(left.value, named) and left.value != (attempts or {}).get(name):
                remove_orphans(spark, pinned, table, named, batch)


def is_left_over(attempt: Mapping[str, Any], named: int) -> bool:
    """Whether the newest attempt at a table left rows that no batch names, given the newest batch that the ledger names for it."""
    return attempt["seq"] > named and attempt["input"] != REMOVED


def newest_named(ledger: Ledger, contract: SourceContract) -> dict[str, int]:
    """For a source's log and its quarantine, the newest batch that the ledger says brought rows to it; 0 for none."""
    rejected = ledger.source(contract.name).rejected_in or 0
    return {contract.log: last_with_rows(ledger, contract.name), contract.quarantine: rejected}


def remove_orphans(spark: SparkSession, lake: Lake, table: str, named: int, batch: Batch) -> None:
    """Delete a table's rows of batches after one, as far as the lake knows the table.

    Args:
        spark: the session.
        lake: the lake; where another has committed to the table since it was looked at, nothing is deleted.
        table: the table.
        named: the newest batch that the ledger names for it.
        batch: the batch that is being made; any other that is being made can no longer land, for the rows may be its own.
    """
    seen = lake.delta(table)
    if seen is None:
        return
    batch.fence()
    point("orphans.before_remove")
    lake.live.delete(spark, table, f"{SEQ} > {named}", {ATTEMPT: {"seq": batch.seq - 1, "input": REMOVED}}, seen)
    point("orphans.after_remove")


def take_over(pinned: Lake, table: str, left: Commit) -> None:
    """Make the rows that an attempt left those of the same attempt made again, by a commit: who would remove them meanwhile cannot.

    Args:
        pinned: the lake as it was when the rows were found.
        table: the table.
        left: the commit that left them.

    Raises:
        LakeError: another has committed to the table since.
    """
    seen = pinned.delta(table)
    assert seen is not None
    with refused_if_overtaken(table, ATTEMPT):
        pinned.carry({ATTEMPT: left}, seen)
