"""Our windowed operators give Flink's final rows, and the comparison detects errors."""

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from tests.oracle.windowed import (
    CONSECUTIVE,
    DEDUP,
    SQL_WINDOW_JOIN,
    WINDOW_JOIN,
    WINDOW_TOPN,
    Row,
    WindowCase,
    compare,
    gather,
    newest_ranks,
    parse,
    run,
)
from tests.support.shared_data import ORACLE

SHORT = ("hand_session_merge_late", "session_cogroup_full")
pytestmark = pytest.mark.skipif(not ORACLE.is_dir(), reason=f"Flink's recorded answers are not there: {ORACLE}")


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> list[tuple[WindowCase, Counter[Row]]]:
    """Some cases with our results: every second case of each operator, and the two session cases with the fewest rows.

    Of SQL's window joins, these are the cases at odd positions; `test_sql` runs those at even positions.
    """
    cases = gather(ORACLE)
    aligned = sorted((case for case in cases if not case.in_sessions), key=lambda case: (case.content["operator"], case.name))
    by_sql = [case for case in aligned if case.content["operator"] == SQL_WINDOW_JOIN]
    cases = [case for case in aligned[::2] if case not in by_sql] + by_sql[1::2] + [case for case in cases if case.content["name"] in SHORT]
    found = run(spark, cases)
    return [(case, found[case.name]) for case in cases]


@pytest.mark.usefixtures("interpreted_plans")
@pytest.mark.spark
def test_the_final_rows_equal_flinks(answers: list[tuple[WindowCase, Counter[Row]]]):
    differences = {case.name: (case.wanted - found, found - case.wanted) for case, found in answers if found != case.wanted}
    assert not differences
    assert set(Counter(case.content["operator"] for case, _ in answers)) == {DEDUP, WINDOW_TOPN, CONSECUTIVE, WINDOW_JOIN, SQL_WINDOW_JOIN}
    assert len(answers) > 30
    assert sum(found.total() for _, found in answers) > 700


def test_a_changed_row_is_detected():
    for case in gather(ORACLE):
        row = Counter([next(iter(case.wanted))])
        assert [compare(case, found).status for found in (case.wanted, case.wanted - row, case.wanted + row)] == [
            "passed",
            "failed",
            "failed",
        ]


def test_a_case_without_results_is_compared():
    params = {"time": "rowtime", "keep": "first", "partition_by": "k"}
    case = parse({"operator": DEDUP, "name": "nothing", "params": params, "input": [], "expected": []})
    assert [compare(case, found).status for found in (Counter[Row](), Counter([()]))] == ["passed", "failed"]


def test_only_the_ranks_of_the_last_firing_in_a_step_are_compared():
    first, again, second = ({"step": 5, "window_end": 1000, "rank": rank, "key": key} for rank, key in ((1, "a"), (1, "b"), (2, "a")))
    assert newest_ranks([first, again, second]) == [again, second]


@pytest.mark.usefixtures("interpreted_plans")
@pytest.mark.spark
def test_a_case_without_results_can_be_run_with_others(spark: SparkSession):
    case = next(case for case in gather(ORACLE) if case.content["operator"] == DEDUP)
    nothing = WindowCase({**case.content, "name": "nothing", "input": [], "expected": [], "expected_final": []})
    assert run(spark, [nothing, case]) == {nothing.name: Counter(), case.name: case.wanted}
