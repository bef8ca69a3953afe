"""Reuses or removes uncommitted rows: rows in a log or a quarantine whose batch is not in the ledger, because an ingest was killed."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from assets.contracts import SourceContract
from operators.engine_columns import SEQ
from platform_defs.engine.faults import point
from platform_defs.engine.ingest.attempts import is_same_input
from platform_defs.engine.lake.commits import reporting_overtaken
from platform_defs.engine.lake.reads import Commit
from platform_defs.engine.lake.tables import Lake, LakeSnapshot
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.ledger.ledger import TABLE, Ledger
from platform_defs.engine.ledger.open_batch import OpenBatch
from platform_defs.engine.ledger.snapshot import LedgerSnapshot, last_with_rejected_rows, last_with_rows

ATTEMPT = "attempt"
"""The metadata key of the commits of logs and quarantines: the batch and a hash of its input (see `attempts`)."""
REMOVED = "orphans removed"
"""The `input` of a commit that removed uncommitted rows. Lakes contain this text, so it must not change."""
REPLAY = "replay"
"""The `input` of an attempt with several batches."""


def require_logs(lake: Lake, ledger: Ledger, contracts: Mapping[str, SourceContract], *, quarantines: bool = True) -> None:
    """Raise unless logs and quarantines have the rows of every batch that the ledger records for their sources.

    Args:
        lake: the lake.
        ledger: its ledger.
        contracts: the sources.
        quarantines: whether to check the quarantines too; no table is computed from them.

    Raises:
        LedgerError: a log or a quarantine has lost its newest commits.
    """
    known = LedgerSnapshot.of(ledger)  # before the tables are read: they have its batches
    for contract in contracts.values():
        for table, named_seq in newest_recorded(known, contract).items():
            if not named_seq or (table == contract.quarantine and not quarantines):
                continue
            newest = lake.newest_commit(table, ATTEMPT)
            newest_seq = 0 if newest is None else newest.value["seq"]
            if newest_seq < named_seq:
                raise LedgerError.log_too_short(table, newest_seq, named_seq, lake.path(table))


def clear_uncommitted(
    spark: SparkSession,
    lake: Lake,
    batch: OpenBatch,
    contracts: Mapping[str, SourceContract],
    attempts: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """Remove the uncommitted rows of all sources, except those that an earlier try with the same input left.

    Every writer of the ledger calls this first, because a new batch would otherwise include uncommitted rows with its number. Uncommitted
    rows can also have an earlier number, if their source was removed from the pipeline after a kill and is added again.

    Args:
        spark: the session.
        lake: the lake.
        batch: the open batch.
        contracts: all sources, also those without new input.
        attempts: for each source with input, the metadata of its commits.

    Raises:
        LedgerError: a table has an attempt at a batch after the open one, so the ledger has lost batches.
    """
    for name, contract in contracts.items():
        for table, named_seq in newest_recorded(batch.known, contract).items():
            snapshot = LakeSnapshot.of(lake)
            left_over = snapshot.newest_commit(table, ATTEMPT)
            if left_over is None:
                continue
            if left_over.value["seq"] > batch.seq and left_over.value["input"] != REPLAY:
                raise LedgerError.too_short(batch.seq - 1, left_over.value["seq"] - 1, f"table {table}", lake.path(TABLE))
            if is_left_over(left_over.value, named_seq) and not is_same_input(left_over.value, (attempts or {}).get(name)):
                remove_uncommitted(spark, snapshot, table, named_seq, batch)


def is_left_over(attempt: Mapping[str, Any], named: int) -> bool:
    """Whether a table's newest attempt left uncommitted rows. `named` is the newest batch that the ledger records for the table."""
    return attempt["seq"] > named and attempt["input"] != REMOVED


def newest_recorded(ledger: Ledger, contract: SourceContract) -> dict[str, int]:
    """For a source's log and its quarantine, the newest batch that the ledger records with rows in it; 0 for none."""
    return {contract.log: last_with_rows(ledger, contract.name), contract.quarantine: last_with_rejected_rows(ledger, contract.name)}


def remove_uncommitted(spark: SparkSession, lake: Lake, table: str, named_seq: int, batch: OpenBatch) -> None:
    """Delete the uncommitted rows of a table: those of batches after `named_seq`.

    Args:
        spark: the session.
        lake: a snapshot of the lake; nothing is deleted if another writer has committed to the table since.
        table: the table.
        named_seq: the newest batch that the ledger records for the table.
        batch: the open batch; any other open batch is made to fail, as the rows may belong to it.
    """
    delta = lake.delta(table)
    if delta is None:
        return
    batch.fence()
    point("uncommitted.before_remove")
    lake.live.delete(spark, table, f"{SEQ} > {named_seq}", {ATTEMPT: {"seq": batch.seq - 1, "input": REMOVED}}, delta)
    point("uncommitted.after_remove")


def take_over(snapshot: Lake, table: str, left_over: Commit) -> None:
    """Reuse the rows that an earlier try of the same attempt left; a commit prevents another process from removing them.

    Args:
        snapshot: the snapshot of the lake in which the rows were found.
        table: the table.
        left_over: the commit that wrote the rows.

    Raises:
        LakeError: another writer has committed to the table since.
    """
    delta = snapshot.delta(table)
    assert delta is not None
    with reporting_overtaken(table, ATTEMPT):
        snapshot.carry_metadata({ATTEMPT: left_over}, delta)
