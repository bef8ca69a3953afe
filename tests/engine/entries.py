"""Short constructors of ledger batches."""

from typing import Any

from platform_defs.engine.ledger.ledger import Entry, SourceEntry


def source_entry(source: str, seq: int, **changes: Any) -> SourceEntry:
    """The ledger row of a source in a batch."""
    return SourceEntry(**{"seq": seq, "kind": "rows", "ingested_at": seq, "source": source, **changes})


def watermark_batches(*by_source: dict[str, int | str | None]) -> list[Entry]:
    """Batches with the given watermarks by source; `'idle'` makes a source idle with its last watermark."""
    known: dict[str, int | None] = {}
    entries: list[Entry] = []
    for seq, entry in enumerate(by_source, 1):
        rows = []
        for source, watermark in entry.items():
            idle = watermark == "idle"
            known[source] = known.get(source) if isinstance(watermark, str) else watermark
            rows.append(source_entry(source, seq, watermark=known[source], idle=idle))
        entries.append(tuple(rows))
    return entries
