"""Our Top-N gives Flink's leaderboards after every micro-batch, and the comparison detects errors."""

import json
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from tests.oracle import leaderboards
from tests.oracle.leaderboards import TOPN, TopNCase, compare_cases
from tests.oracle.runner import gather
from tests.support.shared_data import ORACLE

pytestmark = pytest.mark.skipif(not ORACLE.is_dir(), reason=f"Flink's recorded answers are not there: {ORACLE}")
SHORT = ("agg_count_desc_tiebreak", "agg_max_desc_norn", "agg_sum_range_rn", "append_varend_rn", "append_ties_rn", "retract_range_norn")
SHORT = (*SHORT, "retract_pk_desc_rn", "upsert_desc_rn", "err_rank_function", "err_agg_varend")


@pytest.mark.usefixtures("interpreted_plans")
@pytest.mark.spark
@pytest.mark.parametrize(("batches", "rows"), [(2, 160), pytest.param(3, 233, marks=pytest.mark.soak)])
def test_the_leaderboards_equal_flinks_after_every_micro_batch(spark: SparkSession, batches: int, rows: int) -> None:
    """The first micro-batch has nothing before it, and each other one changes some partitions."""
    cases = [replace(case, batches=batches) for case in gather(ORACLE, TOPN).tops if case.content["name"] in SHORT]
    results = compare_cases(spark, cases)
    assert {v.name: v.why for v in results if v.status != "passed"} == {}
    assert len(results) == len(SHORT)
    assert sum(v.direct for v in results) == sum(v.expected for v in results) == rows
    assert sum(bool(v.reasons) for v in results) == 3


@pytest.mark.spark
def test_a_changed_row_and_a_superfluous_change_are_detected(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    [case] = [case for case in gather(ORACLE, TOPN).tops if case.content["name"] == "append_top1_rn"]
    case, content = replace(case, batches=3), json.loads(json.dumps(case.content))
    content["expected"][-1]["v"] += 1
    changes = leaderboards.difference
    monkeypatch.setattr(leaderboards, "difference", lambda *frames, key: changes(frames[0].limit(0), frames[1], key=key))
    [result] = compare_cases(spark, [TopNCase(content, case.batches)])
    assert result.status == "failed"
    [first, *_] = [why for why in result.why if "the changes" not in why]
    assert f"after micro-batch {case.batches} lacks 1, such as " in first, "before it, no leaderboard is wrong"
    assert "after micro-batch 2 the changes are superfluous in 5" in " ".join(result.why)


def test_every_case_is_read() -> None:
    gathered = gather(ORACLE, TOPN)
    assert not gathered.unreadable
    assert len(gathered.tops) == len(list((ORACLE / TOPN).glob("*.json")))
