"""Run a contender as a process, and measure its wall time, the CPU time and peak memory of its process tree, and the machine's load."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from benchmarks.contenders import OUTCOME_PREFIX, Job

SAMPLE_INTERVAL_S = 0.1
EXIT_TIMEOUT_S = 20


class RunFailed(RuntimeError):
    """A contender ended without a result."""

    @classmethod
    def ended(cls, reason: str, log: Path) -> "RunFailed":
        """The contender failed or exceeded its time limit; the message has the end of its log."""
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        return cls(f"{reason}; its log is {log}, and ends with:\n{tail}")


@dataclass(frozen=True)
class Measured:
    """The cost of a process.

    Args:
        wall_s: seconds from its start to its end.
        cpu_s: CPU seconds of the process and all its children, including the JVM.
        peak_mb: peak resident memory of the process tree, in MiB.
        other_cpu_s: CPU seconds that other processes used during the run: near 0 on a quiet machine.
        load: the machine's load average over one minute, before the run.
        outcome: the JSON object that the contender printed last: its seconds and its results.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float
    other_cpu_s: float
    load: float
    outcome: Mapping[str, Any] = field(default_factory=dict)


class ProcessTree:
    """Samples of a process and its descendants. A process that has ended keeps its last sample.

    The memory of a process counts from its second sample on: a child that was forked to start another program shares all memory of its
    parent, and would be counted twice.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu: dict[psutil.Process, float] = {self._root: 0.0}
        self.peak = 0

    @property
    def cpu_s(self) -> float:
        """The CPU time until the last sample."""
        return sum(self._cpu.values())

    def sample(self) -> None:
        """Read CPU time and memory of every process in the tree."""
        resident = 0
        for process in self._processes():
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    resident += process.memory_info().rss if process in self._cpu else 0
            except psutil.Error:
                continue
            self._cpu[process] = times.user + times.system
        self.peak = max(self.peak, resident)

    def end(self) -> None:
        """Wait for processes that run longer than the root process, and kill those that do not end."""
        _, running = psutil.wait_procs(list(self._cpu), timeout=EXIT_TIMEOUT_S)
        kill(running)

    def stop(self) -> None:
        """Kill all processes of the tree."""
        kill(self._processes())

    def _processes(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.Error:
            return [p for p in self._cpu if p.is_running()]


def kill(processes: Sequence[psutil.Process]) -> None:
    """Kill processes, of which some may have ended."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def run(command: Sequence[str], log: Path, *, timeout_s: float, cwd: Path | None = None) -> Measured:
    """Run a contender until it ends.

    Args:
        command: the command line of the process.
        log: the file for its output.
        timeout_s: the time limit.
        cwd: its working folder.

    Raises:
        RunFailed: the contender failed, exceeded its time limit, or printed no outcome.
    """
    return replace(run_program(command, log, timeout_s=timeout_s, cwd=cwd), outcome=outcome(log))


def run_program(command: Sequence[str], log: Path, *, timeout_s: float, cwd: Path | None = None) -> Measured:
    """Run a program that prints no outcome until it ends.

    Args:
        command: the command line of the process.
        log: the file for its output.
        timeout_s: the time limit.
        cwd: its working folder.

    Raises:
        RunFailed: the program failed, or exceeded its time limit.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    load, machine_cpu_s, start = os.getloadavg()[0], _machine_cpu_s(), time.perf_counter()
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=cwd)
        tree = ProcessTree(process.pid)
        try:
            code = _watch(process, tree, start + timeout_s)
        except BaseException:
            tree.stop()
            raise
        wall = time.perf_counter() - start
        tree.end()
    if code != 0:
        raise RunFailed.ended("took too long and was stopped" if code is None else f"ended with {code}", log)
    other_cpu_s = max(0.0, _machine_cpu_s() - machine_cpu_s - tree.cpu_s)
    return Measured(round(wall, 2), round(tree.cpu_s, 1), round(tree.peak / 2**20), round(other_cpu_s, 1), round(load, 2))


def _watch(process: subprocess.Popen, tree: ProcessTree, deadline: float) -> int | None:
    """Sample until the process ends. Returns its exit code, or None if it exceeded the deadline and was killed."""
    while (code := process.poll()) is None:
        tree.sample()
        if time.perf_counter() > deadline:
            tree.stop()
            process.wait()
            return None
        time.sleep(SAMPLE_INTERVAL_S)
    return code


def outcome(log: Path) -> Mapping[str, Any]:
    """The outcome in a contender's log."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith(OUTCOME_PREFIX)]
    if not lines:
        raise RunFailed.ended("ended without an outcome", log)
    return json.loads(lines[-1].removeprefix(OUTCOME_PREFIX))


def _machine_cpu_s() -> float:
    """CPU seconds that the whole machine has used since it started."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)


def contender_command(module: str, job: Job) -> list[str]:
    """The command line that runs a contender."""
    return [sys.executable, "-m", "benchmarks.contenders", module, json.dumps(job.as_json())]
