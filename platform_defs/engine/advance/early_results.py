"""Early results in `early/<asset>`: current results of open windows, or pairs that are not final, written when the trigger fires.

Each commit replaces the rows of `early/<asset>`, and records the ledger batch and the watermark for which they were computed. After a kill,
the next run computes them again. No other table reads them. The first commit after a result is final removes its early result. If the
trigger is removed, `early/<asset>` keeps its last rows, and views ignore them.

If a table has a condition (`Shape.where`), a trigger decides by the rows of a window, whether or not its result matches the condition. If
the trigger fires and the result no longer matches, the early result is removed, as HAVING of Flink retracts one. Until then the early
result stays as it was last shown.
"""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.columns import FINAL_AT, WINDOW_END, WINDOW_START
from operators.contract import Early, EarlyByWindow
from operators.errors import OperatorError
from operators.timing import instant
from operators.triggers import IS_FINAL
from platform_defs.engine.advance.shown_results import ShownWindows, Times
from platform_defs.engine.faults import point
from platform_defs.engine.inputs.identity import differences, identity_of
from platform_defs.engine.inputs.progress import stored_progress
from platform_defs.engine.inputs.reader import read_input
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.inputs.workspace import Workspace

SHOWN = "shown"
"""The metadata key of the commits of `early/<asset>`: the batch, watermark, operator and generation for which they were computed."""


def show(workspace: Workspace, asset: DerivedAsset, head: int) -> None:
    """Write the early results of an asset's open windows as of a ledger batch.

    Does nothing if the operator has no trigger, or upserts its table, which has current results already.

    Raises:
        OperatorError: the operator has a trigger, but reads no closed ranges.
    """
    operator = asset.operator
    if not isinstance(operator, Early) or operator.early is None or operator.emits.upserts:
        return
    now = stored_progress(workspace.lake, asset)
    closed_to, shown_at = now.closed_to, last_shown_metadata(workspace, asset)
    shown_now = {"seq": head, "closed_to": closed_to, "operator": identity_of(asset), "generation": now.generation}
    if not head or shown_at == shown_now:
        return
    if not now.step and not all(upstream.is_readable(workspace.lake) for upstream in workspace.inputs_of(asset)):
        return
    # a trigger cannot compare with early results of another operator, or of a table that was emptied since
    if shown_at is not None and (shown_at.get("generation", 0) != now.generation or differences(shown_at["operator"], asset)):
        shown_at = None
    current_results = _current_results(workspace, asset, operator, closed_to, head)
    table_rows = asset.shaped(current_results).withColumn(IS_FINAL, F.lit(False))
    shown_results = workspace.lake.read(workspace.spark, asset.early, table_rows.schema) if shown_at else table_rows.limit(0)
    shown_last = {"seq": 0, "closed_to": None} if shown_at is None else shown_at

    def times_of(shown: dict[str, Any]) -> Times:
        """The watermark and the clock for which results were shown."""
        return shown["closed_to"], workspace.ledger.processing_time(shown["seq"])

    windows = _windows(operator)
    results = windows.results(operator.early, current_results, table_rows, shown_results, times_of(shown_now), before=times_of(shown_last))
    point("early.before_commit")
    workspace.lake.overwrite(results, asset.early, {SHOWN: shown_now})
    point("early.after_commit")


def last_shown_metadata(workspace: Workspace, asset: DerivedAsset) -> dict[str, Any] | None:
    """The metadata of the last early results; None if there are none with which the trigger can compare.

    Retention of the ledger does not wait for a table whose operator has no trigger, so a summary may have replaced the batch of its last
    early results. The trigger needs the processing time of that batch, which a summary has only for its last batch.
    """
    commit = workspace.lake.newest_commit(asset.early, SHOWN)
    return None if commit is None or commit.value["seq"] < workspace.ledger.history.summarized else commit.value


def _windows(operator: Early) -> ShownWindows:
    """The windows of an operator's early results."""
    key = operator.window_key if isinstance(operator, EarlyByWindow) else operator.emits.key
    return ShownWindows(key, are_sessions=operator.reads.recorded and {WINDOW_START, WINDOW_END} <= {*key})


def _current_results(workspace: Workspace, asset: DerivedAsset, operator: Early, closed_to: int | None, head: int) -> DataFrame:
    """The current results that are not final, before the table's shape selects from them."""
    if not operator.reads.closes_ranges:
        raise OperatorError(
            f"`early` of {asset.name} is {operator.early!r}, but {type(operator).__name__} reads no closed ranges; legal: None, or an "
            "operator that reads closed ranges (`ByTimeRange`)"
        )
    spans = [Span(*operator.reads.span_of(index, closed_to)) for index in range(len(asset.inputs))]
    rows = operator.so_far(*[read_input(workspace, asset, index, head, span) for index, span in enumerate(spans)])
    return rows if closed_to is None else rows.where(F.col(FINAL_AT) > instant(closed_to, FINAL_AT))
