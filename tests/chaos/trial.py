"""One trial: processes start, are killed and start again on one lake until the script is complete; then the lake is checked."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.child import Instructions
from tests.chaos.content import Content, content, differences
from tests.chaos.plan import Kill, Passages, Planner

PROJECT = Path(__file__).resolve().parents[2]
PROCESS_S = 900
"""The timeout of a process. An undisturbed process performs the whole script."""


Finish = Callable[[int], dict[str, Any]]
GOOD = {"law": [], "count_differences": "{}", "changelog_equal": True}
"""The last check of a lake in which everything is right."""


class TrialError(RuntimeError):
    """A process failed by itself, or the lake is wrong."""


@dataclass
class Trial:
    """A lake, and the processes that run on it.

    Args:
        home: its folder.
        seed: the seed of its stream.
        parts: how many parts the stream lands in.
        remote: whether the lake has a URI, so that writers take leases.
        archive: the class data archive; None for none.
        log: writes a line of progress.
        session_file: the file of a served session, in whose JVM the processes work; empty for a JVM for each.
        passages: the points that the undisturbed run passes, by the index of an action.
        last_check: the message of the last `verify` action.
    """

    home: Path
    seed: int
    parts: int
    remote: bool
    archive: Path | None
    log: Callable[[str], None]
    session_file: str = ""
    passages: Passages = field(default_factory=dict)
    last_check: dict[str, Any] = field(default_factory=dict)

    @property
    def lake(self) -> str:
        """The lake's root."""
        return f"file://{self.home}/lake" if self.remote else f"{self.home}/lake"

    def undisturbed(self) -> Content:
        """Run the script without a kill, and write the class data archive."""
        self._prepare()
        self._process(replace(self._instructions(0, {}), make_archive=True))
        return self.checked_content(None)

    def disturbed(self, planner: Planner, rng: Random, expected: Content, finish: Finish | None = None) -> None:
        """Kill and restart processes until the script is done, then compare the lake with that of the undisturbed run.

        Args:
            planner: plans the kills.
            rng: makes its random choices.
            expected: the content of the lake after an undisturbed run.
            finish: performs the rest of the script, from the given action on, once all kills are made, and returns the last check;
                by default a last process does.

        Raises:
            TrialError: a process failed by itself, or the lake differs, or its law does not hold.
        """
        self._prepare()
        at, attempts = 0, Counter[int]()
        while at < len(planner.actions):
            if planner.is_done and finish is not None:
                self.last_check = finish(at)
                break
            kills = planner.plan(rng, at, attempts, self.remote)
            began = time.monotonic()
            reached, ending = self._process(self._instructions(at, kills), planner)
            attempts[reached] += 1
            self.log(f"{self.home.name} did {at} to {reached} and {ending}, in {time.monotonic() - began:.1f} s")
            at = reached + 1 if reached < len(planner.actions) and planner.actions[reached].kind == "abandoned" else reached
        self.checked_content(expected)

    def _instructions(self, start: int, kills: dict[str, Kill]) -> Instructions:
        archive = str(self.archive or "")
        return Instructions(str(self.home), self.lake, self.seed, self.parts, start, kills, archive, session_file=self.session_file)

    def checked_content(self, expected: Content | None) -> Content:
        """Check the lake and return its content.

        Raises:
            TrialError: the law does not hold, or the content is not the expected one.
        """
        if self.last_check != GOOD:
            raise TrialError(f"{self.home}: the law does not hold: {self.last_check}")
        found = content(self.lake, self.home)
        wrong = differences(expected, found) if expected is not None else []
        if wrong:
            raise TrialError(f"{self.home}: the lake differs from an undisturbed run's: " + "; ".join(wrong))
        return found

    def _prepare(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)

    def _process(self, instructions: Instructions, planner: Planner | None = None) -> tuple[int, str]:
        """Run one process; returns the first action that is not done, and how the process ended."""
        at, ending = instructions.start, "ended"
        for message in self._messages(instructions):
            at = message.get("begun", at)
            at = message["done"] + 1 if "done" in message else at
            if "passed" in message and planner is None:
                self.passages.setdefault(message["in"], []).append(message["passed"])
            elif "law" in message:
                self.last_check = message
            elif "killed" in message and planner is not None:
                last, ending = min(at, len(planner.actions) - 1), f"was killed at {message['killed']}"
                planner.record(message["killed"], last)
                if planner.actions[last].kind == "abandoned":
                    delete_abandoned_files(self.home)
        return at, ending

    def _messages(self, instructions: Instructions) -> Iterator[dict[str, Any]]:
        """Yield the messages of a process, after it and its JVM have ended."""
        read, write = os.pipe()
        command = [sys.executable, "-m", "tests.chaos.child", json.dumps(asdict(instructions)), str(write)]
        with (self.home / "stderr.log").open("ab") as errors, os.fdopen(read) as pipe:
            process = subprocess.Popen(
                command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, pass_fds=[write], start_new_session=True
            )
            os.close(write)
            watchdog = threading.Timer(PROCESS_S, os.killpg, (process.pid, signal.SIGKILL))
            watchdog.start()
            messages = [json.loads(line) for line in pipe]
            process.wait()
            watchdog.cancel()
        _wait_for_end(process.pid)
        if process.returncode not in (0, -signal.SIGKILL) or (process.returncode and not any("killed" in s for s in messages)):
            tail = (self.home / "stderr.log").read_text(errors="replace")[-3000:]
            raise TrialError(f"{self.home}: a process ended by itself ({process.returncode}) after {messages[-1:]}:\n{tail}")
        yield from messages


def delete_abandoned_files(home: Path) -> None:
    """Delete the files of an abandoned ingest, which was killed before its ledger batch."""
    for path in home.glob("landing/*/abandoned-*"):
        path.unlink()


def _wait_for_end(group: int) -> None:
    """Wait until no process of a group is left."""
    for _ in range(2400):  # the first process writes the class data archive when it ends
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise TrialError(f"process group {group} is still there, two minutes after its end")
