"""Find the steps whose keys have so many rows that a join should split them by time.

A join compares each left row of a key with each right row of it. That is quick if keys have few rows, but the cost of a key grows with the
square of its rows. Before a step over many rows, the rows of a short part of its time range are read, to estimate how many comparisons each
row would take.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators.columns import temporary
from operators.contract import SplitsKeys
from operators.timing import ClosedRange
from platform_defs.engine.advance.step_size import rows_of_range
from platform_defs.engine.inputs.reader import read_input
from platform_defs.engine.inputs.span import Span
from platform_defs.engine.inputs.workspace import Workspace
from platform_defs.engine.lake.small_queries import collect

MANY_ROWS = 1_000_000
"""For a step over fewer rows nothing is estimated: the estimate would take longer than it could save."""
_PARTS = 16
"""The estimate reads one of this many parts of the rows."""
_MANY_COMPARISONS = 32
"""With at least this many comparisons for each row, a join in time buckets is quicker, although buckets make each row more costly."""
_GROUPS = 1 << 16
"""Keys are counted in this many groups, by a hash, so that the estimate does not shuffle all keys."""
_SIDE = temporary("side")


def split_keys(workspace: Workspace, asset: DerivedAsset, closing: ClosedRange, head: int) -> DerivedAsset:
    """The asset with an operator that splits keys by time, if the keys of a range have very many rows; else the asset itself.

    Args:
        workspace: the session, the lake and its ledger.
        asset: the asset.
        closing: the range that a step closes.
        head: the last batch that the step reads.
    """
    operator = asset.operator
    if not isinstance(operator, SplitsKeys):
        return asset
    after = None if closing.after is None else closing.after - operator.reads.longest_lookback
    rows = rows_of_range(workspace.ledger.history, asset, after, closing.upto, head)
    if rows.number < MANY_ROWS:
        return asset
    first, last = rows.middle(_PARTS)
    if last - first < operator.bucket_ms:
        return asset
    frames = [read_input(workspace, asset, index, head, Span(first, last)) for index in range(len(asset.inputs))]
    if _comparisons_per_row(frames, operator.key) * _PARTS < _MANY_COMPARISONS:
        return asset
    return replace(asset, operator=operator.in_time_buckets())


def _comparisons_per_row(frames: Sequence[DataFrame], key: Sequence[str]) -> float:
    """About how many comparisons of two rows a join of two frames makes, divided by the number of rows of both frames."""
    keys = [frame.select(*key, F.lit(side).alias(_SIDE)) for side, frame in enumerate(frames)]
    rows = reduce(DataFrame.union, keys).where(reduce(and_, [F.col(column).isNotNull() for column in key]))
    # the union gives both sides one type, as the join does: equal numbers of two types have different hashes
    groups = rows.groupBy(F.pmod(F.xxhash64(*key), F.lit(_GROUPS))).agg(*[F.count_if(F.col(_SIDE) == n).alias(f"n_{n}") for n in (0, 1)])
    pairs_of_group = F.col("n_0").cast("double") * F.col("n_1")  # may be more than a bigint can be
    [(pairs, n_0, n_1)] = collect(groups.agg(F.sum(pairs_of_group), F.sum("n_0"), F.sum("n_1")))
    if not n_0 or not n_1:
        return 0.0
    by_chance = n_0 * n_1 / _GROUPS  # rows of other keys with the same hash
    return max(0.0, pairs - by_chance) / (n_0 + n_1)
