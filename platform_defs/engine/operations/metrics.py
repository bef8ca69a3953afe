"""Tables that upsert: what they are like now, in numbers."""

from pyspark.sql import functions as F

from operators.changelog import CHANGE, UPDATE_BEFORE
from operators.top_n import TopN
from platform_defs.engine.advance.advance import Advance
from platform_defs.engine.inputs.changelog_reader import steps_of, upserted
from platform_defs.engine.inputs.input import Input
from platform_defs.engine.inputs.progress import progress


def table_metrics(advance: Advance) -> dict[str, int | float]:
    """The metrics of an asset's table.

    Returns:
        `rows` held and the `partitions` they are of, `changes_out` (changelog rows since the beginning), `rows_in` (rows of sources, or
        changes of the table that it follows, an update counting once), `changes_per_row` and `invalid_rank_ends` (partitions
        that keep nothing, since their first row's rank end is null, zero or less).

    Raises:
        OperatorError: the asset's rows do not replace each other.
    """
    reading, asset, operator = advance.reading, advance.asset, advance.asset.operator
    key, now = upserted(asset).key, progress(reading.lake, asset)
    table = reading.spark.read.format("delta").load(reading.lake.path(asset.name))
    by = [*operator.partition] if isinstance(operator, TopN) else [*key]
    [rows, partitions] = table.agg(F.count("*"), F.count_distinct(F.struct(F.lit(0), *by))).first() or (0, 0)
    changes = steps_of(reading, asset, 0, now.step).count()
    rows_in = sum(_rows_in(advance, of) for of in reading.inputs_of(asset))
    ends = operator.unranked(*advance.strategy.inputs.all(now)).count() if isinstance(operator, TopN) and _varies(operator) else 0
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
    """How many rows of an input the asset has handled."""
    reading, now = advance.reading, progress(advance.reading.lake, advance.asset)
    if of.table is None:
        return sum(reading.ledger.source(of.name).table(["accepted"], 0, now.seq)["accepted"].to_pylist())
    return steps_of(reading, of.table, 0, now.read.get(of.name, 0)).where(F.col(CHANGE) != UPDATE_BEFORE).count()
