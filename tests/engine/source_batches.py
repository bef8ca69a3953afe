"""Short constructors of ledger batches."""

from typing import Any

from platform_defs.engine.ledger.ledger import Batch, SourceBatch


def source_batch(source: str, seq: int, **changes: Any) -> SourceBatch:
    """The ledger row of a source in a batch."""
    return SourceBatch(**{"seq": seq, "kind": "rows", "ingested_at": seq, "source": source, **changes})


def watermark_batches(*by_source: dict[str, int | str | None]) -> list[Batch]:
    """Batches with the given watermarks by source; `'idle'` makes a source idle with its last watermark."""
    known: dict[str, int | None] = {}
    batches: list[Batch] = []
    for seq, batch in enumerate(by_source, 1):
        rows = []
        for source, watermark in batch.items():
            idle = watermark == "idle"
            known[source] = known.get(source) if isinstance(watermark, str) else watermark
            rows.append(source_batch(source, seq, watermark=known[source], idle=idle))
        batches.append(tuple(rows))
    return batches
