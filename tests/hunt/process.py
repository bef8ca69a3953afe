"""A process of the simulation: its calls to the store, its faults and its pauses."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.kills import Killed

Kind = Literal["kill", "pause", "timeout", "lost", "stale"]
On = Literal["any", "write", "point"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in an operation.

    Args:
        kind: `kill`: the process dies. `pause`: it waits until it is resumed. `timeout`: a call fails and has no effect. `lost`: a call
            fails after its effect. `stale`: a read returns the version before the newest.
        on: what is counted: `any` for all calls and fault points, `write` for calls that write, `point` for fault points.
        nth: at which of them the fault occurs, from 1.
    """

    kind: Kind
    on: On
    nth: int


MOST_CALLS = 5_000


class Endless(Exception):
    """An operation makes too many calls."""


class StoreFault(OSError):
    """The store did not answer."""


@dataclass
class Process:
    """One process, which runs one operation at a time.

    Args:
        number: its number.
        spelling: its spelling of the lake's root; processes with different spellings do not share locks.
        skew: the error of its clock, in ms.
    """

    number: int
    spelling: str = ""
    skew: int = 0
    faults: tuple[Fault, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    """The leases that others took while it was paused."""
    seen: dict[str, int] = field(default_factory=dict)
    """The newest version of each table that it read or wrote, by the table's identity."""
    met_fault: bool = False
    """Whether a fault has occurred in the present operation."""
    thread: "PausableThread | None" = None

    def begin(self, faults: tuple[Fault, ...]) -> None:
        self.faults, self.counts, self.met_fault = faults, {"any": 0, "write": 0, "point": 0}, False
        self.taken.clear()
        self.calls = 0

    @property
    def is_paused(self) -> bool:
        return self.thread is not None

    def _count_call(self, on: On) -> str | None:
        """Count a call, and apply its fault: kill or pause the process, or return the kind of another fault."""
        self.counts["any"] += 1
        if on != "any":
            self.counts[on] += 1
        for fault in self.faults:
            if (fault.on == "any" or fault.on == on) and self.counts[fault.on] == fault.nth:
                if fault.kind == "kill":
                    raise Killed("killed")
                if fault.kind == "pause":
                    self._wait()
                else:
                    self.met_fault = True
                    return fault.kind
        return None

    def _wait(self) -> None:
        held = self.thread
        if held is not None and held.thread is threading.current_thread():
            held.hand_back()

    def point(self) -> None:
        """Pass a fault point."""
        if self.faults:
            self._count_call("point")

    calls: int = 0

    def call(self, effect: Callable[[bool], Any], *, writes: bool = False) -> Any:
        """Call the store. `effect` gets whether it must return the version before the newest."""
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise Endless(f"an operation called the store more than {MOST_CALLS} times")
        if not self.faults:
            return effect(False)
        met = self._count_call("write" if writes else "any")
        if met == "timeout" or (met == "lost" and not writes):
            raise StoreFault("the store did not answer in time")
        answer = effect(met == "stale")
        if met == "lost":
            raise StoreFault("the connection broke before the answer came")
        return answer


class PausableThread:
    """An operation in its own thread, so that it can be paused. Only one thread runs at a time."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self.is_done, self._dies = False, False
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)

    def start(self) -> None:
        """Run until it pauses or ends."""
        self.thread.start()
        self._back.acquire()

    def resume(self, *, dies: bool = False) -> None:
        """Resume after a pause."""
        self._dies = dies
        self._go.release()
        self._back.acquire()

    def hand_back(self) -> None:
        self._back.release()
        self._go.acquire()
        if self._dies:
            raise Killed("killed during a pause")

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            work()
        finally:
            self.is_done = True
            self._back.release()
