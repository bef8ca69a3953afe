"""The processes of a live benchmark: the producer's, and the stream's, which can be killed and started again."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from platform_defs.settings import PROJECT

_STARTED_S, _ENDED_S = 180.0, 120.0


@dataclass
class Sending:
    """A producer's process, and the file of its counts."""

    process: "subprocess.Popen[bytes]"
    progress: Path

    @property
    def counts(self) -> dict[str, Any]:
        """The events that were sent, and those that the broker has acknowledged."""
        return json.loads(self.progress.read_text()) if self.progress.exists() else {"sent": 0, "acked": 0, "failed": 0, "ended": False}

    def wait(self) -> dict[str, Any]:
        """Wait for its end; returns its counts."""
        code = self.process.wait()
        if code or not self.counts["ended"]:
            raise RuntimeError(f"the producer ended with {code}: {self.counts}")
        return self.counts

    def end(self) -> None:
        """End the process."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@dataclass
class StreamProcess:
    """A stream in a process group of its own, with its log.

    Args:
        command: starts it, also again after a kill.
        log: the file of its output.
    """

    command: Sequence[str]
    log: Path
    started_at: list[float] = field(default_factory=list, init=False)
    """The times at which it was started, by the monotonic clock."""
    _processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list, init=False)

    def start(self) -> "StreamProcess":
        """Start it."""
        with self.log.open("ab") as out:
            started = subprocess.Popen(self.command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        self._processes.append(started)
        self.started_at.append(time.monotonic())
        return self

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The newest process."""
        return self._processes[-1]

    @property
    def jvm(self) -> psutil.Process | None:
        """Its JVM; None while it starts."""
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children(recursive=True)
            return next((child for child in children if child.name() == "java"), None)
        return None

    @property
    def is_ended(self) -> bool:
        """Whether its newest process has ended."""
        return self.process.poll() is not None

    @property
    def lines(self) -> list[str]:
        """The output of all its processes."""
        return self.log.read_text(errors="replace").splitlines()

    def wait_started(self, is_started: Callable[[], bool]) -> None:
        """Wait until its newest process has started."""
        until(is_started, _STARTED_S, lambda: "the stream does not start; its log ends with:\n" + "\n".join(self.lines[-15:]), self.process)

    def kill(self) -> None:
        """Kill all processes of its group, with the JVM, as the end of a machine does."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """End it with SIGTERM, as a service manager does."""
        if not self.is_ended:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_ENDED_S)
        self.kill()


def until(
    condition: Callable[[], bool],
    seconds: float,
    problem: Callable[[], str],
    process: "subprocess.Popen[bytes] | None" = None,
    poll_s: float = 0.2,
) -> None:
    """Wait until a condition is true.

    Args:
        condition: the condition.
        seconds: the longest wait.
        problem: describes the failure, at the time of the failure.
        process: the process that makes the condition true, without which the wait is in vain.
        poll_s: the time between two looks at the condition.

    Raises:
        TimeoutError: it is not true in time.
        RuntimeError: the process has ended.
    """
    end = time.monotonic() + seconds
    while process is None or process.poll() is None:
        if condition():
            return
        if time.monotonic() > end:
            raise TimeoutError(f"not in {seconds:.0f} s: {problem()}")
        time.sleep(poll_s)
    raise RuntimeError(f"a process ended with exit code {process.returncode}: {problem()}")
