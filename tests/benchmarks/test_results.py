"""The recorded results of the benchmarks: their file, medians and slopes."""

import pytest

from benchmarks import results

CELL = {"contender": "ten", "rows": 1_000_000, "turn": 0}


def record(seconds, **cell):
    return {"kind": "join", "cell": {**CELL, **cell}, "outcome": {"seconds": seconds}}


def test_the_slope_is_seconds_per_further_million_rows_of_both_tables():
    assert results.slope({1_000_000: 30.0, 5_000_000: 70.0}) == pytest.approx(5.0)


def test_the_slope_is_from_the_smallest_to_the_largest_size():
    assert results.slope({5_000_000: 20.0, 1_000_000: 12.0, 2_000_000: 99.0}) == pytest.approx(1.0)


def test_one_size_has_no_slope():
    assert results.slope({1_000_000: 30.0}) is None


def test_medians_are_by_size_over_successful_runs():
    records = [record(s, turn=t) for t, s in enumerate((3.0, 1.0, 8.0))]
    records += [record(10.0, rows=5_000_000), {**record(0.1, turn=9), "failed": "out of memory"}]
    assert results.medians(records, "join", "ten", "outcome", "seconds") == {1_000_000: 3.0, 5_000_000: 10.0}


def test_the_newest_result_of_a_cell_counts(tmp_path):
    path = tmp_path / "bench" / "results.jsonl"
    for seconds in (3.0, 2.0):
        results.append(path, record(seconds))
    assert [r["outcome"]["seconds"] for r in results.read(path)] == [2.0]


def test_without_a_file_there_are_no_results(tmp_path):
    assert results.read(tmp_path / "results.jsonl") == []


def test_a_record_of_an_earlier_version_is_read(tmp_path):
    path = tmp_path / "results.jsonl"
    results.append(path, {"kind": "join", "cell": CELL, "told": {"seconds": 3.0}})
    assert [r["outcome"] for r in results.read(path)] == [{"seconds": 3.0}]
