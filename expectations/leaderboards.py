"""The checks of a leaderboard that no row-level expectation covers: its ranks as a whole, and its changelog."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from assets.factories.keys import check_step_name
from assets.factories.pool import SPARK
from assets.factories.work import RunDetails, Worker
from assets.ports import EnginePort, UpsertedPort
from expectations.new_rows import FULL, last_recorded
from operators.changelog import bag_difference, fold
from operators.errors import OperatorError
from operators.top_k import RANK
from operators.top_n import TopN

PASSED_STATE = "passed_state"
"""The metadata key of the check of the changelog: the newest state of the table that was equal to its changelog with all steps applied."""
FOLDS, GAPS, AT_MOST_N = "changelog_folds_to_the_table", "ranks_without_gaps", "no_more_than_n"
_DESCRIPTIONS = {
    FOLDS: "Applying the changelog to an empty table must give the table: readers of the changelog rely on this.",
    GAPS: "The ranks of a partition have no gaps; a gap means that a row was lost.",
    AT_MOST_N: "No rank is above N. A partition of a table without ranks has at most one row for each requested rank.",
}


def leaderboard_checks(derived: DerivedAsset, worker: Worker | None = None) -> dg.AssetChecksDefinition:
    """The checks of an upserted table; if its operator is a Top-N that shows ranks, its ranks are checked too.

    The changelog is applied to the newest state of the table that has passed, and the result is compared with the table. A run with the
    tag `FULL` applies the whole changelog, and so does a run that can no longer read that state.

    Args:
        derived: the asset.
        worker: evaluates the checks; None for the step itself.

    Raises:
        OperatorError: the table is append-only.
    """
    top, emits = derived.operator, derived.operator.emits
    if not emits.upserts:
        raise OperatorError(f"{derived.name} is append-only; leaderboard checks need an upserted table")
    names = [
        FOLDS,
        *([GAPS] if isinstance(top, TopN) and top.with_rank and derived.has_every_result else []),
        *([AT_MOST_N] if isinstance(top, TopN) and _limits_rows(top) else []),
    ]
    key = dg.AssetKey(derived.name)

    step = check_step_name(derived.name, "changelog")

    def evaluate(engine: EnginePort, run: RunDetails) -> list[dg.AssetCheckResult]:
        is_full = FULL in run.tags
        passed_state = None if is_full else last_recorded(run.instance, dg.AssetCheckKey(key, FOLDS), PASSED_STATE)
        snapshot = engine.views.newest_snapshot(derived.name, passed_state)
        if snapshot is None:
            return [dg.AssetCheckResult(check_name=n, asset_key=key, passed=True, description="no rows yet") for n in names]
        with engine.views.naming_lost_files():
            counted = count_failing(snapshot.table, top, [name for name in names if name != FOLDS])
            return [_check_result(derived, snapshot, name, counted.get(name), passed_state) for name in names]

    if worker is not None:
        worker.add(step, [derived.name], evaluate)

    @dg.multi_asset_check(
        name=step,
        specs=[dg.AssetCheckSpec(name, asset=key, description=_DESCRIPTIONS[name]) for name in names],
        compute_kind="spark",
        pool=SPARK,
    )
    def checks(context: dg.AssetCheckExecutionContext, engine: dg.ResourceParam[EnginePort]) -> Iterator[dg.AssetCheckResult]:
        yield from evaluate(engine, RunDetails.of(context)) if worker is None else worker.do(context, engine, step)

    return checks


def _limits_rows(top: TopN) -> bool:
    """Whether the table alone shows that a partition has too many rows.

    If `rank_end` is a column, it does not: the value of the partition's first row counts, which need not be in the table.
    """
    return isinstance(top.rank_end, int) and (top.with_rank or top.function == "row_number")


def _check_result(
    derived: DerivedAsset, snapshot: UpsertedPort, name: str, counted: int | None, passed_state: Mapping[str, Any] | None
) -> dg.AssetCheckResult:
    """The result of a check. Its metadata has up to five of the partitions or rows that fail; alerts send the description.

    Args:
        derived: the asset.
        snapshot: its table and its changelog.
        name: the check.
        counted: the number of partitions that fail; None for the check of the changelog.
        passed_state: the newest state of the table that has passed; None if there is none.
    """
    is_fold = name == FOLDS
    failing = (
        differing_rows(snapshot.table, snapshot.changelog, derived.operator.emits.key)
        if is_fold
        else partitions_failing(snapshot.table, derived.operator, name)
    )
    sample = [] if counted == 0 else [str(row.asDict()) for row in failing.limit(5).collect()]
    number = counted or (failing.count() if sample else 0)
    return dg.AssetCheckResult(
        check_name=name,
        asset_key=dg.AssetKey(derived.name),
        passed=not sample,
        description=f"{'rows' if is_fold else 'partitions'} that fail: {number:,}; the metadata has some of them"
        if sample
        else "no violation",
        metadata={
            "partitions_or_rows_wrong": number,
            **({"failing": dg.MetadataValue.json(sample)} if sample else {}),
            **(_fold_metadata(snapshot, passed_state, passed=not sample) if is_fold else {}),
        },
    )


def _fold_metadata(snapshot: UpsertedPort, passed_state: Mapping[str, Any] | None, *, passed: bool) -> dict[str, Any]:
    """The step after which the changelog was read, and the last state of the table that equals its changelog, for the next run."""
    state = snapshot.state if passed and snapshot.state else passed_state
    return {"after_step": snapshot.since, **({PASSED_STATE: dg.MetadataValue.json(dict(state))} if state else {})}


def differing_rows(table: DataFrame, changelog: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """The rows that a table and the result of applying its changelog contain in different numbers of copies."""
    return bag_difference(table, fold(changelog, key=key, order="step").select(*table.columns))


def partitions_failing(table: DataFrame, top: object, name: str) -> DataFrame:
    """The partitions that fail the check `name`: their ranks have gaps (see `gaps`), or a rank above N (without ranks: too many rows)."""
    ranked = _ranked(top)
    return _partitions(table, ranked).where(_is_failing(ranked, name))


def count_failing(table: DataFrame, top: object, names: Sequence[str]) -> dict[str, int]:
    """The numbers of partitions that fail the checks `names`, in one query; see `partitions_failing`."""
    if not names:
        return {}
    ranked = _ranked(top)
    counts = [F.count_if(_is_failing(ranked, name)).alias(name) for name in names]
    return _partitions(table, ranked).agg(*counts).collect()[0].asDict()


def _ranked(top: object) -> TopN:
    if not isinstance(top, TopN):
        raise OperatorError(f"{type(top).__name__} has no ranks to check")
    return top


def _partitions(table: DataFrame, top: TopN) -> DataFrame:
    return table.groupBy(*top.partition).agg(*_counted(top)).where(F.col("rows") > 0)


def _is_failing(top: TopN, name: str) -> Column:
    if name == GAPS:
        return gaps(top)
    end = F.lit(top.rank_end)
    return F.array_max("ranks") > end if top.with_rank else F.col("rows") > end - top.rank_start + 1


def _counted(top: TopN) -> list[Column]:
    rows = F.count("*").alias("rows")
    if not top.with_rank:
        return [rows]
    return [rows, F.sort_array(F.collect_list(RANK)).alias("ranks")]


def gaps(top: TopN) -> Column:
    """Whether a partition's `ranks` (sorted) have a gap.

    Ranks of `row_number` and `dense_rank` are consecutive. The next `rank` after a rank is larger by the number of rows with that rank.
    """
    if top.function == "row_number":
        return F.col("ranks") != F.sequence(F.lit(top.rank_start), F.lit(top.rank_start) + F.col("rows").cast("int") - 1)
    if top.function == "dense_rank":
        distinct = F.array_sort(F.array_distinct("ranks"))
        return distinct != F.sequence(F.lit(top.rank_start), F.lit(top.rank_start) + F.size(distinct) - 1)
    # as many rows have a smaller rank as the index of the first row with this rank
    behind = F.expr(
        "transform(filter(sequence(0, size(ranks) - 1), i -> i = 0 OR get(ranks, i) <> get(ranks, i - 1)), i -> get(ranks, i) - i)"
    )
    lacks_first = (F.get("ranks", 0) > 1) if top.rank_start == 1 else F.lit(False)
    return lacks_first | (F.size(F.array_distinct(behind)) > 1)
