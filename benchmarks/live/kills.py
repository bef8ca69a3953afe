"""The kills of a soak: which process is killed when, and how long it takes until the next step."""

import random
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from benchmarks.live.processes import StreamProcess
from benchmarks.live.world import World

Kind = Literal["job", "broker", "worker"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The stream's process group with its JVM; the broker; one of the cluster's workers with its executors. Each is killed by SIGKILL."""


@dataclass(frozen=True)
class Planned:
    """A kill that is to be made.

    Args:
        kind: the process.
        seconds: since the first event.
    """

    kind: Kind
    seconds: float


def plan(kinds: Sequence[Kind], every_s: float, until_s: float, seed: int) -> list[Planned]:
    """Kills at random moments; the same seed gives the same kills.

    Between two kills are 0.5 to 1.5 times `every_s`. All kinds are used equally often: each round has every kind once, in a random order.

    Args:
        kinds: the kinds.
        every_s: the average time between two kills, in seconds.
        until_s: the end of the kills, in seconds since the first event.
        seed: the seed.
    """
    chance, at, found = random.Random(seed), 0.0, list[Planned]()
    for kind in _in_rounds(kinds, chance):
        at += chance.uniform(0.5, 1.5) * every_s
        if at >= until_s:
            break
        found.append(Planned(kind, round(at, 1)))
    return found


def _in_rounds(kinds: Sequence[Kind], chance: random.Random) -> Iterator[Kind]:
    while kinds:
        yield from chance.sample(kinds, len(kinds))


@dataclass(frozen=True)
class Kill:
    """A kill that was made.

    Args:
        kind: the process.
        seconds: since the first event.
        at_ms: the wall clock, in epoch ms.
        back_s: seconds until the process that replaces it was ready; None if it was killed again before.
        step_s: seconds until every table had a step with a batch that was begun after the kill (of the broker: after it was back); None if
            a table had none.
    """

    kind: Kind
    seconds: float
    at_ms: int
    back_s: float | None = None
    step_s: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The kill as plain data."""
        return asdict(self)


@dataclass
class Killer:
    """Makes the planned kills, and starts again what was killed, as a supervisor does.

    Args:
        world: the processes.
        stream: the stream.
        planned: the kills.
        seed: decides which worker is killed.
        note: receives a line for each.
    """

    world: World
    stream: StreamProcess
    planned: Sequence[Planned]
    seed: int
    note: Callable[[str], None]
    made: list[Kill] = field(default_factory=list, init=False)
    ended: list[float] = field(default_factory=list, init=False)
    """The seconds at which the stream had ended by itself, and was started again."""

    def __post_init__(self) -> None:
        self._chance, self._engine, self._asked_s = random.Random(self.seed), self.world.engine(), 0.0

    def look(self, passed_s: float) -> None:
        """Make the kill whose time has come, and start the stream again if it has ended by itself.

        Args:
            passed_s: the time since the first event, in seconds.
        """
        self._look_at_stream(passed_s)
        if len(self.made) < len(self.planned) and self.planned[len(self.made)].seconds <= passed_s:
            self._kill(self.planned[len(self.made)].kind, passed_s)

    def _kill(self, kind: Kind, passed_s: float) -> None:
        began = Kill(kind, round(passed_s, 1), time.time_ns() // 1_000_000)
        self.made.append(began)
        is_back = {"job": self._kill_job, "broker": self._kill_broker, "worker": self._kill_worker}[kind]()
        if is_back:
            self.made[-1] = replace(began, back_s=_since(began))
        self.note(f"killed the {kind} at {passed_s:.0f} s" + (f"; back after {self.made[-1].back_s} s" if is_back else ""))

    def _kill_job(self) -> bool:
        self.stream.kill()
        self.stream.start()
        return False

    def _kill_broker(self) -> bool:
        self.world.broker.kill()
        self.world.broker.start()
        return True

    def _kill_worker(self) -> bool:
        assert self.world.cluster is not None
        self.world.cluster.kill_worker(self._chance.choice(self.world.cluster.workers))
        self.world.cluster.start_worker()
        return True

    def _look_at_stream(self, passed_s: float) -> None:
        if self.stream.is_ended:
            self.note(f"the stream had ended at {passed_s:.0f} s:\n" + "\n".join(self.stream.lines[-5:]))
            self.ended.append(round(passed_s, 1))
            self.stream.start()
        last = next((n for n in reversed(range(len(self.made))) if self.made[n].kind == "job"), None)
        if last is None or self.made[last].back_s is not None or passed_s < self._asked_s + 1:
            return
        self._asked_s = passed_s  # not more often: a writer waits while its lock is looked at
        if self._engine.ingestion.current_writer() is not None:
            self.made[last] = replace(self.made[last], back_s=_since(self.made[last]))


def _since(kill: Kill) -> float:
    return round(time.time() - kill.at_ms / 1000, 1)


def with_recovery(kills: Sequence[Kill], begun: Sequence[tuple[int, int]], steps: Mapping[str, Sequence[tuple[int, int]]]) -> list[Kill]:
    """The kills with `step_s`, the seconds until every table had a step.

    Args:
        kills: the kills.
        begun: when each batch with rows was begun, in epoch ms, and its number, in their order.
        steps: for each table the time of the commit of each step, in epoch ms, and the newest batch in it, in their order.
    """
    return [replace(kill, step_s=_recovery_s(kill, begun, steps)) for kill in kills]


def _recovery_s(kill: Kill, begun: Sequence[tuple[int, int]], steps: Mapping[str, Sequence[tuple[int, int]]]) -> float | None:
    away_ms = round(1000 * (kill.back_s or 0)) if kill.kind == "broker" else 0
    batch = bisect_right(begun, kill.at_ms + away_ms, key=lambda one: one[0])
    if batch == len(begun):
        return None
    first = [next((at for at, newest in of_table if newest >= begun[batch][1]), None) for of_table in steps.values()]
    known = [at for at in first if at is not None]
    return round((max(known) - kill.at_ms) / 1000, 1) if len(known) == len(first) else None
