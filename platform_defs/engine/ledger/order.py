"""The order of the ledger's batches: numbers have no gaps, times increase, and no watermark decreases."""

from contextlib import suppress

from platform_defs.engine.ledger.rows import Entry, SourceEntry
from platform_defs.engine.ledger.summary import Summary


def order_fault(entry: Entry, head: int, before: int | None, last: dict[str, SourceEntry]) -> str | None:
    """Why a batch does not follow those before it; None if it does.

    Args:
        entry: the batch's rows.
        head: the number of the batch before it; 0 if there is none.
        before: the time of that batch.
        last: the newest row of each source before it.
    """
    seq, now = entry[0].seq, entry[0].ingested_at
    if all(row.kind == "summary" for row in entry) and not head:
        return _summary_fault(entry)
    if seq != head + 1:
        return f"it follows batch {head}, so batches between them are missing"
    if len({row.source for row in entry}) < len(entry):
        return "it records a source twice"
    if any(row.ingested_at != now for row in entry) or (before is not None and now <= before):
        return f"its ingested_at {now} is not later than that of the batch before, {before}"
    return next((fault for row in entry if (fault := _watermark_fault(row, last.get(row.source)))), None)


def _watermark_fault(row: SourceEntry, last: SourceEntry | None) -> str | None:
    if last is None or last.watermark is None or (row.watermark is not None and row.watermark >= last.watermark):
        return None
    return f"the watermark of {row.source!r} decreases from {last.watermark} to {row.watermark}"


def _summary_fault(rows: Entry) -> str | None:
    """Why the rows of a summary cannot be read; None if they can."""
    with suppress(ValueError):
        [text] = {row.summary or "" for row in rows}
        summary = Summary.parse(text)
        if summary.upto == rows[0].seq and {*summary.sources} <= {row.source for row in rows}:
            return None
    return "its summary of the batches before it is damaged"
