"""The checks of leaderboards detect a lost row, a gap, a superfluous row and a changelog that does not apply."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from assets.contracts import DerivedAsset
from expectations import leaderboards
from expectations.leaderboards import AT_MOST_N, FOLDS, GAPS, count_failing, differing_rows, leaderboard_checks, partitions_failing
from operators import Aggregate, IntervalJoin, OperatorError, TopN
from platform_defs.engine.operations.time_travel import UpsertedSnapshot
from tests.operators.frames import frame_of

OPERATORS = {
    "row_number": TopN(by="k", order_by="v", rank_end=3),
    "range": TopN(by="k", order_by="v", rank_end=3, rank_start=2),
    "rank": TopN(by="k", order_by="v", rank_end=3, function="rank"),
    "dense_rank": TopN(by="k", order_by="v", rank_end=3, function="dense_rank"),
}


PARTITIONS = {
    "row_number": {
        "1 2 3": (False, False),
        "2 3": (True, False),
        "1 3": (True, False),
        "1 2 2": (True, False),
        "1 2 3 4": (False, True),
    },
    "range": {"2 3": (False, False), "3": (True, False)},
    "rank": {"1 1 3": (False, False), "1 1 1 3": (True, False), "1 1 2": (True, False), "3 4": (True, True)},
    "dense_rank": {"1 1 2 2 3": (False, False), "1 3": (True, False), "1 2 3 4": (False, True)},
}
"""For each operator the ranks of partitions, and whether a partition has a gap and whether it has too many rows."""


@pytest.mark.parametrize("top", PARTITIONS)
def test_wrong_ranks_are_detected(spark: SparkSession, top: str) -> None:
    """Each partition is named after its ranks. The one whose key is null has the ranks 2 and 3: only `range` begins with the rank 2."""
    expected: dict[str | None, tuple[bool, bool]] = {**PARTITIONS[top], None: (top != "range", False)}
    rows = [(k, int(rank)) for k in expected for rank in (k or "2 3").split()]
    table = spark.createDataFrame(pa.table({"k": [k for k, _ in rows], "rank": pa.array([rank for _, rank in rows], pa.int32())}))
    gaps = {k for k, (gap, _) in expected.items() if gap}
    too_many = {k for k, (_, more) in expected.items() if more}
    assert {r.k for r in partitions_failing(table, OPERATORS[top], GAPS).collect()} == gaps
    assert {r.k for r in partitions_failing(table, OPERATORS[top], AT_MOST_N).collect()} == too_many
    assert count_failing(table, OPERATORS[top], [GAPS, AT_MOST_N]) == {GAPS: len(gaps), AT_MOST_N: len(too_many)}


def test_without_ranks_the_rows_of_each_partition_are_counted(spark: SparkSession) -> None:
    top = TopN(order_by="v", rank_end=2, with_rank=False)
    rows = spark.range(1, 4).selectExpr("int(id) AS v")
    assert [partitions_failing(frame, top, AT_MOST_N).isEmpty() for frame in (rows.limit(2), rows, rows.limit(0))] == [True, False, True]
    assert partitions_failing(rows.limit(0).selectExpr("1 AS rank"), TopN(order_by="v", rank_end=2), GAPS).isEmpty()
    assert [count_failing(frame, top, [AT_MOST_N])[AT_MOST_N] for frame in (rows, rows.limit(0))] == [1, 0]


def test_a_changelog_that_does_not_apply_to_the_table_is_detected(spark: SparkSession) -> None:
    changelog = frame_of(spark, [("a", 1, "+I", 1), ("a", 1, "-U", 2), ("a", 2, "+U", 2)], "k string, v int, change string, step long")
    table = frame_of(spark, [("a", 2)], "k string, v int")
    assert differing_rows(table, changelog, ("k",)).isEmpty()
    assert differing_rows(table.selectExpr("k", "v + 1 AS v"), changelog, ("k",)).count() == 2
    assert differing_rows(table.limit(0), changelog, ("k",)).count() == 1


@pytest.mark.parametrize(
    ("operator", "names"),
    [
        (OPERATORS["rank"], {FOLDS, GAPS, AT_MOST_N}),
        (TopN(order_by="v", rank_end=2, function="rank", with_rank=False), {FOLDS}),
        (TopN(order_by="v", rank_end=2, with_rank=False), {FOLDS, AT_MOST_N}),
        (TopN(order_by="v", rank_end="v"), {FOLDS, GAPS}),
        (TopN(order_by="v", rank_end="v", with_rank=False), {FOLDS}),
        (Aggregate(by="k", aggregates={"n": "count(*)"}), {FOLDS}),
    ],
)
def test_an_asset_has_the_checks_that_its_operator_allows(operator: TopN | Aggregate, names: set[str]) -> None:
    checks = leaderboard_checks(DerivedAsset(name="leaderboard", inputs=("rows",), operator=operator))
    assert {key.name for key in checks.check_keys} == names


def test_leaderboard_checks_of_an_append_only_asset_are_refused() -> None:
    joined = DerivedAsset(name="wide", inputs=("l", "r"), operator=IntervalJoin(on="k", lower=0, upper=1))
    with pytest.raises(OperatorError, match="wide is append-only; leaderboard checks need an upserted table"):
        leaderboard_checks(joined)


def test_each_check_reports_the_partitions_or_rows_that_fail(spark: SparkSession) -> None:
    board = DerivedAsset(name="board", inputs=("rows",), operator=TopN(by="k", order_by="v", rank_end=2))
    table = frame_of(spark, [("a", 1, 1), ("a", 2, 2), ("b", 1, 2), ("b", 2, 3)], "k string, v int, rank int")
    changelog = table.selectExpr("*", "'+I' AS change", "1L AS step")
    assert {e.check_name: e.passed for e in evaluations(board, None)} == {FOLDS: True, GAPS: True, AT_MOST_N: True}
    whole = table.where("k = 'a'"), changelog.where("k = 'a'")
    assert {(e.passed, e.description) for e in evaluations(board, whole)} == {(True, "no violation")}
    found = {e.check_name: e for e in evaluations(board, (table, changelog.where("v = 1")))}
    assert not any(e.passed for e in found.values())
    assert {name: e.metadata["partitions_or_rows_wrong"].value for name, e in found.items()} == {FOLDS: 2, GAPS: 1, AT_MOST_N: 1}
    assert "'ranks': [2, 3]" in str(found[GAPS].metadata["failing"].value)


def test_the_description_of_a_failed_check_has_no_values_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alerts send descriptions."""
    board = DerivedAsset(name="board", inputs=("rows",), operator=TopN(by="k", order_by="v", rank_end=2))
    failing = SimpleNamespace(limit=lambda _: SimpleNamespace(collect=lambda: [Row(k="ana")]), count=lambda: 3)
    monkeypatch.setattr(leaderboards, "differing_rows", lambda *_: failing)
    monkeypatch.setattr(leaderboards, "count_failing", lambda *_: {GAPS: 0, AT_MOST_N: 0})
    monkeypatch.setattr(leaderboards, "partitions_failing", lambda *_: failing)
    no_rows: Any = None
    found = {e.check_name: e for e in evaluations(board, (no_rows, no_rows))}[FOLDS]
    assert (found.passed, found.description) == (False, "rows that fail: 3; the metadata has some of them")
    assert found.metadata["failing"].value == ["{'k': 'ana'}"]


def evaluations(derived: DerivedAsset, snapshot: tuple[DataFrame, DataFrame] | None) -> list[dg.AssetCheckEvaluation]:
    """Run the checks of a leaderboard as a Dagster job, on a table and its changelog."""
    job = dg.define_asset_job("checks", selection=dg.AssetSelection.all_asset_checks())
    engine = SimpleNamespace(
        views=SimpleNamespace(
            newest_snapshot=lambda name, earlier_state: snapshot and UpsertedSnapshot(*snapshot, 0, None), naming_lost_files=nullcontext
        )
    )
    board, checks = dg.AssetSpec(derived.name), leaderboard_checks(derived)
    defs = dg.Definitions(assets=[board], asset_checks=[checks], jobs=[job], resources={"engine": engine})
    return defs.resolve_job_def("checks").execute_in_process().get_asset_check_evaluations()
