"""Histories: sequences of actions, made from a seed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

from assets.days import day_of
from tests.hunt.process import Fault
from tests.hunt.store import Event
from tests.hunt.world import ASSETS, NOON, RECIPES, Action, Setup
from tests.support.small_sources import DAY, HOUR, MINUTE


@dataclass(frozen=True)
class History:
    """A history.

    Args:
        seed: the seed from which it was generated.
        setup: its fixed parameters.
        actions: its actions, in order.
    """

    seed: int
    setup: Setup
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.setup}", *(f"  {n}. {a}" for n, a in enumerate(self.actions, 1))])


_FAULT_KINDS = ("kill", "kill", "kill", "timeout", "lost", "lost", "stale")
_COUNTED = ("any", "write", "write", "point")
_MAX_NTH = {"any": 24, "write": 4, "point": 10}
_WEIGHTS: dict[str, float] = {
    **{"land": 9, "ingest": 9, "advance": 9, "tick": 4, "account": 4, "meanwhile": 6},
    **{
        "drain": 2,
        "idle": 2,
        "watermark": 2,
        "maintain": 2,
        "examine": 1,
        "daemon": 3,
        "restart": 2,
        "resume": 2,
        "kill": 1,
        "touch": 1,
        "skew": 1,
    },
    **{"away": 1, "window": 0.5, "drop": 0.5, "rebuild_days": 1, "rebuild_tables": 1, "move": 1, "lose": 0.3, "restore": 0.5},
    **{"anew": 2.1, "cut": 2.1, "late": 3, "outage": 2.1, "audit": 2.1, "usurped": 2.1},
}
"""How often each kind of action is chosen. `World` has a method for each action, `_Generator` one for each story of several actions."""
_MEANWHILE = ("land", "ingest", "ingest", "advance", "advance", "drain", "maintain", "tick", "kill", "account", "watermark")
_PAUSABLE = ("account", "account", "rebuild_days", "rebuild_tables", "advance", "advance", "ingest", "maintain", "drain")
_WITH_FAULTS = frozenset(
    ("ingest", "advance", "drain", "idle", "watermark", "maintain", "examine", "account", "rebuild_days", "rebuild_tables", "daemon")
)


def generate(seed: int, only: Sequence[str] = (), assets: Sequence[str] = ()) -> History:
    """The history of a seed; `only` limits the kinds of actions, `assets` the assets."""
    random = Random(seed)
    setup = Setup(
        sources=("a", "b") if random.random() < 0.8 else ("a", "b", "c"),
        assets=tuple(assets) or random.choice((("pairs",), ("counts",), ("counts", "tops"), ("pairs", "wides"), ASSETS)),
        owners=random.choice(("locks", "locks", "leases", "none")),
        max_step=random.choice((8, 1_000)),
        max_files=random.choice((1, 3)),
    )
    rare = random.sample(sorted(_WEIGHTS), 12)  # a history has a few kinds only, so that most findings are short
    weights = {kind: n for kind, n in _WEIGHTS.items() if (kind in only if only else kind in rare or n > 2)}
    generator = _Generator(random, setup)
    kinds = random.choices(list(weights), list(weights.values()), k=random.randint(2, 5) if only else random.randint(3, 10))
    return History(seed, setup, tuple(action for kind in kinds for action in generator.actions(kind)))


@dataclass
class _Generator:
    """Makes the actions of a history: it numbers files, events and lakes, and knows the time and the window that earlier actions set."""

    random: Random
    setup: Setup
    files: int = 0
    events: int = 0
    now: int = NOON
    home: int = 0
    window: int = 10

    def actions(self, kind: str) -> Iterator[Action]:
        """One action, or a story of several related ones."""
        who = 0 if self.random.random() < 0.7 else 1
        story: Callable[[int], Iterator[Action]] | None = getattr(self, f"_story_{kind}", None)
        if story is None:
            yield self._action(kind, who, self._faults() if kind in _WITH_FAULTS else ())
        else:
            yield from story(who)

    def _story_meanwhile(self, who: int) -> Iterator[Action]:
        """A process is paused, others act meanwhile, and it resumes."""
        random = self.random
        on = random.choice(_COUNTED)
        pauses = [Fault("pause", on, nth) for nth in sorted(random.sample(range(1, _MAX_NTH[on] + 1), random.randint(1, 3)))]
        first = random.choice(_PAUSABLE)
        yield self._action(first, who, tuple(pauses))
        for _ in pauses:
            for _ in range(random.randint(1, 3)):
                yield self._action(first if random.random() < 0.3 else random.choice(_MEANWHILE), 1 - who, ())
            yield Action("resume", who)

    def _story_anew(self, who: int) -> Iterator[Action]:
        """A table is deleted and recomputed, perhaps with other parameters, and then advanced, as are its readers."""
        table = self.random.choice([name for name in self.setup.assets if name in ("pairs", "counts")])
        yield from self._finalize_results(who)
        if self.random.random() < 0.7:
            yield self._action("window", who, ())
        yield Action("drop", who, (table,))
        for kind in ("advance", "land", "ingest", "advance"):
            yield Action("advance", who, (table, None)) if kind == "advance" else self._action(kind, who, ())
        yield from (Action("advance", who, (name, None)) for name in self.setup.assets)

    def _finalize_results(self, who: int) -> Iterator[Action]:
        """Every table finalizes some results."""
        for source in self.setup.sources:
            self.files, self.events = self.files + 1, self.events + 3
            times = (self.now - self.random.randint(3, 9) * HOUR, self.now - 2 * HOUR, self.now)
            rows = tuple(Event(self.events - n, "x", t) for n, t in enumerate(times))
            yield Action("land", who, (source, f"{self.files}.jsonl", rows))
        yield Action("ingest", who)
        yield from (Action("advance", who, (name, None)) for name in self.setup.assets)

    def _story_cut(self, who: int) -> Iterator[Action]:
        """An ingest is killed, its source leaves the configuration, other sources are ingested, and the source returns."""
        land = self._action("land", who, ())
        yield land
        yield Action("ingest", who, (), (Fault("kill", self.random.choice(("point", "write")), self.random.randint(2, 4)),))
        yield Action("away", who, land.args[:1])
        for kind in ("land", "land", "ingest"):
            yield self._action(kind, who, ())
        yield Action("away", who, land.args[:1])
        yield self._action("ingest", who, ())

    def _story_usurped(self, who: int) -> Iterator[Action]:
        """An ingest leaves uncommitted rows in a log. While one writer that has read them is paused, another reuses or deletes them."""
        random, other = self.random, 1 - who
        land = self._action("land", who, ())
        yield land
        kill = (Fault("kill", "point", random.randint(2, 5)),)
        if random.random() < 0.5:
            yield self._action("ingest", who, (Fault("pause", "point", random.randint(2, 5)),))
            yield self._action("land", other, ()) if random.random() < 0.5 else self._action("tick", other, ())
            yield self._action(random.choice(("ingest", "drain", "watermark")), other, kill)
        else:
            pause = random.choice((Fault("pause", "any", random.randint(4, 30)), Fault("pause", "point", random.randint(1, 4))))
            yield self._action("ingest", who, kill)
            yield self._action(random.choice(("drain", "watermark", "ingest")), other, (pause,))
            yield self._action("ingest", who, ())
            who = other
        yield Action("resume", who)

    def _story_late(self, who: int) -> Iterator[Action]:
        """Rows arrive behind the closed ranges, and every downstream table is advanced."""
        for kind in ("land", "ingest"):
            yield self._action(kind, who, ())
        for name in self.setup.assets:
            yield Action("advance", who, (name, None), self._faults())
            yield Action("account", 1 - who, (name,))

    def _story_audit(self, who: int) -> Iterator[Action]:
        """An account is paused, and its inputs change meanwhile."""
        random = self.random
        pauses = tuple(Fault("pause", "any", nth) for nth in sorted(random.sample(range(3, 24), 2)))
        yield self._action("land", who, ())
        yield self._action("account", who, pauses)
        for kind in random.choice((("ingest",), ("ingest", "advance"), ("advance",), ("ingest", "drain", "advance"), ("rebuild_tables",))):
            yield self._action(kind, 1 - who, ())
        yield Action("resume", who)
        yield self._action("ingest", 1 - who, ())
        yield Action("resume", who)

    def _story_outage(self, who: int) -> Iterator[Action]:
        """A power cut loses a commit, other actions follow without it, and the backup is restored."""
        if self.random.random() < 0.5:
            yield from (self._action(kind, who, ()) for kind in ("land", "ingest"))
        lost = f"events/{self._source()}", self.random.random() < 0.4
        yield Action("lose", who, lost) if self.random.random() < 0.5 else self._action("lose", who, ())
        if self.random.random() < 0.5:
            yield from (Action("advance", who, (name, None)) for name in self.setup.assets)
        for _ in range(self.random.randint(0, 2)):
            yield self._action(self.random.choice(("ingest", "advance", "maintain", "drain", "account", "rebuild_days")), who, ())
        yield Action("restore", who)

    def _action(self, kind: str, who: int, faults: tuple[Fault, ...]) -> Action:
        make: Callable[[], tuple[Any, ...]] = getattr(self, f"_{kind}", tuple)
        return Action(kind, who, make(), faults)

    def _faults(self) -> tuple[Fault, ...]:
        random = self.random
        if random.random() < 0.6:
            return ()
        found: list[Fault] = []
        for _ in range(1 if random.random() < 0.8 else 2):
            on = random.choice(_COUNTED)
            found.append(Fault(random.choice(_FAULT_KINDS), on, random.randint(1, _MAX_NTH[on])))
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

    def _account(self) -> tuple[str]:
        return (self.random.choice(self.setup.assets),)

    def _away(self) -> tuple[Any, ...]:
        return (self._source(),)

    def _window(self) -> tuple[int]:
        self.window = self.random.choice([n for n in RECIPES if n != self.window])
        return (self.window,)

    def _daemon(self) -> tuple[str]:
        return (self.random.choice(("new_input", "ledger_moved")),)

    def _drop(self) -> tuple[str]:
        return (self.random.choice(self.setup.assets),)

    def _rebuild_tables(self) -> tuple[str]:
        return (self.random.choice(self.setup.assets),)

    def _rebuild_days(self) -> tuple[Any, ...]:
        last = day_of(self.now)
        return self.random.choice(self.setup.assets), last - timedelta(days=self.random.choice((0, 1, 2, 30_000))), last

    def _move(self) -> tuple[str]:
        self.home += 1
        return (f"s3a://lake-{self.home}",)

    def _lose(self) -> tuple[Any, ...]:
        tables = ["ledger", *[f"{where}/{s}" for s in self.setup.sources for where in ("events", "quarantine")], *self.setup.assets]
        return self.random.choice(tables), self.random.random() < 0.4
