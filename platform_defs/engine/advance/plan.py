"""Plan the next step of an asset: a pure function of the asset's position. No Spark session is needed.

The plan depends only on the ledger and on commits, with one exception: the event times of new rows that are not late. The planner gets
these times by calling a function (`RowTimes`), and only if the ledger records new rows that are older than closed results.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from operators.timing import ClosedRange
from platform_defs.engine.advance.corrections import RowTimes, affected_results
from platform_defs.engine.advance.position import Position, Upstream
from platform_defs.engine.advance.step_size import can_change_rows, cut_batches, cut_time
from platform_defs.engine.inputs.changelog_reader import upstream_table
from platform_defs.engine.inputs.progress_errors import ProgressError


@dataclass(frozen=True)
class StepPlan:
    """A planned step, described by its end.

    Args:
        seq: the last batch that the step handles.
        closed_to: the watermark up to which results are final after the step; None for an asset that closes no ranges.
        read: for each input that is a table, the last step of that table that this step reads.
        corrects: the closed results that the step recomputes; None for a step that adds results.
    """

    seq: int
    closed_to: int | None = None
    read: Mapping[str, int] = field(default_factory=dict)
    corrects: ClosedRange | None = None


def plan_step(position: Position, *, max_step: int, until: int | None = None, row_times: RowTimes) -> StepPlan | None:
    """Plan the next step.

    A correction is planned before a step that closes further results. A closed range is never closed again.

    Args:
        position: the asset's position.
        max_step: the approximate number of rows that the step may read.
        until: the watermark (epoch ms) above which nothing is closed; None for no such limit.
        row_times: returns the event times of new rows that are not late.

    Returns:
        The plan; None if there is nothing to do.

    Raises:
        ProgressError: the asset has read a later step of an upstream table than the table has.
    """
    if position.asset.operator.reads.closes_ranges:
        return _plan_correction(position, row_times) or _plan_closed_range(position, max_step, until)
    upstream = upstream_table(position.asset, [table.asset for table in position.tables.values()])
    return _plan_batches(position, max_step) if upstream is None else _plan_changes(position, position.tables[upstream.name])


def _plan_correction(position: Position, row_times: RowTimes) -> StepPlan | None:
    affected = affected_results(position, row_times)
    return None if affected is None else StepPlan(position.head, position.progress.closed_to, _newest_steps(position), affected)


def _plan_closed_range(position: Position, max_step: int, until: int | None) -> StepPlan | None:
    watermark, closed_to = position.watermark, position.closed_to
    watermark = watermark if until is None or watermark is None else min(watermark, until)
    if watermark is None or (closed_to is not None and watermark <= closed_to):
        return None
    head = position.head
    return StepPlan(head, cut_time(position.ledger, position.asset, closed_to, watermark, head, max_step), _newest_steps(position))


def _newest_steps(position: Position) -> dict[str, int]:
    """The newest step of each table that the asset reads."""
    return {name: table.complete.step if table.complete else 0 for name, table in position.tables.items()}


def _plan_batches(position: Position, max_step: int) -> StepPlan | None:
    seq = cut_batches(position.ledger, position.asset, position.progress.seq, position.head, max_step)
    return StepPlan(seq) if can_change_rows(position.ledger, position.asset, position.progress.seq, seq) else None


def _plan_changes(position: Position, upstream: Upstream) -> StepPlan | None:
    read = position.read_of(upstream.asset.name)
    if upstream.complete is None or upstream.complete.step == read:
        return None
    if upstream.complete.step < read:
        raise ProgressError.recreated(upstream.asset.name, read, upstream.complete.step)
    return StepPlan(upstream.complete.seq, read={upstream.asset.name: upstream.complete.step})
