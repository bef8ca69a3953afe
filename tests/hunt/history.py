"""Histories: made from a seed, lived through, and cut down to what still shows a finding."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from platform_defs import faults
from platform_defs.engine.ingest import IngestError
from platform_defs.engine.ledger_error import LedgerError
from platform_defs.engine.progress import ProgressError
from platform_defs.resources.errors import LakeBusy, LakeError
from tests.hunt.adapters import SimEngine
from tests.hunt.model import Truth
from tests.hunt.process import Trouble
from tests.hunt.store import Event
from tests.hunt.world import ASSETS, NOON, RECIPES, Action, Finding, Setup, World
from tests.support.shopkeeping import DAY, HOUR, MINUTE

ROUNDS = 8
"""Plain retries after which everything must be closed and counted."""


@dataclass(frozen=True)
class History:
    """A history.

    Args:
        seed: what it was made from.
        setup: what stays the same.
        actions: what happens, in order.
    """

    seed: int
    setup: Setup
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.setup}", *(f"  {n}. {a}" for n, a in enumerate(self.actions, 1))])


# making

_KINDS = ("kill", "kill", "kill", "pause", "pause", "pause", "timeout", "lost", "lost", "stale")
_ON = ("any", "write", "write", "point")
_OFTEN = {
    "land": 9, "ingest": 9, "advance": 9, "tick": 5, "resume": 5, "drain": 2, "idle": 2, "watermark": 2, "maintain": 2, "due": 1,
    "restart": 2, "kill": 1, "touch": 1, "skew": 1, "away": 1, "window": 0.5, "drop": 0.5, "move": 1, "lose": 0.7, "restore": 1,
}  # fmt: skip


def generate(seed: int) -> History:
    """The history of a seed."""
    random = Random(seed)
    setup = Setup(
        sources=("a", "b") if random.random() < 0.8 else ("a", "b", "c"),
        assets=random.choice((("pairs",), ("counts",), ("counts", "tops"), ("pairs", "wides"), ASSETS)),
        owners=random.choice(("locks", "locks", "leases", "none")),
        max_step=random.choice((8, 1_000)),
        max_files=random.choice((1, 3)),
    )
    rare = random.sample(sorted(_OFTEN), 12)  # not every history has everything: what is short is more often whole
    often = {what: n for what, n in _OFTEN.items() if what in rare or n > 2}
    making = _Making(random, setup)
    whats = random.choices(list(often), list(often.values()), k=random.randint(6, 24))
    return History(seed, setup, tuple(action for what in whats if (action := making.action(what)) is not None))


@dataclass
class _Making:
    random: Random
    setup: Setup
    files: int = 0
    events: int = 0
    now: int = NOON
    home: int = 0

    def action(self, what: str) -> Action | None:
        make: Callable[[], tuple[Any, ...]] = getattr(self, f"_{what}", tuple)
        args = make()
        who = 0 if self.random.random() < 0.7 else 1
        return Action(what, who, args, self._troubles() if what in _TROUBLED else ())

    def _troubles(self) -> tuple[Trouble, ...]:
        random = self.random
        if random.random() < 0.55:
            return ()
        found: list[Trouble] = []
        for _ in range(1 if random.random() < 0.8 else 2):
            on = random.choice(_ON)
            nth = random.randint(1, {"any": 30, "write": 4, "point": 10}[on])
            found.append(Trouble(random.choice(_KINDS), on, nth))
        return tuple(found)

    def _source(self) -> str:
        return self.random.choice(self.setup.sources)

    def _land(self) -> tuple[Any, ...]:
        self.files += 1
        return self._source(), f"{self.files}.jsonl", tuple(self._event() for _ in range(self.random.randint(1, 4)))

    def _event(self) -> Event:
        random = self.random
        if self.events and random.random() < 0.15:
            uid = random.randint(1, self.events)  # the same event again, perhaps at the same time
        else:
            self.events += 1
            uid = self.events
        spread = random.choice((2 * MINUTE, 20 * MINUTE, 20 * MINUTE, 3 * HOUR, 3 * DAY)) if random.random() < 0.9 else 40 * 365 * DAY
        t = self.now - random.randint(-spread // 8, spread)
        return Event(uid, random.choice(("x", "x", "y", None)), t // 1_000 * 1_000, random.random() < 0.05)

    def _tick(self) -> tuple[int]:
        ms = self.random.choice((1_000, MINUTE, 20 * MINUTE, 70 * MINUTE, 3 * HOUR, 2 * DAY))
        self.now += ms
        return (ms,)

    def _skew(self) -> tuple[int]:
        return (self.random.choice((-DAY, -HOUR, -1_000, 0, 1_000, HOUR, 30 * DAY)),)

    def _touch(self) -> tuple[Any, ...]:
        return self._source(), f"{self.random.randint(1, max(1, self.files))}.jsonl"

    def _watermark(self) -> tuple[Any, ...]:
        return self._source(), self.now - self.random.choice((0, MINUTE, 10 * MINUTE, HOUR))

    def _advance(self) -> tuple[Any, ...]:
        until = None if self.random.random() < 0.85 else self.now - self.random.randint(0, 30) * MINUTE
        return self.random.choice(self.setup.assets), until

    def _away(self) -> tuple[Any, ...]:
        return (self._source(),)

    def _window(self) -> tuple[int]:
        return (self.random.choice(sorted(RECIPES)),)

    def _drop(self) -> tuple[str]:
        return (self.random.choice(self.setup.assets),)

    def _move(self) -> tuple[str]:
        self.home += 1
        return (f"mem://lake-{self.home}",)

    def _lose(self) -> tuple[Any, ...]:
        tables = ["ledger", *[f"{where}/{s}" for s in self.setup.sources for where in ("events", "quarantine")], *self.setup.assets]
        return self.random.choice(tables), self.random.random() < 0.4


_TROUBLED = frozenset(("ingest", "advance", "drain", "idle", "watermark", "maintain", "due"))

# living


@dataclass
class Life:
    """A history being lived."""

    history: History
    make: Callable[..., SimEngine] = SimEngine

    def __post_init__(self) -> None:
        self.world = World(self.history.setup, self.make)
        self.truth = Truth(self.world.store)
        self.meddled, self.damaged = False, False

    def __call__(self) -> Finding | None:
        faults.install(self._point)
        try:
            for action in self.history.actions:
                self._act(action)
            self._settle()
        except Finding as finding:
            return finding
        finally:
            self._end()
            faults.install(None)
        return None

    def _point(self, name: str) -> None:
        if self.world.current is not None:
            self.world.current.point()

    def _end(self) -> None:
        """No thread is left behind."""
        for process in self.world.processes.values():
            while process.thread is not None:
                try:
                    self.world.resume(process.number, dies=True)
                except Finding:
                    continue

    def _act(self, action: Action) -> None:
        world = self.world
        if action.what == "land":
            source, name, events = action.args
            self.truth.contents[source, name] = events
        self.meddled |= action.what in ("window", "drop")
        self.damaged |= action.what == "lose"
        world.act(action)
        self._check(action)

    def _check(self, action: object) -> None:
        truth, world = self.truth, self.world
        for number, struck, error in world.errors:
            self._check_error(number, struck, error)
        world.errors.clear()
        truth.take()
        truth.check_logs()
        if not self.meddled:
            for asset in ("pairs", "counts"):
                truth.check_table(asset, world.window)

    def _check_error(self, number: int, struck: bool, error: Exception) -> None:
        """An error is right where something went wrong; else it is a false alarm."""
        if struck or self.damaged:
            return
        others = self.history.setup.owners != "locks"
        other_lives = any(p.is_paused for p in self.world.processes.values() if p.number != number)
        right = {
            LakeBusy: lambda: other_lives or others,
            LakeError: lambda: others,
            LedgerError: lambda: others,
            ProgressError: lambda: self.meddled,
            IngestError: lambda: others,
        }
        if not right.get(type(error), lambda: False)():
            raise Finding(f"false alarm {type(error).__name__}", str(error))

    # the end: plain retries

    def _settle(self) -> None:
        world = self.world
        for number in list(world.processes):
            world.finish(number)
            self._check("finish")
        world.act(Action("restore"))
        world.away.clear()
        world.restart_all()
        for process in world.processes.values():
            process.skew = 0
        failed = "nothing was tried"
        for _ in range(ROUNDS):
            failed = self._round()
            if failed is None:
                break
        if failed is not None:
            raise Finding(f"stuck: {failed.split(':')[0]}", failed)
        self.truth.check_all_closed(self.history.setup.assets, world.window, world.away)

    def _round(self) -> str | None:
        """Ingest, drain, advance, as anybody would; returns what failed."""
        world, failed = self.world, None
        world.clock.pass_ms(MINUTE)
        works: list[tuple[str, Callable[[SimEngine], Any]]] = [("ingest", SimEngine.let_in), ("drain", SimEngine.drain)]
        works += [(f"advance {name}", lambda engine, name=name: engine.advance(name)) for name in self.history.setup.assets]
        for what, work in works:
            world.run(0, work)
            if world.outcome != "done":
                failed = failed or f"{what} ends in {world.outcome}"
                self._way_out(what, world.outcome)
            self._check(what)
        return failed

    def _way_out(self, what: str, outcome: str) -> None:
        """What the error says to do: delete the table, and what is made of it, and advance again."""
        if outcome.startswith("ProgressError") and what.startswith("advance"):
            for name in downstream(self.world.window, what.removeprefix("advance ")):
                self.world.store.drop(name)


def downstream(window: int, name: str) -> Iterator[str]:
    """An asset and what is made of it."""
    yield name
    for other in RECIPES[window].values():
        if name in other.inputs:
            yield from downstream(window, other.name)


def live(history: History, make: Callable[..., SimEngine] = SimEngine) -> Finding | None:
    """Live a history; returns what was found."""
    return Life(history, make)()


# cutting down


def shrink(history: History, finding: Finding, make: Callable[..., SimEngine] = SimEngine, tries: int = 600) -> tuple[History, Finding]:
    """The history with actions and troubles taken away as long as a finding of the same kind stays."""
    budget = tries
    size = max(1, len(history.actions) // 2)
    while size and budget > 0:
        n, cut = 0, False
        while n < len(history.actions) and budget > 0:
            fewer = replace(history, actions=history.actions[:n] + history.actions[n + size :])
            budget -= 1
            other = live(fewer, make)
            if other is not None and other.kind == finding.kind:
                history, finding, cut = fewer, other, True
            else:
                n += size
        size = size if cut and size == 1 else size // 2
    for n, action in enumerate(history.actions):
        for simpler in _simpler(action):
            actions = (*history.actions[:n], simpler, *history.actions[n + 1 :])
            other = live(replace(history, actions=actions), make)
            if other is not None and other.kind == finding.kind:
                history, finding = replace(history, actions=actions), other
                break
    return history, finding


def _simpler(action: Action) -> Iterator[Action]:
    if action.troubles:
        yield replace(action, troubles=())
        for trouble in action.troubles:
            if len(action.troubles) > 1:
                yield replace(action, troubles=(trouble,))
    if action.what == "land":
        source, name, events = action.args
        for n in range(1, len(events)):
            yield replace(action, args=(source, name, events[n:]))
            yield replace(action, args=(source, name, events[:n]))
