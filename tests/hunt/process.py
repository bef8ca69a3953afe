"""A process of the simulation: its calls to the store, its faults and its pauses."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.kills import Killed

FaultKind = Literal["kill", "pause", "timeout", "lost", "stale"]
Counted = Literal["any", "write", "point"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in an operation.

    Args:
        kind: `kill`: the process dies. `pause`: it waits until it is resumed. `timeout`: a call to the store fails and has no effect.
            `lost`: a write fails after its effect; a read fails as with `timeout`. `stale`: a read returns the version before the newest.
        on: which events of the operation are counted: calls that write (`write`), fault points (`point`), or all calls and fault
            points (`any`).
        nth: the number of the counted event at which the fault occurs, from 1.
    """

    kind: FaultKind
    on: Counted
    nth: int


MOST_CALLS = 5_000
"""The number of calls to the store after which an operation counts as endless."""


class Endless(Exception):
    """An operation makes more than `MOST_CALLS` calls to the store."""


class StoreFault(OSError):
    """The store did not answer."""


@dataclass
class Process:
    """One process, which runs one operation at a time.

    Args:
        number: its number.
        spelling: its spelling of the lake's root; processes with different spellings do not share locks.
        skew: the error of its clock, in ms.
        faults: the faults of the present operation.
        counts: the events of the present operation so far, by what faults count (`Fault.on`).
        calls: the calls to the store in the present operation.
        taken: the leases that other processes took while this one was paused.
        seen: the newest version of each table that it read or wrote, by the table's identity.
        occurred: the faults that have occurred in any operation.
        met_fault: whether a fault other than a kill or a pause has occurred in the present operation.
        thread: the thread of an operation that can be paused, until the operation has ended; else None.
    """

    number: int
    spelling: str = ""
    skew: int = 0
    faults: tuple[Fault, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    taken: set[str] = field(default_factory=set)
    seen: dict[str, int] = field(default_factory=dict)
    occurred: set[Fault] = field(default_factory=set)
    met_fault: bool = False
    thread: "PausableThread | None" = None

    def begin(self, faults: tuple[Fault, ...]) -> None:
        """Begin an operation with the given faults."""
        self.faults, self.counts, self.met_fault = faults, {"any": 0, "write": 0, "point": 0}, False
        self.taken.clear()
        self.calls = 0

    @property
    def is_paused(self) -> bool:
        return self.thread is not None

    def _fault_at(self, on: Counted) -> str | None:
        """Count a call or a fault point, and apply its fault: kill or pause the process, or return the kind of another fault."""
        self.counts["any"] += 1
        if on != "any":
            self.counts[on] += 1
        for fault in self.faults:
            if (fault.on == "any" or fault.on == on) and self.counts[fault.on] == fault.nth:
                self.occurred.add(fault)
                if fault.kind == "kill":
                    raise Killed("killed")
                if fault.kind == "pause":
                    self._pause()
                else:
                    self.met_fault = True
                    return fault.kind
        return None

    def _pause(self) -> None:
        paused = self.thread
        if paused is not None and paused.thread is threading.current_thread():
            paused.hand_back()

    def point(self) -> None:
        """Pass a fault point."""
        if self.faults:
            self._fault_at("point")

    def call(self, effect: Callable[[bool], Any], *, writes: bool = False) -> Any:
        """Call the store.

        Args:
            effect: does the call; its argument is true if it must return the version before the newest.
            writes: whether the call writes.

        Raises:
            StoreFault: a fault of the call, before or after its effect.
            Killed: the process is killed at the call.
            Endless: the operation has made too many calls.
        """
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise Endless(f"an operation called the store more than {MOST_CALLS} times")
        if not self.faults:
            return effect(False)
        fault = self._fault_at("write" if writes else "any")
        if fault == "timeout" or (fault == "lost" and not writes):
            raise StoreFault("the store did not answer in time")
        answer = effect(fault == "stale")
        if fault == "lost":
            raise StoreFault("the connection broke before the answer came")
        return answer


class PausableThread:
    """An operation in its own thread, so that it can be paused. Only one thread runs at a time."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self.is_done, self._dies = False, False
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)

    def start(self) -> None:
        """Start the operation; returns when it pauses or ends."""
        self.thread.start()
        self._back.acquire()

    def resume(self, *, dies: bool = False) -> None:
        """Resume after a pause; returns when the operation pauses again or ends. With `dies`, the process is killed instead."""
        self._dies = dies
        self._go.release()
        self._back.acquire()

    def hand_back(self) -> None:
        """Pause the operation: let the thread that started or resumed it go on, and wait for `resume`."""
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
