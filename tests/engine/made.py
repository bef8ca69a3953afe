"""Ledger entries in few words."""

from typing import Any

from platform_defs.engine.ledger.ledger import Entry, SourceEntry


def source_entry(source: str, seq: int, **changes: Any) -> SourceEntry:
    """What one entry says of one source."""
    return SourceEntry(**{"seq": seq, "kind": "rows", "ingested_at": seq, "source": source, **changes})


def marks(*by_entry: dict[str, int | str | None]) -> list[Entry]:
    """Entries by their watermarks, by source; `'idle'` in place of one for a source that falls idle and keeps its last."""
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
