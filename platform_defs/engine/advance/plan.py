"""Plan the next step of an asset: a pure function of the asset's position. No Spark session is needed.

The planner reads only the ledger and commits, with one exception: the event times of new rows that are not late. It gets these from a
function (`RowTimes`), which it calls only if the ledger records new rows that are older than closed results.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from operators.timing import ClosedRange
from platform_defs.engine.advance.corrections import RowTimes, affected_results
from platform_defs.engine.advance.position import Position, Upstream
from platform_defs.engine.advance.step_size import changes_something, cut_batches, cut_time
from platform_defs.engine.inputs.changelog_reader import table_read
from platform_defs.engine.inputs.progress_errors import ProgressError


@dataclass(frozen=True)
class StepPlan:
    """A planned step, described by its end.

    Args:
        seq: the last batch that it handles.
        closed_to: the watermark up to which results are final after it; None for an asset that closes no ranges.
        read: for each input that is a table, the last step of that table that has been read after this step.
        corrects: the closed results that it recomputes; None for a step that adds results.
    """

    seq: int
    closed_to: int | None = None
    read: Mapping[str, int] = field(default_factory=dict)
    corrects: ClosedRange | None = None


def plan_step(at: Position, *, max_step: int, until: int | None = None, row_times: RowTimes) -> StepPlan | None:
    """Plan the next step.

    A correction is planned before a step that closes further results. A closed range is never closed again.

    Args:
        at: the asset's position.
        max_step: the approximate number of rows that the step may read.
        until: the watermark (epoch ms) above which nothing is closed; None for no such limit.
        row_times: returns the event times of new rows that are not late.

    Returns:
        The plan; None if there is nothing to do.

    Raises:
        ProgressError: an upstream table is behind what the asset has read of it.
    """
    if at.asset.operator.reads.closes_ranges:
        return _correction(at, row_times) or _closing(at, max_step, until)
    of = table_read(at.asset, [table.asset for table in at.tables.values()])
    return _batches(at, max_step) if of is None else _changes(at, at.tables[of.name])


def _correction(at: Position, row_times: RowTimes) -> StepPlan | None:
    closed = affected_results(at, row_times)
    return None if closed is None else StepPlan(at.head, at.progress.closed_to, _newest_steps(at), closed)


def _closing(at: Position, max_step: int, until: int | None) -> StepPlan | None:
    watermark, closed_to = at.watermark, at.closed_to
    watermark = watermark if until is None or watermark is None else min(watermark, until)
    if watermark is None or (closed_to is not None and watermark <= closed_to):
        return None
    return StepPlan(at.head, cut_time(at.ledger, at.asset, closed_to, watermark, at.head, max_step), _newest_steps(at))


def _newest_steps(at: Position) -> dict[str, int]:
    """The newest step of each table that the asset reads."""
    return {name: of.complete.step if of.complete else 0 for name, of in at.tables.items()}


def _batches(at: Position, max_step: int) -> StepPlan | None:
    seq = cut_batches(at.ledger, at.asset, at.progress.seq, at.head, max_step)
    return StepPlan(seq) if changes_something(at.ledger, at.asset, at.progress.seq, seq) else None


def _changes(at: Position, of: Upstream) -> StepPlan | None:
    read = at.read_of(of.asset.name)
    if of.complete is None or of.complete.step == read:
        return None
    if of.complete.step < read:
        raise ProgressError.made_anew(of.asset.name, read, of.complete.step)
    return StepPlan(of.complete.seq, read={of.asset.name: of.complete.step})
