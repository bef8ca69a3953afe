"""Metrics of an upserted table."""

from pyspark.sql import functions as F

from operators.changelog import CHANGE, UPDATE_BEFORE
from operators.top_n import TopN
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.changelog_reader import steps_of, upserted
from platform_defs.engine.inputs.input import Input
from platform_defs.engine.inputs.progress import progress
from platform_defs.engine.lake.small_queries import collected, count


def table_metrics(advance: Advance) -> dict[str, int | float]:
    """The metrics of an asset's table.

    Returns:
        `rows` and `partitions` of the table, `changes_out` (all rows of its changelog), `rows_in` (rows of sources, or changes of the
        upstream table, where an update counts once), `changes_per_row` and `invalid_rank_ends` (partitions without rows, because the
        rank end of their first row is null, zero or negative).

    Raises:
        OperatorError: the asset appends its rows.
    """
    reading, asset, operator = advance.reading, advance.asset, advance.asset.operator
    key, now = upserted(asset).key, progress(reading.lake, asset)
    table = reading.lake.read(reading.spark, asset.name)
    by = [*operator.partition] if isinstance(operator, TopN) else [*key]
    [[rows, partitions]] = collected(table.agg(F.count("*"), F.count_distinct(F.struct(F.lit(0), *by))))
    changes = count(steps_of(reading, asset, 0, now.step))
    rows_in = sum(_rows_in(advance, of) for of in reading.inputs_of(asset))
    ends = count(operator.unranked(*advance.strategy.inputs.all(now))) if isinstance(operator, TopN) and _varies(operator) else 0
    return {
        "rows": rows,
        "partitions": partitions,
        "changes_out": changes,
        "rows_in": rows_in,
        "changes_per_row": round(changes / rows_in, 3) if rows_in else 0.0,
        "invalid_rank_ends": ends,
    }


def _varies(operator: TopN) -> bool:
    return isinstance(operator.rank_end, str)


def _rows_in(advance: Advance, of: Input) -> int:
    """The number of rows, or changes, of an input that the asset has handled."""
    reading, now = advance.reading, progress(advance.reading.lake, advance.asset)
    if of.table is None:
        return sum(reading.ledger.source(of.name).table(["accepted"], 0, now.seq)["accepted"].to_pylist())
    return count(steps_of(reading, of.table, 0, now.read.get(of.name, 0)).where(F.col(CHANGE) != UPDATE_BEFORE))
