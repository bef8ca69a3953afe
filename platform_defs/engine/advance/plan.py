"""Plan the next step of an asset: a pure function of where the asset stands. No Spark session is needed.

Only one question about rows cannot be answered from the ledger and commits: where the rows of new batches lie that are not late. The
planner asks it through a function (`RowTimes`), and only where the ledger records new rows older than results that are closed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from operators.timing import ClosedRange
from platform_defs.engine.advance.corrections import RowTimes, affected_results
from platform_defs.engine.advance.position import Position, Upstream
from platform_defs.engine.advance.step_size import changes_something, cut_batches, cut_time
from platform_defs.engine.inputs.changelog_reader import upstream_changelog
from platform_defs.engine.inputs.progress import ProgressError


@dataclass(frozen=True)
class StepPlan:
    """A planned step, described by its end.

    Args:
        seq: the last batch that it handles.
        closed_to: the watermark up to which results are final after it; None for an asset that closes no ranges.
        read: for each input that is a table, the last step that has been read after it.
        corrects: the closed results that it recomputes; None for a step that goes on.
    """

    seq: int
    closed_to: int | None = None
    read: Mapping[str, int] = field(default_factory=dict)
    corrects: ClosedRange | None = None


def plan_step(at: Position, *, max_step: int, until: int | None = None, row_times: RowTimes) -> StepPlan | None:
    """Plan the next step.

    A correction comes before the closing of further results. What is closed already is never planned again.

    Args:
        at: where the asset stands.
        max_step: how many rows the step may read, about.
        until: the watermark (epoch ms) above which nothing is closed; None for no such limit.
        row_times: returns where the rows of new batches lie that are not late.

    Returns:
        The plan; None where there is nothing to do.

    Raises:
        OperatorError: the asset cannot read its inputs.
        ProgressError: an upstream table is behind what the asset has read of it.
    """
    if at.asset.operator.reads.closes_ranges:
        return _correction(at, row_times) or _closing(at, max_step, until)
    of = upstream_changelog(at.asset, [table.asset for table in at.tables.values()])
    return _batches(at, max_step) if of is None else _changes(at, at.tables[of.name])


def _correction(at: Position, row_times: RowTimes) -> StepPlan | None:
    closed = affected_results(at, row_times)
    return None if closed is None else StepPlan(at.head, at.progress.closed_to, _newest_steps(at), closed)


def _closing(at: Position, max_step: int, until: int | None) -> StepPlan | None:
    mark, closed_to = at.watermark, at.progress.closed_to
    mark = mark if until is None or mark is None else min(mark, until)
    if mark is None or (closed_to is not None and mark <= closed_to):
        return None
    return StepPlan(at.head, cut_time(at.ledger, at.asset, closed_to, mark, at.head, max_step), _newest_steps(at))


def _newest_steps(at: Position) -> dict[str, int]:
    """The steps of its tables that are read with all of their rows."""
    return {name: of.progress.step for name, of in at.tables.items()}


def _batches(at: Position, max_step: int) -> StepPlan | None:
    seq = cut_batches(at.ledger, at.asset, at.progress.seq, at.head, max_step)
    return StepPlan(seq) if changes_something(at.ledger, at.asset, at.progress.seq, seq) else None


def _changes(at: Position, of: Upstream) -> StepPlan | None:
    read = at.read_of(of.asset.name)
    if of.applied is None or of.applied.step == read:
        return None
    if of.applied.step < read:
        raise ProgressError.made_anew(of.asset.name, read, of.applied.step)
    return StepPlan(of.applied.seq, read={of.asset.name: of.applied.step})
