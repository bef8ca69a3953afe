"""Writes a ledger in format 1, with absolute paths and without later columns."""

from collections.abc import Sequence
from dataclasses import asdict

from deltalake import write_deltalake

from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.ledger.ledger import as_table
from tests.engine.source_batches import source_batch


def write_format_1(lake: Lake, offsets: Sequence[str], now: int, source: str = "l") -> None:
    """Write a ledger of one batch that read files."""
    rows = [asdict(source_batch(source, 1, ingested_at=now, rows_read=1, duplicate=1, offsets=tuple(offsets)))]
    table = as_table(rows).drop_columns(["clock", "spread"])
    write_deltalake(lake.path("ledger"), table, mode="append", description="Tidemark lake, format 1")
