"""One asset and its inputs at one time, whatever is committed later."""

from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.progress import progress


def snapshot(advance: Advance) -> Advance:
    """An asset as it is now.

    Raises:
        LedgerError: the ledger lacks a batch that the asset has handled.
        ProgressError: its table was made with other settings, or of tables that were made again since.
    """
    pinned = advance.pinned()
    now = progress(pinned.reading.lake, pinned.asset)
    advance.reading.ledger.require(now.seq, f"table {advance.asset.name}")
    pinned.reading.require_same_inputs(pinned.asset, now)
    return pinned
