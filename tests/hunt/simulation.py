"""Runs a history, and shrinks a history with a finding to fewer actions that still cause it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from platform_defs.engine import faults
from platform_defs.engine.ingest.ingest import IngestError
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.lake.errors import LakeBusy, LakeError, MissingMetadataError
from platform_defs.engine.ledger.errors import LedgerError
from tests.hunt.adapters import SimEngine
from tests.hunt.history import History
from tests.hunt.model import ExpectedLake
from tests.hunt.world import Action, Finding, World
from tests.support.small_sources import MINUTE

ROUNDS = 8
"""Rounds without faults after which every row must be finalized and counted."""


TICKS = 10
"""Ticks of the sensors after which every file must be ingested."""


@dataclass
class Simulation:
    """The simulation of a history."""

    history: History
    make: Callable[..., SimEngine] = SimEngine

    def __post_init__(self) -> None:
        self.world = World(self.history.setup, self.make)
        self.expected = ExpectedLake(self.world.store)
        self.reconfigured, self.damaged = False, False

    def __call__(self) -> Finding | None:
        faults.install(self._point)
        try:
            for action in self.history.actions:
                self._act(action)
            self._finish()
        except Finding as finding:
            return finding
        finally:
            self._end_threads()
            faults.install(None)
        return None

    def _point(self, name: str) -> None:
        if self.world.current is not None:
            self.world.current.point()

    def _end_threads(self) -> None:
        """End all threads."""
        for process in self.world.processes.values():
            while process.thread is not None:
                try:
                    self.world.resume(process.number, dies=True)
                except Finding:
                    continue

    def _act(self, action: Action) -> None:
        world = self.world
        if action.kind == "land":
            source, name, events = action.args
            self.expected.contents[source, name] = events
        self.reconfigured |= action.kind in ("window", "drop", "rebuild_tables")
        self.damaged |= action.kind == "lose"
        world.act(action)
        self._check()

    def _check(self) -> None:
        """Check the errors of the last operation, the ledger, the logs, and the tables `pairs` and `counts`."""
        expected, world = self.expected, self.world
        for number, met_fault, error in world.errors:
            self._check_error(number, met_fault, error)
        world.errors.clear()
        expected.read_ledger()
        expected.check_logs()
        for asset in ("pairs", "counts"):
            expected.check_table(asset)

    def _check_error(self, number: int, met_fault: bool, error: Exception) -> None:
        """Raise a finding unless an error has a cause: a fault, a lost commit, another writer or changed parameters."""
        if met_fault or self.damaged:
            return
        can_overtake = self.history.setup.owners != "locks"
        is_other_paused = any(p.is_paused for p in self.world.processes.values() if p.number != number)
        is_expected: dict[type[Exception], bool] = {
            LakeBusy: is_other_paused or can_overtake,
            LakeError: can_overtake,
            MissingMetadataError: can_overtake,
            LedgerError: can_overtake,
            ProgressError: self.reconfigured,
            IngestError: can_overtake,
        }
        if not is_expected.get(type(error), False):
            raise Finding(f"false alarm {type(error).__name__}", str(error))

    def _finish(self) -> None:
        world = self.world
        for number in list(world.processes):
            world.finish(number)
            self._check()
        world.act(Action("restore"))
        world.away.clear()
        world.restart_all()
        for process in world.processes.values():
            process.skew = 0
        if self.history.seed % 2:
            self._run_sensors()
        failed = "no round was run"
        for _ in range(ROUNDS):
            failed = self._round()
            if failed is None:
                break
        if failed is not None:
            raise Finding(f"stuck: {failed.split(':')[0]}", failed)
        self.expected.check_complete(self.history.setup.assets, world.window)

    def _run_sensors(self) -> None:
        """Let the sensors alone ingest every file and advance every table to its watermark."""
        world = self.world
        for _ in range(TICKS):
            world.clock.pass_ms(20 * MINUTE)
            launched = len(world.daemon.records)
            for sensor in ("new_input", "ledger_moved"):
                world.act(Action("daemon", 0, (sensor,)))
                self._check()
            if launched == len(world.daemon.records) and world.daemon.is_quiet():
                break
        self.expected.check_all_read()
        behind = [
            name
            for name in self.history.setup.assets
            if world.run(0, lambda engine, name=name: engine.pending.describe_progress(name)["lag_ms"])
        ]
        behind = [name for name in behind if not self._is_refused(name)]
        if behind and not self.reconfigured:
            raise Finding("stuck: sensors", f"{', '.join(behind)} are behind their watermark after {TICKS} ticks")

    def _is_refused(self, name: str) -> bool:
        """Whether a loss is why an asset is not advanced: the newest run failed, and the asset's error has the command that repairs it.

        The asset has read a step of its input. The input has lost this step, and computed it again from other rows. The new step may
        correct results that the asset has already used, so the asset must not go on. The sensors request no rebuild; `_follow_advice`
        runs the command later.
        """
        if not self.damaged or not self.world.daemon.is_failing("advance"):
            return False
        self.world.run(0, lambda engine: engine.advance(name))
        return self.world.outcome.startswith("ProgressError") and f"`tidemark rebuild {name} --downstream`" in self.world.outcome

    def _round(self) -> str | None:
        """Ingest, drain, advance and account; returns the first failure."""
        world, failed = self.world, None
        world.clock.pass_ms(MINUTE)
        works: list[tuple[str, Callable[[SimEngine], Any]]] = [("ingest", SimEngine.ingest), ("drain", SimEngine.drain)]
        works += [(f"advance {name}", lambda engine, name=name: engine.advance(name)) for name in self.history.setup.assets]
        works += [(f"account {name}", lambda engine, name=name: world.check_law(engine, name)) for name in self.history.setup.assets]
        for label, work in works:
            world.run(0, work)
            if world.outcome != "done":
                failed = failed or f"{label} ends in {world.outcome}"
                self._follow_advice(label, world.outcome)
            self._check()
        return failed

    def _follow_advice(self, label: str, outcome: str) -> None:
        """Follow the advice of a `ProgressError`: recompute the table and its downstream tables."""
        if outcome.startswith("ProgressError"):
            name = label.split()[1]
            self.world.run(0, lambda engine: list(engine.rebuild_tables([name], downstream=True)))


def simulate(history: History, make: Callable[..., SimEngine] = SimEngine) -> Finding | None:
    """Run a history; returns its finding, if any."""
    return Simulation(history, make)()


def shrink(history: History, finding: Finding, make: Callable[..., SimEngine] = SimEngine, tries: int = 600) -> tuple[History, Finding]:
    """Remove actions, and then faults and landed rows, as long as the history still causes a finding of the same kind.

    Args:
        history: the history.
        finding: its finding.
        make: makes an engine, as for `Simulation`.
        tries: the most histories that are simulated.
    """
    shrinking = _Shrinking(history, finding, make, tries)
    shrinking.remove_actions()
    shrinking.simplify_actions()
    return shrinking.history, shrinking.finding


@dataclass
class _Shrinking:
    """The shortest history that was found, its finding, and the number of simulations that may still be run."""

    history: History
    finding: Finding
    make: Callable[..., SimEngine]
    tries: int

    def remove_actions(self) -> None:
        """Remove half of the actions at once, then fewer, and at last one by one."""
        size = max(1, len(self.history.actions) // 2)
        while size and self.tries > 0:
            n, is_shorter = 0, False
            while n < len(self.history.actions) and self.tries > 0:
                if self._replace(n, n + size, ()):
                    is_shorter = True
                else:
                    n += size
            size = size if is_shorter and size == 1 else size // 2

    def simplify_actions(self) -> None:
        """Remove faults and landed rows of each action."""
        for n in range(len(self.history.actions)):
            while any(self._replace(n, n + 1, (simpler,)) for simpler in _simpler(self.history.actions[n])):
                pass  # it may be simplified further

    def _replace(self, start: int, end: int, actions: tuple[Action, ...]) -> bool:
        """Replace the actions from `start` to before `end`, if that causes a finding of the same kind; returns whether it does."""
        if self.tries <= 0:
            return False
        self.tries -= 1
        shorter = replace(self.history, actions=(*self.history.actions[:start], *actions, *self.history.actions[end:]))
        finding = simulate(shorter, self.make)
        if finding is None or finding.kind != self.finding.kind:
            return False
        self.history, self.finding = shorter, finding
        return True


def _simpler(action: Action) -> Iterator[Action]:
    """The action with fewer faults, or with fewer landed rows."""
    if action.faults:
        yield replace(action, faults=())
        for fault in action.faults:
            if len(action.faults) > 1:
                yield replace(action, faults=(fault,))
    if action.kind == "land":
        source, name, events = action.args
        for n in range(1, len(events)):
            yield replace(action, args=(source, name, events[n:]))
            yield replace(action, args=(source, name, events[:n]))
