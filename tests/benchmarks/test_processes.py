"""Processes of the live benchmarks: waiting for them, and killing them. No test starts Java."""

import subprocess
import time
from itertools import count
from pathlib import Path

import psutil
import pytest

from benchmarks.live.cluster import Cluster, kill_with_children
from benchmarks.live.processes import StreamProcess, until
from benchmarks.measure import kill


def test_a_wait_that_fails_describes_the_state_at_its_end() -> None:
    looks = count()
    with pytest.raises(TimeoutError, match=r"^not in 0 s: looked [2-9]\d* times$"):
        until(lambda: next(looks) < 0, 0.05, lambda: f"looked {next(looks)} times", poll_s=0.01)


def test_a_wait_for_a_process_that_has_ended_fails_at_once(tmp_path: Path) -> None:
    stream = StreamProcess(["sh", "-c", "sleep 0.2; echo no Java; exit 3"], tmp_path / "log").start()
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"ended with exit code 3: the stream does not start; its log ends with:\nno Java$"):
        stream.wait_started(lambda: False)
    assert time.monotonic() - began < 60


def test_a_process_that_has_ended_is_not_killed_again() -> None:
    ended = subprocess.Popen(["sleep", "60"])
    process = psutil.Process(ended.pid)
    for _ in range(2):
        kill([process])
        ended.wait(60)
        kill_with_children(ended.pid)


class _Stuck(subprocess.Popen[bytes]):
    def wait(self, timeout: float | None = None) -> int:
        super().wait(60)
        raise subprocess.TimeoutExpired("stuck", timeout or 0)


def test_all_processes_of_a_cluster_are_killed_if_one_does_not_end(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster._started += [subprocess.Popen(["sleep", "60"]), _Stuck(["sleep", "60"])]
    with pytest.raises(subprocess.TimeoutExpired, match="'stuck' timed out"):
        cluster.end()
    assert [process.returncode for process in cluster._started] == [-9, -9]
