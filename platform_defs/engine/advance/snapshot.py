"""A consistent snapshot of one asset and its inputs, which later commits do not change."""

from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.progress import progress
from platform_defs.engine.inputs.same_inputs import require_same_inputs


def snapshot(advance: Advance) -> Advance:
    """An advance on a snapshot of its asset and inputs, after the checks of the asset's progress.

    Raises:
        LedgerError: the ledger lacks a batch that the asset has handled.
        ProgressError: the asset's table was made with other settings, or an input was replaced since then.
    """
    on_snapshot = advance.take_snapshot()
    now = progress(on_snapshot.workspace.lake, on_snapshot.asset)
    advance.workspace.ledger.require(now.seq, f"table {advance.asset.name}")
    require_same_inputs(on_snapshot.workspace, on_snapshot.asset, now)
    return on_snapshot
