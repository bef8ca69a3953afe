"""Short constructors of ledger batches."""

from typing import Any

from platform_defs.engine.ledger.ledger import Entry, SourceEntry


def source_entry(source: str, seq: int, **changes: Any) -> SourceEntry:
    """The entry of one source in one batch."""
    return SourceEntry(**{"seq": seq, "kind": "rows", "ingested_at": seq, "source": source, **changes})


def marks(*by_entry: dict[str, int | str | None]) -> list[Entry]:
    """Batches with the given watermarks by source; `'idle'` makes a source idle with its last watermark."""
    known: dict[str, int | None] = {}
    entries: list[Entry] = []
    for seq, entry in enumerate(by_entry, 1):
        of_entry = []
        for source, mark in entry.items():
            idle = mark == "idle"
            known[source] = known.get(source) if isinstance(mark, str) else mark
            of_entry.append(source_entry(source, seq, watermark=known[source], idle=idle))
        entries.append(tuple(of_entry))
    return entries
