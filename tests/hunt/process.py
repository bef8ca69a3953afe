"""A process of the simulation: its calls, faults and pauses, and the answers of the store."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.kills import Killed

Kind = Literal["kill", "pause", "timeout", "lost", "stale"]
On = Literal["any", "write", "point"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault in an operation.

    Args:
        kind: the process dies; is held up until it is resumed; the store does not answer and has done nothing; it does not answer
            and has done it; a read shows the version before the newest.
        on: which calls are counted: all calls and points, calls that write, fault points.
        nth: at which of them.
    """

    kind: Kind
    on: On
    nth: int


MOST_CALLS = 5_000


class Endless(Exception):
    """An operation does not end."""


class StoreFault(OSError):
    """The store did not answer."""


@dataclass
class Process:
    """One process, which runs one operation at a time.

    Args:
        number: which.
        spelling: how it spells the lake's root.
        skew: how far its clock is off, in ms.
    """

    number: int
    spelling: str = ""
    skew: int = 0
    troubles: tuple[Trouble, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    """The leases that others took while it was paused."""
    seen: dict[str, int] = field(default_factory=dict)
    """The newest version of each table that it read or wrote, by the table's identity."""
    struck: bool = False
    """Whether the present operation met a fault."""
    thread: "Held | None" = None

    def begin(self, troubles: tuple[Trouble, ...]) -> None:
        self.troubles, self.counts, self.struck = troubles, {"any": 0, "write": 0, "point": 0}, False
        self.taken.clear()
        self.calls = 0

    @property
    def is_paused(self) -> bool:
        return self.thread is not None

    def _met(self, on: On) -> str | None:
        """Count a call, and raise its fault, if any."""
        self.counts["any"] += 1
        if on != "any":
            self.counts[on] += 1
        for trouble in self.troubles:
            if (trouble.on == "any" or trouble.on == on) and self.counts[trouble.on] == trouble.nth:
                if trouble.kind == "kill":
                    raise Killed("killed")
                if trouble.kind == "pause":
                    self._wait()
                else:
                    self.struck = True
                    return trouble.kind
        return None

    def _wait(self) -> None:
        held = self.thread
        if held is not None and held.thread is threading.current_thread():
            held.hand_back()

    def point(self) -> None:
        """Pass a fault point."""
        if self.troubles:
            self._met("point")

    calls: int = 0

    def call(self, effect: Callable[[bool], Any], *, writes: bool = False) -> Any:
        """Call the store; `effect` gets whether it must answer from one version ago."""
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise Endless(f"an operation asked the store more than {MOST_CALLS} times")
        if not self.troubles:
            return effect(False)
        met = self._met("write" if writes else "any")
        if met == "timeout" or (met == "lost" and not writes):
            raise StoreFault("the store did not answer in time")
        answer = effect(met == "stale")
        if met == "lost":
            raise StoreFault("the connection broke before the answer came")
        return answer


class Held:
    """An operation in a thread of its own, so that it can be paused. One thread runs at a time."""

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
            raise Killed("killed while it was held up")

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            work()
        finally:
            self.is_done = True
            self._back.release()
