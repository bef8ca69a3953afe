"""The choice of kills: first each fault point gets some, then passages are chosen at random; some kills are by a timer."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from platform_defs.engine.faults import POINTS
from tests.chaos.stream import Action

Passages = dict[int, list[str]]
"""The points that an undisturbed run passes, in order, by action."""

Kill = tuple[str, int]
"""A fault point, and at which of its passages in the action the process dies, from 1; or `timer`, and after how many milliseconds."""
ABANDONED_POINTS = ("ingest.after_log", "ingest.after_quarantine", "ingest.before_ledger")
"""The points at which an `abandoned` action is killed: some rows are written, and no ledger batch contains them."""
REMOVAL_POINTS = ("uncommitted.before_remove", "uncommitted.after_remove")
"""The points that the action after an `abandoned` one passes, because it removes abandoned rows. An undisturbed run has no such rows."""
REMOVALS = 2
"""A kill is at one of the first two passages of a removal point. A process passes it for each table that has uncommitted rows."""
TIMER = "timer"
TIMER_SHARE = 0.1
"""The share of the kills that a timer makes. These can happen between two points."""
TIMER_MS = (100, 6_000)
"""The range of a timer, in ms. One that is longer than its action kills a later action."""
MOST_ATTEMPTS = (2, 3, 4)
"""An action is killed only while it has had fewer attempts than one of these, chosen at random, so that each trial ends."""


@dataclass
class Planner:
    """Plans the kills of all trials of a run.

    Args:
        actions: the script.
        passages: the points that an undisturbed run passes.
        kills: how many kills the run needs.
        min_kills_per_point: the kills that each point gets before points are chosen at random.
        kills_by_point: the kills so far.
        by_action: the kills so far by point and kind of action.
    """

    actions: list[Action]
    passages: Passages
    kills: int
    min_kills_per_point: int
    kills_by_point: Counter[str] = field(default_factory=Counter)
    by_action: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_done(self) -> bool:
        """Whether the run has had enough kills."""
        return self.kills_by_point.total() >= self.kills

    def record(self, point: str, action: int) -> None:
        """Count a kill."""
        with self._lock:
            self.kills_by_point[point] += 1
            self.by_action[point][self.actions[action].kind] += 1

    def plan(self, rng: Random, start: int, attempts: Counter[int], has_leases: bool) -> dict[str, Kill]:
        """Plan at most one kill for each action from `start` on; a process dies at the first planned point that it reaches."""
        with self._lock:
            found = {str(i): self._kill(rng, i, has_leases) for i in range(start, len(self.actions)) if self._is_killed(rng, i, attempts)}
        return {i: kill for i, kill in found.items() if kill is not None}

    def points_without_kill(self) -> list[str]:
        """The fault points that a plan can choose, and that have no kill. The script passes no others."""
        choosable = {point for index in range(len(self.actions)) for point in self._points(index)}
        return [p for p in POINTS if p in choosable and not self.kills_by_point[p]]

    def _is_killed(self, rng: Random, index: int, attempts: Counter[int]) -> bool:
        if self.actions[index].kind == "abandoned":
            return not self.is_done
        return not self.is_done and attempts[index] < rng.choice(MOST_ATTEMPTS) and self.actions[index].kind != "verify"

    def _kill(self, rng: Random, index: int, has_leases: bool) -> Kill | None:
        if self.actions[index].kind == "abandoned":
            return min(ABANDONED_POINTS, key=lambda p: (self.by_action[p]["abandoned"], rng.random())), 1
        passed = Counter(p for p in self._points(index) if has_leases or not p.startswith("lease."))
        if rng.random() < TIMER_SHARE or not passed:
            return TIMER, rng.randrange(*TIMER_MS)
        rare = min(passed, key=lambda p: (self.kills_by_point[p], rng.random()))
        point = rare if self.kills_by_point[rare] < self.min_kills_per_point else rng.choice(sorted(passed.elements()))
        return point, rng.randint(1, passed[point])

    def _points(self, index: int) -> Iterator[str]:
        """The points at which an action can be killed, once for each passage."""
        kind = self.actions[index].kind
        if kind == "abandoned":
            yield from ABANDONED_POINTS
        elif kind != "verify":
            yield from self.passages[index]
            if index > 0 and self.actions[index - 1].kind == "abandoned":
                yield from REMOVAL_POINTS * REMOVALS
