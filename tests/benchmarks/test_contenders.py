"""The contenders of the benchmarks: DuckDB finds the true results, and Flink gets the options of a job."""

import pytest

from benchmarks.contenders import Job, flink
from benchmarks.data import Shape, prepare, true_hot_items, true_pairs, true_top_bids

FLINK_OUTPUT = """WARNING: the JVM may print a warning first
flink interval_join rows=10000000 seconds=73.41 rows_per_s=136221 exec_s=75.02 cpu_s=160.10 sink=blackhole backend=hashmap out=3749606
"""


def test_the_result_line_of_the_flink_job_is_parsed():
    assert flink.outcome(FLINK_OUTPUT) == {"seconds": 73.41, "found": 3_749_606}
    assert flink.outcome(FLINK_OUTPUT.replace("out=3749606", "out=?")) == {"seconds": 73.41}
    with pytest.raises(flink.FlinkOutputError, match="printed no line that starts with 'flink '"):
        flink.outcome("WARNING: the JVM may print a warning first\n")


@pytest.mark.parametrize(("state", "expected"), [("hashmap", ("blackhole", "")), ("rocksdb", ("files", "-Dckpt=10s"))])
def test_flink_runs_in_its_best_case_or_as_in_production(tmp_path, state, expected):
    (tmp_path / "payments").mkdir()
    job = Job(tmp_path, tmp_path, 1_000, flink=tmp_path, options={"state": state})
    environment = flink.environment(job, java_home="/java")
    assert (environment["SINK"], environment["CHECKPOINT"]) == expected
    assert (environment["ROWS"], environment["CORES"], environment["HEAP"]) == ("2000", "2", "4g")


@pytest.mark.parametrize("sink", ["parquet", "nothing"])
@pytest.mark.parametrize("within_ms", [60_000, 600_000])
def test_duckdb_finds_the_true_pairs(tmp_path, sink, within_ms):
    pytest.importorskip("duckdb", reason="it comes with the dependency group `bench`")
    from benchmarks.contenders import duckdb_join

    data = prepare(Shape(5_000), tmp_path / "data")
    job = Job(data, tmp_path, 5_000, within_ms=within_ms, options={"sink": sink})
    assert duckdb_join.run(job)["found"] == true_pairs(data, within_ms)


def test_duckdb_finds_the_true_hot_items(tmp_path):
    pytest.importorskip("duckdb", reason="it comes with the dependency group `bench`")
    from benchmarks.contenders import bids_in_duckdb

    data = prepare(Shape(50_000, data="bids"), tmp_path / "data")
    outcome = bids_in_duckdb.run(Job(data, tmp_path, 50_000, workload="bids"))
    assert {key: outcome[key] for key in ("found", "checksum")} == true_hot_items(data, 10_000, 2_000, 10)


@pytest.mark.parametrize("with_rank", [True, False])
def test_duckdb_finds_the_true_top_bids(tmp_path, with_rank):
    pytest.importorskip("duckdb", reason="it comes with the dependency group `bench`")
    from benchmarks.contenders import top_bids_in_duckdb

    data = prepare(Shape(50_000, data="bids"), tmp_path / "data")
    outcome = top_bids_in_duckdb.run(Job(data, tmp_path, 50_000, workload="top_bids", options={"with_rank": with_rank}))
    assert {key: outcome[key] for key in ("found", "checksum")} == true_top_bids(data, 10, ranked=with_rank)


@pytest.mark.parametrize(
    ("workload", "table", "options", "expected"),
    [
        ("bids", "bids", {}, ("hot_items", "1000")),
        ("payments", "payments", {}, ("interval_join", "2000")),
        ("top_bids", "bids", {"with_rank": True}, ("topn", "1000")),
        ("top_bids", "bids", {"with_rank": False}, ("topn_norn", "1000")),
    ],
)
def test_flink_gets_the_workload_of_the_job(tmp_path, workload, table, options, expected):
    (tmp_path / table).mkdir()
    job = Job(tmp_path, tmp_path, 1_000, flink=tmp_path, workload=workload, options={"state": "hashmap", **options})
    environment = flink.environment(job, java_home="/java")
    assert (environment["WORKLOAD"], environment["ROWS"]) == expected
