"""The results of a table as a reader sees them, and which of them became final too late for this reader."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.columns import FINAL_AT, RESULT_TIME, temporary
from operators.engine_columns import WATERMARK
from operators.timing import FOREVER, timestamp
from platform_defs.engine.inputs.prepared_rows import LATE, as_input
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.inputs.timelines import operator_timeline
from platform_defs.engine.inputs.waited_for import late_key
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.ledger import watermarks
from platform_defs.engine.ledger.arrow_values import arrow_array
from platform_defs.engine.ledger.watermarks import LateResults

_AFTER, _UPTO, _READER_WATERMARK = (temporary(name) for name in ("after", "upto", "reader_watermark"))
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


def result_rows(
    workspace: Workspace, asset: DerivedAsset, table: DerivedAsset, rows: DataFrame, span: Span
) -> tuple[DataFrame, Column | None]:
    """The rows of a table as a reader sees them, with `event_time`, and the condition of late rows.

    The condition is None if no row is late; otherwise it is the column `LATE`.

    A row is late if the reader's watermark had passed it before the batch in which it became final. This happens only if the table has
    been idle. The reader's allowed lateness does not apply, because a new row of a table never corrects a closed result of the reader; only
    a correction of the table does. A row of an upserted table is never late: every change of it corrects the reader's results.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the asset that reads.
        table: the asset that makes the table.
        rows: the table's rows with `event_time` (for final results, their `result_time`) in the span.
        span: the event times to read.
    """
    if table.operator.emits.upserts:
        return rows, None
    late_ranges = _select_overlapping(late_results(workspace, asset, table), span, table.operator.reads.watermark_delay)
    return (as_input(_with_lateness(workspace, asset, rows, late_ranges)), F.col(LATE)) if late_ranges else (as_input(rows), None)


def late_results(workspace: Workspace, asset: DerivedAsset, table: DerivedAsset, upto: int | None = None) -> list[LateResults]:
    """The ranges of a table's results that may be late for a reader; see `watermarks.late_results`.

    Args:
        workspace: the lake and its ledger; it needs no session.
        asset: the reader.
        table: the table.
        upto: only results that became final up to this batch; None for all.
    """
    since, summary = _late_since(workspace, asset, table), workspace.ledger.history.summary
    if since is None:
        return []
    return watermarks.late_results(
        operator_timeline(workspace, table),
        operator_timeline(workspace, asset),
        table.operator.reads.watermark_delay,
        since if summary is None else max(since, summary.upto),
        [] if summary is None else [LateResults(*late) for late in summary.late.get(late_key(asset, table, workspace.input_named), ())],
        upto,
    )


def watermark_without_waiting(
    workspace: Workspace, asset: DerivedAsset, table: DerivedAsset, closed_to: int | None, head: int
) -> int | None:
    """The watermark up to which a reader may close results without waiting for a table; see `watermarks.watermark_without_waiting`.

    Args:
        workspace: the lake and its ledger; it needs no session.
        asset: the reader.
        table: the table.
        closed_to: the watermark up to which the table has closed its results; None for none.
        head: the last batch that the reader may handle.

    Returns:
        The watermark; None if there is none, so that the reader waits for the table.
    """
    since = _late_since(workspace, asset, table)
    if since is None:
        return None
    return watermarks.watermark_without_waiting(
        operator_timeline(workspace, table), operator_timeline(workspace, asset), closed_to, head, since
    )


def _late_since(workspace: Workspace, asset: DerivedAsset, table: DerivedAsset) -> int | None:
    """The first batch after which results of a table can be late for a reader; None if they never can."""
    if not (asset.operator.reads.closes_ranges and table.operator.reads.closes_ranges) or table.operator.emits.upserts:
        return None
    return watermarks.idle_since(workspace.ledger.source(name) for name in workspace.input_named(table.name).sources)


def _select_overlapping(late_ranges: Sequence[LateResults], span: Span, delay: int) -> list[LateResults]:
    """The ranges that may contain results with times in a span: `result_time <= final_at <= result_time + delay`."""
    first, last = (_FIRST if span.first is None else span.first), (_LAST if span.last is None else span.last + delay)
    return [
        late_range
        for late_range in late_ranges
        if (late_range.upto is None or late_range.upto >= first) and (late_range.after is None or late_range.after < last)
    ]


def _with_lateness(workspace: Workspace, asset: DerivedAsset, rows: DataFrame, late_ranges: Sequence[LateResults]) -> DataFrame:
    """Rows with `LATE`, and with `WATERMARK` if the operator reads it."""
    reads, int64 = asset.operator.reads, pa.int64()
    ends = {
        _AFTER: [_FIRST if late_range.after is None else late_range.after for late_range in late_ranges],
        _UPTO: [_LAST if late_range.upto is None else late_range.upto for late_range in late_ranges],
        _READER_WATERMARK: [late_range.watermark for late_range in late_ranges],
    }
    joins_late = reads.lateness >= FOREVER  # `late` of an operator that joins late rows is always false
    lateness = 0 if joins_late else reads.lateness  # cancels the allowed lateness that the operator subtracts
    ranges = workspace.spark.createDataFrame(pa.table({name: arrow_array(values, int64) for name, values in ends.items()}))
    operator_watermark = F.lit(None).cast("timestamp") if joins_late else timestamp(F.col(_READER_WATERMARK) + lateness)
    ranges = ranges.select(_AFTER, _UPTO, timestamp(F.col(_READER_WATERMARK)).alias(_READER_WATERMARK), operator_watermark.alias(WATERMARK))
    final_at = F.unix_millis(FINAL_AT)
    joined = rows.join(F.broadcast(ranges), (final_at > F.col(_AFTER)) & (final_at <= F.col(_UPTO)), "left")
    time, watermark = F.col(RESULT_TIME), F.col(_READER_WATERMARK)
    is_late_for_operator = time < watermark if joins_late else asset.operator.late(time, F.col(WATERMARK))
    is_late = time <= watermark if reads.recorded else is_late_for_operator
    columns = [*rows.columns, *([WATERMARK] if reads.with_watermark else [])]
    return joined.select(*columns, F.coalesce(is_late, F.lit(False)).alias(LATE))
