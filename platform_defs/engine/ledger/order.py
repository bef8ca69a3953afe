"""The order of the ledger's batches: numbers have no gaps, times increase, and no watermark decreases."""

from contextlib import suppress

from platform_defs.engine.ledger.rows import Batch, SourceBatch
from platform_defs.engine.ledger.summary import Summary


def order_fault(batch: Batch, head: int, before: int | None, last: dict[str, SourceBatch]) -> str | None:
    """Why a batch does not follow those before it; None if it does.

    Args:
        batch: the batch's rows.
        head: the number of the batch before it; 0 if there is none.
        before: the time of that batch.
        last: the newest row of each source before it.
    """
    seq, now = batch[0].seq, batch[0].ingested_at
    if all(row.kind == "summary" for row in batch) and not head:
        return _summary_fault(batch)
    if seq <= head:
        return f"its number is not above {head}"
    if seq > head + 1:
        return f"it follows batch {head}, so batches between them are missing"
    if len({row.source for row in batch}) < len(batch):
        return "it records a source twice"
    if any(row.ingested_at != now for row in batch):
        return f"its rows have different ingested_at: {', '.join(map(str, sorted({row.ingested_at for row in batch})))}"
    if before is not None and now <= before:
        return f"its ingested_at {now} is not later than that of the batch before, {before}"
    return next((fault for row in batch if (fault := _watermark_fault(row, last.get(row.source)))), None)


def _watermark_fault(row: SourceBatch, last: SourceBatch | None) -> str | None:
    if last is None or last.watermark is None or (row.watermark is not None and row.watermark >= last.watermark):
        return None
    return f"the watermark of {row.source!r} decreases from {last.watermark} to {row.watermark}"


def _summary_fault(rows: Batch) -> str | None:
    """Why the rows of a summary cannot be read; None if they can."""
    with suppress(ValueError):
        [text] = {row.summary or "" for row in rows}
        summary = Summary.parse(text)
        if summary.upto == rows[0].seq and {*summary.sources} <= {row.source for row in rows}:
            return None
    return "its summary of the batches before it is damaged"
