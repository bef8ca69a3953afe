"""The choice of kills: first each fault point gets its share, then passings are chosen at random; some kills are by a timer."""

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random

from platform_defs.engine.faults import POINTS
from tests.chaos.stream import Action

Passages = dict[int, list[str]]
"""The points that an undisturbed run passes, in order, by action."""

Kill = tuple[str, int]
ABANDONED_POINTS = ("ingest.after_log", "ingest.after_quarantine", "ingest.before_ledger")
REMOVAL_POINTS = ("uncommitted.before_remove", "uncommitted.after_remove")
TIMER = "timer"


@dataclass
class Planner:
    """Plans the kills of all trials of a run.

    Args:
        actions: the script.
        passages: the points that an undisturbed run passes.
        kills: how many kills the run needs.
        share: how often each point is chosen before points are chosen at random.
    """

    actions: list[Action]
    passages: Passages
    kills: int
    share: int
    made: Counter[str] = field(default_factory=Counter)
    by_action: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def done(self) -> bool:
        """Whether enough kills were made."""
        return self.made.total() >= self.kills

    def record(self, point: str, action: int) -> None:
        """Count a kill."""
        with self._lock:
            self.made[point] += 1
            self.by_action[point][self.actions[action].kind] += 1

    def plan(self, rng: Random, start: int, attempts: Counter[int], leases: bool) -> dict[str, Kill]:
        """Plan at most one kill for each action from `start` on; a process dies at the first one it passes."""
        with self._lock:
            found = {str(i): self._kill(rng, i, leases) for i in range(start, len(self.actions)) if self._wanted(rng, i, attempts)}
        return {i: kill for i, kill in found.items() if kill is not None}

    def _wanted(self, rng: Random, index: int, attempts: Counter[int]) -> bool:
        if self.actions[index].kind == "abandoned":
            return not self.done
        return not self.done and attempts[index] < rng.choice((2, 3, 4)) and self.actions[index].kind != "verify"

    def _kill(self, rng: Random, index: int, leases: bool) -> Kill | None:
        if self.actions[index].kind == "abandoned":
            return min(ABANDONED_POINTS, key=lambda p: (self.by_action[p]["abandoned"], rng.random())), 1
        after_abandoned = index > 0 and self.actions[index - 1].kind == "abandoned"
        passed = Counter(p for p in self.passages[index] if leases or not p.startswith("lease."))
        passed.update(dict.fromkeys(REMOVAL_POINTS, 2) if after_abandoned else {})
        if rng.random() < 0.1 or not passed:
            return TIMER, rng.randrange(100, 6_000)
        rare = min(passed, key=lambda p: (self.made[p], rng.random()))
        point = rare if self.made[rare] < self.share else rng.choice(sorted(passed.elements()))
        return point, rng.randint(1, passed[point])

    def missing(self) -> list[str]:
        """The fault points without a kill."""
        return [p for p in POINTS if not self.made[p]]
