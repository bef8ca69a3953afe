"""The plan of the benchmarks: which cells run, in which order, and which results are recorded."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import plan, results
from benchmarks.contenders import Job
from benchmarks.data import Shape, prepare, true_pairs
from benchmarks.measure import Measured, RunFailed
from benchmarks.plan import Bench, Cell, WrongResults

NOWHERE = Path("/no/flink")
CELL = Cell(kind="join", contender=plan.CATCH_UP, shape=Shape(100))


@pytest.fixture
def bench(tmp_path):
    return Bench(work=tmp_path, flink=NOWHERE)


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """Replace the process of a run by a function; returns the pairs it reports, how often it ran, and whether it fails."""
    script = {"pairs": true_pairs(prepare(Shape(100), tmp_path / "data")), "runs": 0, "fails": False}

    def run(*_, **__):
        script["runs"] += 1
        if script["fails"]:
            raise RunFailed("out of memory")
        return Measured(2.0, 1.0, 100, 0.0, 0.1, {"seconds": 1.0, "found": script["pairs"]})

    monkeypatch.setattr(plan, "run", run)
    return script


def test_contenders_take_turns_and_slow_ones_run_once():
    cells = list(plan.join([10, 20], [5], 2, ["catch_up", "duckdb", "spark_stream"], NOWHERE))
    order = [(c.turn, c.contender.name, c.shape.rows) for c in cells]
    fast = [("catch_up", 10), ("catch_up", 20), ("duckdb", 10), ("duckdb", 20)]
    assert order == [*((0, *run) for run in fast), (0, "spark_stream", 5), *((1, *run) for run in fast)]


def test_flink_is_skipped_if_it_is_not_set_up(tmp_path):
    (tmp_path / "java" / "bclasses").mkdir(parents=True)
    names = [{c.contender.name for c in plan.join([10], [5], 1, [], folder)} for folder in (NOWHERE, tmp_path)]
    assert names[1] - names[0] == {"flink"}


def test_each_cell_has_a_log_file_of_its_own():
    cells = list(plan.hot_items_growth([10], 10, [5, 2], [60_000, 30_000]))
    assert len({cell.name for cell in cells}) == len(cells) == 5


def test_a_cell_with_a_result_is_not_run_again(bench, runs):
    assert bench.run([CELL]) == bench.run([CELL, replace(CELL, turn=1)]) == []
    assert runs["runs"] == 2
    assert [r["cell"]["turn"] for r in results.read(bench.results)] == [0, 1]


def test_a_repeated_cell_replaces_its_result(bench, runs):
    bench.run([CELL])
    replace(bench, again=True).run([CELL])
    assert runs["runs"] == 2
    assert len(results.read(bench.results)) == 1


def test_a_failed_run_is_recorded_and_tried_again(bench, runs):
    runs["fails"] = True
    assert bench.run([CELL]) == ["catch_up: out of memory"]
    runs["fails"] = False
    assert bench.run([CELL]) == []
    assert ["failed" in r for r in results.read(bench.results)] == [False]


def test_a_wrong_answer_is_refused_and_not_recorded(bench, runs):
    true = runs["pairs"]
    runs["pairs"] = true + 1
    message = f"catch_up at 100 rows per table returned {{'found': {true + 1}}}, but {{'found': {true}}} is correct."
    with pytest.raises(WrongResults, match=f"{re.escape(message)} Its time is not recorded"):
        bench.run([CELL])
    assert results.read(bench.results) == []


def test_a_job_read_from_its_json_is_equal(tmp_path):
    job = Job(tmp_path, tmp_path / "scratch", 10, options={"state": "rocksdb"}, flink=None)
    assert Job.from_json(job.as_json()) == job


def test_repeated_keys_do_not_change_the_pairs(tmp_path):
    pairs = {true_pairs(prepare(c.shape, tmp_path)) for c in plan.keys(1_000, (1, 10, 100))}
    assert len(pairs) == 1


def test_a_large_micro_batch_precedes_equal_small_ones():
    cell = next(plan.batch_sizes([1_000], base=50_000))
    assert cell.first == 50_000
    assert 2 * (cell.shape.rows - cell.first) == 1_000 * (cell.batches - 1)


def test_lakes_of_all_sizes_get_equal_micro_batches():
    small, large = plan.lake_sizes([10_000, 100_000])
    assert (small.first, large.first) == (5_000, 50_000)
    assert small.shape.rows - small.first == large.shape.rows - large.first == 500 * (small.batches - 1)
    assert small.shape.step_ms == large.shape.step_ms


def test_the_expected_outcome_of_a_stream_excludes_open_windows(tmp_path):
    cell = next(plan.hot_items([1_000], 1, ["duckdb"], NOWHERE))
    data = prepare(cell.shape, tmp_path)
    assert set(cell.true_outcome(data)) == {"found", "checksum"}
    stream = next(plan.hot_items([1_000], 1, ["spark_stream"], NOWHERE))
    assert stream.true_outcome(data)["found"] < cell.true_outcome(data)["found"]
