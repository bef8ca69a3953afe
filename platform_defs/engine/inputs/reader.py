"""Read the inputs of a step up to a ledger batch: only the rows that are not late, or all rows with the conditions of late rows."""

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.changelog import INSERT
from operators.columns import RESULT_TIME, temporary
from operators.engine_columns import BATCH_TIME, EVENT_TIME, SEQ, WATERMARK
from operators.timing import timestamp
from platform_defs.engine.inputs.lateness_decisions import DECISION_SCHEMA, has_decisions, rows_with_decisions
from platform_defs.engine.inputs.prepared_rows import LATE, ClassifiedRows, classify
from platform_defs.engine.inputs.result_rows import result_rows
from platform_defs.engine.inputs.source_lateness import rows_with_lateness
from platform_defs.engine.inputs.span import ALL_TIMES, Span
from platform_defs.engine.inputs.stored_rows import read_log, read_table
from platform_defs.engine.inputs.timelines import operator_timeline
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.ledger import watermarks

_TIME_MS = temporary("time_ms")


def read_input(workspace: Workspace, asset: DerivedAsset, index: int, head: int, span: Span = ALL_TIMES, after: int = 0) -> DataFrame:
    """The rows of an input, up to a batch, that are neither late nor filtered.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the asset that reads.
        index: the input's index.
        head: the last batch to read.
        span: the event times to read.
        after: of a source, the batch after which to read.

    Returns:
        For a source its columns, with `seq`, `arrival` and `event_time`. For a table its columns, with `result_time` renamed to
        `event_time`. If the asset prepares the input, the selected columns replace the input's own. Also `WATERMARK`, `SESSION` or
        `BATCH_TIME`, if the operator reads it.
    """
    rows = classified_input(workspace, asset, index, head, span, after).read_rows()
    needs_batch_times = workspace.input_named(asset.inputs[index]).is_source and asset.operator.reads.ttl_by == "processing"
    return _with_batch_times(workspace, rows, head, after) if needs_batch_times else rows


def input_with_lateness(
    workspace: Workspace, asset: DerivedAsset, index: int, head: int, span: Span = ALL_TIMES, after: int = 0
) -> DataFrame:
    """All rows of an input, up to a batch, with `LATE` and `FILTERED` (boolean).

    A row of a table is late only if the table was idle (see `result_rows`). A filtered row is never late, and the operator does not
    read it. The rows of a source also have `WATERMARK` or `SESSION`, if the operator reads it.
    """
    return classified_input(workspace, asset, index, head, span, after).with_late_and_filtered()


def classified_input(
    workspace: Workspace, asset: DerivedAsset, index: int, head: int, span: Span = ALL_TIMES, after: int = 0
) -> ClassifiedRows:
    """All rows of an input, and the conditions of late and filtered rows.

    `input_with_lateness` adds the conditions as columns, at some cost.
    """
    name = asset.inputs[index]
    if (table := workspace.input_named(name).table) is not None:
        rows, late = result_rows(workspace, asset, table, _table_rows(workspace, table, span), span)
        columns = [column for column in rows.columns if column not in (EVENT_TIME, LATE, WATERMARK)]
    else:
        rows, late = _source_rows(workspace, asset, index, head, span, after)
        columns = workspace.sources[name].struct.fieldNames()
    return classify(asset, index, rows, late, columns)


def _with_batch_times(workspace: Workspace, rows: DataFrame, head: int, after: int) -> DataFrame:
    """Rows with `BATCH_TIME`: the time when each row's batch was committed."""
    first, arrived = workspace.ledger.processing_times(head, after)
    batches = pa.table({SEQ: pa.array(range(first + 1, head + 1), pa.int64()), _TIME_MS: arrived})
    times = workspace.spark.createDataFrame(batches).select(SEQ, timestamp(F.col(_TIME_MS)).alias(BATCH_TIME))
    return rows.join(times, SEQ, "left").select(*rows.columns, BATCH_TIME)


def _table_rows(workspace: Workspace, table: DerivedAsset, span: Span) -> DataFrame:
    """The rows of a table with `event_time` (for final results, their `result_time`) in a span."""
    if not workspace.lake.exists(table.name):
        return _no_rows(workspace, table)
    return read_table(workspace, table.name, EVENT_TIME if table.operator.emits.upserts else RESULT_TIME, span)


def _no_rows(workspace: Workspace, table: DerivedAsset) -> DataFrame:
    """An empty frame for a table that does not exist yet. If the table's sources are idle or empty, its reader continues without it."""
    frames, kind = list[DataFrame](), table.operator.reads.change
    for index, name in enumerate(table.inputs):
        rows = read_input(workspace, table, index, 0)
        is_added = kind is not None and not workspace.input_named(name).is_source  # the rows of a table have no change kind
        frames.append(rows.withColumn(kind, F.lit(INSERT)) if is_added and kind else rows)
    return table.rows(*frames).where(F.lit(False))


def _source_rows(
    workspace: Workspace, asset: DerivedAsset, index: int, head: int, span: Span, after: int
) -> tuple[DataFrame, Column | None]:
    """All rows of a source, up to a batch, and the condition of late rows, which is None if no row is late.

    The rows have `WATERMARK` or `SESSION`, if the operator reads it. If the condition is the column `LATE`, they have this column too.
    """
    name, reads, ends = asset.inputs[index], asset.operator.reads, (span.first, span.last)
    rows = read_log(workspace, name, head, span, after, with_raw_time=False)
    if reads.is_by_arrival(index):
        return rows, None
    if reads.recorded:
        decisions = _decisions(workspace, asset, workspace.ledger.source(name).batches_with_rows(after, head, ends)[SEQ])
        return rows_with_decisions(rows, decisions, index), F.col(LATE)
    history, timeline = workspace.ledger.source(name), operator_timeline(workspace, asset)
    watermark_by_batch = watermarks.possibly_late_batches(history, timeline, after, head, ends)
    return rows_with_lateness(rows, asset.operator, watermark_by_batch)


def _decisions(workspace: Workspace, asset: DerivedAsset, batches: pa.ChunkedArray) -> DataFrame:
    """The recorded lateness decisions of given batches, and possibly of others; none of an earlier generation of the table."""
    lake, spark = workspace.lake, workspace.spark
    if not len(batches) or not has_decisions(lake, asset):
        return lake.no_rows(spark, DECISION_SCHEMA)
    return lake.read(spark, asset.decisions, DECISION_SCHEMA, {SEQ: (batches[0].as_py(), batches[-1].as_py())})
