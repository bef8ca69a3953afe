"""The checks of a leaderboard that no expectation of rows can tell: its ranks as a whole, and its changelog."""

from collections.abc import Iterator

import dagster as dg
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from assets.ports import EnginePort
from operators.changelog import bag_difference, fold
from operators.contract import Upsert
from operators.errors import OperatorError
from operators.top_k import RANK
from operators.top_n import TopN

FOLDS, GAPS, KEPT = "changelog_folds_to_the_table", "ranks_without_gaps", "no_more_than_n"
_WHY = {
    FOLDS: "Who follows the changelog must hold what the table holds.",
    GAPS: "Ranks count from the first on; a gap is a row that was lost.",
    KEPT: "A partition keeps N ranks.",
}


def leaderboard_checks(derived: DerivedAsset) -> dg.AssetChecksDefinition:
    """The checks of an upserted table; of ranks too, where its operator is a Top-N that shows them.

    Args:
        derived: the asset.
    """
    top, emits = derived.operator, derived.operator.emits
    if not isinstance(emits, Upsert):
        raise OperatorError(f"the rows of {derived.name} are added and stay; it is no leaderboard")
    names = [
        FOLDS,
        *([GAPS] if isinstance(top, TopN) and top.with_rank else []),
        *([KEPT] if isinstance(top, TopN) and (top.with_rank or top.function == "row_number") else []),
    ]
    key = dg.AssetKey(derived.name)

    @dg.multi_asset_check(
        name=f"{derived.name}_board",
        specs=[dg.AssetCheckSpec(name, asset=key, description=_WHY[name]) for name in names],
        compute_kind="spark",
    )
    def checks(engine: dg.ResourceParam[EnginePort]) -> Iterator[dg.AssetCheckResult]:
        pinned = engine.views.newest(derived.name)
        for name in names:
            if pinned is None:
                yield dg.AssetCheckResult(check_name=name, asset_key=key, passed=True, description="no rows yet")
                continue
            wrong = differing(*pinned, emits.key) if name == FOLDS else flawed(pinned[0], top, name)
            shown = [str(row.asDict()) for row in wrong.limit(5).collect()]
            yield dg.AssetCheckResult(
                check_name=name,
                asset_key=key,
                passed=not shown,
                description="; ".join(shown) or "none is wrong",
                metadata={"partitions_or_rows_wrong": wrong.count() if shown else 0},
            )

    return checks


def differing(table: DataFrame, changelog: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """The rows that a table and its changelog, folded, hold a different number of times."""
    return bag_difference(table, fold(changelog, key=key, order="step").select(*table.columns))


def flawed(table: DataFrame, top: object, name: str) -> DataFrame:
    """The partitions whose ranks are not as they should be: see `gaps`; or that hold more than N of them."""
    if not isinstance(top, TopN):
        raise OperatorError(f"{type(top).__name__} has no ranks to check")
    held = table.groupBy(*top.partition).agg(*_counted(top)).where(F.col("rows") > 0)
    end = F.lit(top.rank_end) if isinstance(top.rank_end, int) else F.lit(None).cast("int")
    more = F.array_max("ranks") > end if top.with_rank else F.col("rows") > end - top.rank_start + 1
    return held.where(gaps(top) if name == GAPS else more)


def _counted(top: TopN) -> list[Column]:
    rows = F.count("*").alias("rows")
    if not top.with_rank:
        return [rows]
    return [rows, F.sort_array(F.collect_list(RANK)).alias("ranks")]


def gaps(top: TopN) -> Column:
    """Whether a partition's `ranks` (sorted) break the way in which they are counted.

    Of `row_number` and `dense_rank` they follow each other; after ties of a `rank` as many are left out as there are ties.
    """
    if top.function == "row_number":
        return F.col("ranks") != F.sequence(F.lit(top.rank_start), F.lit(top.rank_start) + F.col("rows").cast("int") - 1)
    if top.function == "dense_rank":
        distinct = F.array_sort(F.array_distinct("ranks"))
        return distinct != F.sequence(F.lit(top.rank_start), F.lit(top.rank_start) + F.size(distinct) - 1)
    behind = F.expr("transform(ranks, (r, i) -> r - size(filter(ranks, s -> s < r)))")
    lacks_first = (F.get("ranks", 0) > 1) if top.rank_start == 1 else F.lit(False)
    return lacks_first | (F.size(F.array_distinct(behind)) > 1)
