"""Metrics of an upserted table."""

from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from assets.ports import MOVED_BACK
from operators.changelog import CHANGE, UPDATE_BEFORE
from operators.top_n import TopN
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.changelog_reader import require_upserts, steps_of
from platform_defs.engine.inputs.input import Input
from platform_defs.engine.inputs.progress import Progress, progress
from platform_defs.engine.inputs.table_changes import table_changes
from platform_defs.engine.lake.small_queries import collect, count
from platform_defs.engine.operations.state_size import state_size, total


def table_metrics(advance: Advance) -> dict[str, int | float]:
    """The metrics of an asset's table.

    Returns:
        `rows` and `partitions` of the table, `changes_out` (all rows of its changelog), `rows_in` (rows of sources or of final results, or
        changes of an upserted table, where an update counts once), `changes_per_row`, `state_rows`, `state_bytes`, `state_files` and
        `skipped_files` (see `StateSize`), `invalid_rank_ends` (partitions without rows, because the rank end of their first row is null,
        zero or negative) and `rows_with_other_rank_end` (rows whose rank end differs from that of their partition, as Flink's
        `topn.invalidTopSize` counts them). A Top-N with `monotonic` also has `keys_moved_back`: the keys of a source's rows that break
        the promise.

    Raises:
        OperatorError: the asset appends its rows.
    """
    workspace, asset, operator = advance.workspace, advance.asset, advance.asset.operator
    key, now = require_upserts(asset).key, progress(workspace.lake, asset)
    table = workspace.lake.read(workspace.spark, asset.name)
    partition_columns = [*operator.partition] if isinstance(operator, TopN) else [*key]
    [[rows, partitions]] = collect(table.agg(F.count("*"), F.count_distinct(F.struct(F.lit(0), *partition_columns))))
    changes = count(steps_of(workspace, asset, 0, now.step))
    rows_in = sum(_rows_in(advance, upstream) for upstream in workspace.inputs_of(asset))
    rank_ends = _rank_ends(advance, operator, now) if isinstance(operator, TopN) and isinstance(operator.rank_end, str) else (0, 0)
    state = total(state_size(workspace, asset).values())
    return {
        "rows": rows,
        "partitions": partitions,
        "changes_out": changes,
        "rows_in": rows_in,
        "changes_per_row": round(changes / rows_in, 3) if rows_in else 0.0,
        "state_rows": state.rows,
        "state_bytes": state.bytes,
        "state_files": state.files,
        "skipped_files": state.skipped_files,
        "invalid_rank_ends": rank_ends[0],
        "rows_with_other_rank_end": rank_ends[1],
        **_count_moved_back(advance, operator, now),
    }


def _count_moved_back(advance: Advance, operator: object, now: Progress) -> dict[str, int | float]:
    """`keys_moved_back` of a Top-N with `monotonic`: the number of keys whose rows break the promise. Empty for other operators."""
    if not isinstance(operator, TopN) or not operator.monotonic or not operator.key:
        return {}
    return {MOVED_BACK: count(operator.keys_moved_back(*advance.strategy.inputs.all_rows(now)))}


def _rank_ends(advance: Advance, operator: TopN, now: Progress) -> tuple[int, int]:
    """The number of partitions without ranks, and the number of rows whose rank end differs from that of their partition."""
    rows = advance.strategy.inputs.all_rows(now)
    [[differing]] = collect(operator.other_rank_ends(*rows).agg(F.coalesce(F.sum("rows"), F.lit(0))))
    return count(operator.partitions_without_ranks(*rows)), differing


def _count_rows(advance: Advance, upstream: DerivedAsset, now: Progress) -> int:
    """The number of rows of an input table as of the last step that the asset has read; 0 if that state can no longer be read."""
    rows = table_changes(advance.workspace, upstream).rows(now.read.get(upstream.name, 0))
    return 0 if rows is None else count(rows)


def _rows_in(advance: Advance, upstream: Input) -> int:
    """The number of rows, or changes, of an input that the asset has handled."""
    workspace, now = advance.workspace, progress(advance.workspace.lake, advance.asset)
    if upstream.table is None:
        source = workspace.ledger.source(upstream.name)
        summarized = 0 if source.before is None else source.before.accepted
        return summarized + sum(source.table(["accepted"], 0, now.seq)["accepted"].to_pylist())
    if not upstream.table.operator.emits.upserts:
        return _count_rows(advance, upstream.table, now)
    return count(steps_of(workspace, upstream.table, 0, now.read.get(upstream.name, 0)).where(F.col(CHANGE) != UPDATE_BEFORE))
