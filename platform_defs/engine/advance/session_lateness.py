"""Makes and records, batch by batch, the lateness decisions that depend on more than a row and a watermark.

The table `verdicts/<asset>` contains the decisions: `which` (the input), `seq`, `arrival`, and `session`, which is null for a late row.
Each commit records the batch that it decides, so after a kill the next run continues with the batch after it. A batch without rows
behind the watermark needs no decision.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.checkpoints import checkpoints_by
from operators.columns import parameter
from operators.contract import DecidesLateness
from operators.engine_columns import NEW, SEQ, SESSION, WHICH
from operators.errors import OperatorError
from platform_defs.engine.faults import point
from platform_defs.engine.inputs.lateness_decisions import DECIDED, generation_of, seq_of
from platform_defs.engine.inputs.older_rows import with_older_rows
from platform_defs.engine.inputs.progress import stored_progress
from platform_defs.engine.inputs.reader import read_input
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.inputs.timelines import operator_timeline
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.small_queries import materialize
from platform_defs.engine.ledger import watermarks


def decide_lateness(workspace: Workspace, asset: DerivedAsset, head: int) -> None:
    """Decide and record which rows are late, for each batch up to `head` that is not decided. Does nothing without `Reads.recorded`.

    Raises:
        OperatorError: the operator has no `lateness_decisions`.
    """
    operator = asset.operator
    if not operator.reads.recorded:
        return
    if not isinstance(operator, DecidesLateness):
        raise OperatorError(f"{type(operator).__name__} reads recorded decisions, so it needs `lateness_decisions(watermark, *frames)`")
    tables = [table.name for table in workspace.tables_of(asset)]
    generation = stored_progress(workspace.lake, asset).generation
    newest = workspace.lake.newest_commit(asset.decisions, DECIDED)
    starts_anew, last_decided = newest is not None and generation_of(newest.value) != generation, None if newest is None else newest.value
    after, timeline = 0 if starts_anew else seq_of(last_decided), operator_timeline(workspace, asset)
    watermark_by_batch: dict[int, int] = {}
    for name in asset.inputs:
        if name not in tables:
            watermark_by_batch |= watermarks.possibly_late_batches(workspace.ledger.source(name), timeline, after, head)
    for seq, watermark in sorted(watermark_by_batch.items()):
        lookback = 2 * operator.reads.longest_lookback + operator.reads.lateness
        frames = [_frame(workspace, asset, index, seq, watermark - lookback) for index in range(len(asset.inputs))]
        point("decisions.before_commit")
        with checkpoints_by(materialize):  # as small queries, if the rows are few
            rows = operator.lateness_decisions(watermark, *frames).withColumnsRenamed({SESSION: "session", WHICH: "which"})
        newly_decided = {"seq": seq, "generation": generation} if generation else seq
        if starts_anew:
            workspace.lake.overwrite(rows, asset.decisions, {DECIDED: newly_decided}, pruned_by=[SEQ])
        else:
            workspace.lake.append(rows, asset.decisions, {DECIDED: newly_decided}, after=last_decided, pruned_by=[SEQ])
        starts_anew, last_decided = False, newly_decided
        point("decisions.after_commit")


def _frame(workspace: Workspace, asset: DerivedAsset, index: int, seq: int, first: int) -> DataFrame:
    """An input's rows up to and including a batch: those since the start of the oldest open session, and all of the batch's own."""
    history = workspace.ledger.source(asset.inputs[index])
    rows = with_older_rows(lambda span, after: read_input(workspace, asset, index, seq, span, after), Span(first), history, seq - 1, seq)
    return rows.withColumn(NEW, F.col(SEQ) == parameter(seq, SEQ))
