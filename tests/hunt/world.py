"""The simulated world: a store, a clock, processes with the engine in them, and the effects of a history's actions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assets.contracts import BoundedOutOfOrderness, DerivedAsset, SourceContract
from operators.windows import Tumbling
from platform_defs.engine.ingest.ingest import IngestError
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.lake.errors import LakeBusy, LakeError
from platform_defs.engine.ledger.errors import LedgerError
from tests.hunt.adapters import SimEngine
from tests.hunt.daemon import Daemon
from tests.hunt.lake import SimLake
from tests.hunt.operators import SimCount, SimJoin
from tests.hunt.process import Fault, PausableThread, Process, StoreFault
from tests.hunt.store import LandedFile, Store
from tests.support.clock import Clock
from tests.support.kills import Killed
from tests.support.small_sources import HOUR, MINUTE, ROW, START

NOON = START + 12 * HOUR
SOURCES = ("a", "b", "c")
ASSETS = ("pairs", "counts", "tops", "wides")
EXPECTED = (StoreFault, LakeBusy, LakeError, LedgerError, ProgressError, IngestError)
"""The errors that an operation may raise; any other is a finding."""


def _source(name: str, **changes: Any) -> SourceContract:
    given = {"name": name, "schema": ROW, "event_time": "ts", "watermark": BoundedOutOfOrderness("1 minute"), "future_skew": "24 hours"}
    return SourceContract(**(given | changes))


CONTRACTS: Mapping[str, SourceContract] = {
    "a": _source("a", unique_key=("v",), idle_timeout="1 hour", duplicate_horizon="2 hours"),
    "b": _source("b", idle_timeout="1 hour"),
    "c": _source("c"),
}


def _assets(window: int) -> dict[str, DerivedAsset]:
    assets = [
        DerivedAsset(name="pairs", inputs=("a", "b"), operator=SimJoin(on="k", lower="-5 minutes", upper="10 minutes", how="full")),
        DerivedAsset(name="counts", inputs=("a",), operator=_count(window, 5 * MINUTE)),
        DerivedAsset(name="tops", inputs=("counts",), operator=_count(60 * MINUTE, 0)),
        DerivedAsset(name="wides", inputs=("pairs",), operator=_count(30 * MINUTE, 0)),
    ]
    return {asset.name: asset for asset in assets}


def _count(window: int, lateness: int) -> SimCount:
    return SimCount(by="k", window=Tumbling(size=window), aggregates={"n": "count(*)"}, allowed_lateness=lateness)


RECIPES: Mapping[int, Mapping[str, DerivedAsset]] = {n: _assets(n * MINUTE) for n in (10, 15)}
"""The assets by name, for each size of the windows of `counts` in minutes."""


@dataclass(frozen=True)
class Setup:
    """The fixed parameters of a history.

    Args:
        sources: the configured sources.
        assets: the configured assets.
        owners: how processes exclude each other: by `locks` of the operating system, by `leases` that expire during a pause, or not at
            all (`none`: the processes spell the lake's root differently).
        max_step: about how many rows a step may read.
        max_files: how many files of a source a micro-batch may read.
    """

    sources: tuple[str, ...] = ("a", "b")
    assets: tuple[str, ...] = ("pairs",)
    owners: str = "locks"
    max_step: int = 1_000
    max_files: int = 3


@dataclass(frozen=True)
class Action:
    """One action of a history."""

    kind: str
    who: int = 0
    args: tuple[Any, ...] = ()
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        faults = "".join(f" [{t.kind} at {t.on} {t.nth}]" for t in self.faults)
        return f"{self.kind}({', '.join(map(str, self.args))}) by process {self.who}{faults}"


class Finding(Exception):
    """A violated law."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@dataclass
class World:
    """A world.

    Args:
        setup: the fixed parameters.
        make: makes the engine of a process.
        store: the state that outlives processes.
        clock: the wall clock; a process adds its own skew.
        away: the sources that are left out of the configuration.
        window: the size of the windows of `counts`, in minutes.
        processes: the processes by number.
        engines: the engine of each process that has made one.
        current: the process that runs.
        outcome: how the last operation ended: `done`, `killed`, `paused`, or the type and text of an error.
        failed: findings of operations, raised in the main thread.
    """

    setup: Setup
    make: Callable[..., SimEngine] = SimEngine
    store: Store = field(default_factory=Store)
    clock: Clock = field(default_factory=lambda: Clock(NOON))
    away: set[str] = field(default_factory=set)
    window: int = 10
    processes: dict[int, Process] = field(default_factory=dict)
    engines: dict[int, SimEngine] = field(default_factory=dict)
    current: Process | None = None
    outcome: str = ""
    failed: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.daemon = Daemon(self.clock)
        self.process(0)
        self.process(1)

    def process(self, number: int) -> Process:
        """Return a process; it is started first if it does not run."""
        if number not in self.processes:
            self.processes[number] = Process(number, f"spelling {number}" if self.setup.owners == "none" else "")
        return self.processes[number]

    def engine(self, number: int) -> SimEngine:
        """Return the engine of a process; the first call makes it, with the configuration at that time."""
        if number not in self.engines:
            process = self.process(number)
            lake = SimLake(self.store.home, store=self.store, process=process, shares_leases=self.setup.owners == "leases")
            sources = {name: CONTRACTS[name] for name in self.setup.sources if name not in self.away}
            assets = {n: a for n, a in RECIPES[self.window].items() if n in self.setup.assets and self.is_configured(n)}
            folders = {name: f"{self.store.home}/landing/{name}" for name in sources}
            self.engines[number] = self.make(
                lake, sources, assets, lambda: None, lambda: self.clock() + process.skew, self.setup.max_step, folders, self.setup.max_files
            )
        return self.engines[number]

    def is_configured(self, name: str) -> bool:
        """Whether a source, or every source of an asset, is configured."""
        if name in CONTRACTS:
            return name not in self.away
        return all(self.is_configured(of) for of in RECIPES[self.window][name].inputs)

    # the outcome of operations

    def run(self, number: int, work: Callable[[SimEngine], Any], faults: Sequence[Fault] = ()) -> Any:
        """Run an operation of a process, in a thread of its own if it may be paused."""
        self.finish(number)
        process = self.process(number)
        process.begin(tuple(faults))
        self.outcome = "paused"
        if not any(t.kind == "pause" for t in faults):
            return self._guarded(process, work)
        process.thread = PausableThread(lambda: self._guarded(process, work))
        self._hand_over(process, process.thread.start)
        return None

    def _hand_over(self, process: Process, go: Callable[[], None]) -> None:
        before, self.current = self.current, process
        go()
        self.current = before
        if process.thread is not None and process.thread.is_done:
            process.thread = None
        self.raise_failed()

    def raise_failed(self) -> None:
        """Raise the error of a thread."""
        if self.failed:
            raise self.failed.pop()

    def _guarded(self, process: Process, work: Callable[[SimEngine], Any]) -> Any:
        self.current = process
        try:
            answer = work(self.engine(process.number))
            self.outcome = "done"
            return answer
        except Killed:
            self.outcome = "killed"
            self.restart(process.number)
        except EXPECTED as error:
            self.outcome = f"{type(error).__name__}: {error}"
            self.record_error(process, error)
        except Finding as finding:
            self.failed.append(finding)
        except Exception as error:
            self.failed.append(_crash(error))
        if runs_in_main_thread(process):
            self.raise_failed()
        return None

    def record_error(self, process: Process, error: Exception) -> None:
        """Record the error of an operation. It is checked after the action."""
        self.errors.append((process.number, process.met_fault, error))

    daemon: Daemon = field(init=False)
    errors: list[tuple[int, bool, Exception]] = field(default_factory=list)

    def resume(self, number: int, *, dies: bool = False) -> None:
        """Resume a paused process, or kill it."""
        process = self.process(number)
        if process.thread is not None:
            thread = process.thread
            self._hand_over(process, lambda: thread.resume(dies=dies))

    def finish(self, number: int) -> None:
        """Resume a paused process until its operation ends."""
        while self.process(number).is_paused:
            self.resume(number)

    def restart(self, number: int) -> None:
        """Restart a process: it loses all state in memory."""
        self.engines.pop(number, None)
        process = self.process(number)
        for key in [key for key, owner in self.store.locks.items() if owner is process]:
            del self.store.locks[key]
        process.taken.clear()
        process.seen.clear()

    def restart_all(self) -> None:
        for number in list(self.processes):
            if self.process(number).is_paused:
                self.resume(number, dies=True)
            self.restart(number)

    # actions

    def act(self, action: Action) -> None:
        """Perform an action."""
        getattr(self, f"_{action.kind}")(action)

    def _land(self, action: Action) -> None:
        source, name, events = action.args
        self.store.land(LandedFile(source, name, self.clock(), 10 * len(events), events))

    def _touch(self, action: Action) -> None:
        source, name = action.args
        if (source, name) in self.store.landing:
            self.store.touch(source, name, self.clock())

    def _tick(self, action: Action) -> None:
        self.clock.pass_ms(action.args[0])

    def _skew(self, action: Action) -> None:
        self.process(action.who).skew = action.args[0]

    def _ingest(self, action: Action) -> None:
        self.run(action.who, lambda engine: engine.ingest(), action.faults)

    def _watermark(self, action: Action) -> None:
        source, watermark = action.args
        self.finish(action.who)
        if source in self.engine(action.who).sources:
            self.run(action.who, lambda engine: engine.ingestion.control_batches.watermark({source: watermark}), action.faults)

    def _idle(self, action: Action) -> None:
        self.run(action.who, lambda engine: engine.ingestion.control_batches.record_idle_sources(), action.faults)

    def _drain(self, action: Action) -> None:
        self.run(action.who, lambda engine: engine.drain(), action.faults)

    def _advance(self, action: Action) -> None:
        asset, until = action.args
        self.run(action.who, lambda engine: asset in engine.assets and engine.advance(asset, until), action.faults)

    def _rebuild_days(self, action: Action) -> None:
        asset, first, last = action.args
        self.run(action.who, lambda engine: asset in engine.assets and engine.rebuild_days(asset, first, last), action.faults)

    def _rebuild_tables(self, action: Action) -> None:
        asset = action.args[0]
        self.run(action.who, lambda engine: asset in engine.assets and list(engine.rebuild_tables([asset], downstream=True)), action.faults)

    def _account(self, action: Action) -> None:
        asset = action.args[0]
        self.run(action.who, lambda engine: asset in engine.assets and self.check_law(engine, asset), action.faults)

    def check_law(self, engine: SimEngine, asset: str) -> None:
        violations = [account for account in engine.accounts.days(asset) if not account.holds]
        if violations and not self.store.lost:
            raise Finding(f"law broken for {asset}", "; ".join(map(str, violations[:3])))

    def _maintain(self, action: Action) -> None:
        self.run(action.who, lambda engine: engine.maintain(), action.faults)

    def _examine(self, action: Action) -> None:
        def look(engine: SimEngine) -> object:
            return engine.pending.all_days(), [engine.pending.describe_progress(name) for name in engine.assets]

        self.run(action.who, look, action.faults)

    def _resume(self, action: Action) -> None:
        self.resume(action.who)

    def _kill(self, action: Action) -> None:
        self.resume(action.who, dies=True)
        self.restart(action.who)

    def _restart(self, action: Action) -> None:
        self.finish(action.who)
        self.restart(action.who)

    def _away(self, action: Action) -> None:
        """A source leaves the configuration, or returns; processes are restarted."""
        self.restart_all()
        self.away ^= {action.args[0]}

    def _window(self, action: Action) -> None:
        """The parameters of an asset change; processes are restarted."""
        self.restart_all()
        self.window = action.args[0]

    def _daemon(self, action: Action) -> None:
        """Dagster's daemon evaluates a sensor, and launches the run that it requests."""
        self.finish(action.who)
        self.daemon.tick(action.args[0], lambda work, faults: self._run_for_daemon(action.who, work, faults), action.faults)

    def _run_for_daemon(self, number: int, work: Callable[[SimEngine], Any], faults: Sequence[Fault]) -> tuple[str, Any]:
        answer = self.run(number, work, faults)
        return self.outcome, answer

    def _drop(self, action: Action) -> None:
        """A table is deleted, as an error message advises."""
        self.store.drop(action.args[0])

    def _move(self, action: Action) -> None:
        """The lake's folder is renamed, with its landing folders."""
        self.restart_all()
        self.store.home = action.args[0]

    def _lose(self, action: Action) -> None:
        """A power cut: every process dies, and a table loses its newest commit."""
        self.restart_all()
        table, torn = action.args
        self.store.lose(table, torn=torn)

    def _restore(self, action: Action) -> None:
        """The backup is restored; all processes are stopped meanwhile."""
        self.restart_all()
        for table in self.store.restore():
            if table.startswith("events/"):
                raise Finding("written after a loss", f"{table} lacked its last commit, and other commits were made")


def runs_in_main_thread(process: Process) -> bool:
    return process.thread is None


def _crash(error: Exception) -> Finding:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    frame = next((f for f in reversed(frames) if "/hunt/" not in f.filename), frames[-1])
    finding = Finding(f"crash {type(error).__name__} in {frame.name}", f"{error} ({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno})")
    finding.__cause__ = error
    return finding
