"""A consistent snapshot of one asset and its inputs, which later commits do not change."""

from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.progress import progress


def snapshot(advance: Advance) -> Advance:
    """An advance on a snapshot of its asset and inputs, whose progress was checked.

    Raises:
        LedgerError: the ledger lacks a batch that the asset has handled.
        ProgressError: the asset's table was made with other settings, or an input was replaced since.
    """
    pinned = advance.pin_versions()
    now = progress(pinned.reading.lake, pinned.asset)
    advance.reading.ledger.require(now.seq, f"table {advance.asset.name}")
    pinned.reading.require_same_inputs(pinned.asset, now)
    return pinned
