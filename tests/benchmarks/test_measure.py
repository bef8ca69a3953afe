"""A measured run of a benchmark: the time, memory and CPU of its processes, and the errors of a failed run."""

import subprocess
import sys

import pytest

from benchmarks import measure
from benchmarks.measure import ProcessTree, RunFailed, run

SPIN = "import time; e = time.process_time() + 0.3\nwhile time.process_time() < e: pass"


def python(code):
    return [sys.executable, "-c", code]


def test_memory_and_cpu_are_those_of_the_whole_process_tree(tmp_path):
    child = f"import time; block = b'1' * (120 << 20)\n{SPIN}\ntime.sleep(0.5)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])\nprint('outcome: ' + '{{\"seconds\": 1.5}}')"
    measured = run(python(parent), tmp_path / "log", timeout_s=30)
    assert measured.outcome == {"seconds": 1.5}
    assert measured.peak_mb > 120
    assert measured.cpu_s >= 0.3
    assert measured.wall_s >= 0.8


def test_memory_that_a_fork_shares_is_counted_once():
    """The child has not started another program yet when it is sampled first."""
    forks = "import os, time; block = b'1' * (200 << 20); os.fork() and print(flush=True); time.sleep(60)"
    with subprocess.Popen(python(forks), stdout=subprocess.PIPE) as process:
        tree = ProcessTree(process.pid)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            tree.sample()
        finally:
            tree.stop()
    assert 200 < tree.peak / 2**20 < 300


def test_the_error_of_a_failed_run_contains_the_end_of_its_log(tmp_path):
    with pytest.raises(RunFailed, match=r"ended with 3; its log is .*\nno room left"):
        run(python("print('no room left'); raise SystemExit(3)"), tmp_path / "log", timeout_s=30)


def test_a_run_that_takes_too_long_is_stopped(tmp_path):
    with pytest.raises(RunFailed, match="took too long and was stopped"):
        run(python("import time; time.sleep(60)"), tmp_path / "log", timeout_s=0.3)


def test_a_run_without_an_outcome_has_failed(tmp_path):
    with pytest.raises(RunFailed, match="ended without an outcome"):
        run(python("print('done')"), tmp_path / "log", timeout_s=30)


def test_an_interrupted_run_leaves_no_process(tmp_path, monkeypatch):
    seen = []

    def interrupt(process, *_):
        seen.append(process)
        raise KeyboardInterrupt("by hand")

    monkeypatch.setattr(measure, "_watch", interrupt)
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        run(python("import time; time.sleep(60)"), tmp_path / "log", timeout_s=30)
    assert seen[0].wait(timeout=10) != 0
