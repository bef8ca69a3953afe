"""How far back a table may still change: retention keeps the rows that such changes need."""

from assets.contracts import DerivedAsset
from platform_defs.engine.advance.corrections import unread_corrections
from platform_defs.engine.advance.position import position_of
from platform_defs.engine.inputs.progress import stored_progress
from platform_defs.engine.inputs.workspace import Workspace


def final_before(workspace: Workspace, asset: DerivedAsset) -> int | None:
    """The event time (epoch ms) before which no row of an input can be in a new result or change one; None if there is no such time.

    An input's row at `t` is in results with `t <= final_at <= t + wait`, where `wait` is the lookback plus the output watermark delay.
    """
    oldest, reads = oldest_change(workspace, asset), asset.operator.reads
    return None if oldest is None else oldest - reads.watermark_delay - reads.longest_lookback - 1


def oldest_change(workspace: Workspace, asset: DerivedAsset) -> int | None:
    """The least `final_at` (epoch ms) of results that a table of closed ranges may still add or correct; None if there is no limit.

    A step adds results after `closed_to`. A later row may correct results as far back as the allowed lateness plus the lookback. A
    correction of an input table may change results as far back as that table itself may change.
    """
    return _oldest_change(workspace, asset, {})


def _oldest_change(workspace: Workspace, asset: DerivedAsset, known: dict[str, int | None]) -> int | None:
    """As `oldest_change`. Exponentially many paths may lead to a table, so `known` has the results that are known, by table."""
    if asset.name not in known:
        known[asset.name] = _compute_oldest_change(workspace, asset, known)
    return known[asset.name]


def _compute_oldest_change(workspace: Workspace, asset: DerivedAsset, known: dict[str, int | None]) -> int | None:
    now, reads = stored_progress(workspace.lake, asset), asset.operator.reads
    if not reads.closes_ranges or now.closed_to is None:
        return None
    times = [now.closed_to - (reads.lateness + reads.longest_lookback if reads.lateness or reads.recorded else 0)]
    for table in workspace.tables_of(asset):
        oldest_of_table = _oldest_change(workspace, table, known)
        if oldest_of_table is None:
            return None
        times.append(oldest_of_table - table.operator.reads.watermark_delay - 1)
    if workspace.tables_of(asset):
        corrections = unread_corrections(position_of(workspace, asset, now))
        times += [correction.after + 1 for correction in corrections if correction.after is not None]
    return min(times)
