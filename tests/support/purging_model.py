"""A naive simulation of Flink's `WindowOperator` with a `PurgingTrigger`, one row and one timer at a time, in plain Python.

Rows reach the operator as after Flink's sort by event time: a row ahead of the watermark waits until the watermark reaches its time;
another row is processed at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from operators import EveryInterval, EveryRows
from operators.windows import Aligned
from tests.support.windows_model import Span, windows_at

END_OF_TIME = 1 << 60


@dataclass(frozen=True)
class Row:
    """A row: its number, its event time, and the watermark before its batch (None: there is none yet)."""

    id: int
    t: int
    watermark: int | None


@dataclass(frozen=True)
class Firing:
    """A result: the window, the number of the firing, the time of the watermark at which it fires, and the rows since the firing before."""

    window: Span
    number: int
    at: int
    ids: tuple[int, ...]


@dataclass
class _State:
    """The state of a window: its contents, the count of the trigger, its timers and the number of firings so far."""

    contents: list[int] = field(default_factory=list)
    count: int = 0
    timers: set[int] = field(default_factory=set)
    firings: int = 0


@dataclass
class WindowOperator:
    """The operator for one key.

    Args:
        window: assigns windows.
        trigger: the trigger that is wrapped.
        lateness: the allowed lateness in ms.
    """

    window: Aligned
    trigger: EveryRows | EveryInterval
    lateness: int
    watermark: int = -END_OF_TIME
    states: dict[Span, _State] = field(default_factory=dict)

    def firings(self, rows: Sequence[Row]) -> Iterator[Firing]:
        """All firings for rows in the order of their arrival, up to the end of time."""
        waiting = list[Row]()
        for row in rows:
            if row.watermark is not None and row.watermark > self.watermark:
                yield from self._advance(waiting, row.watermark)
            if row.t <= self.watermark:
                yield from self._process(row, self.watermark + 1)
            else:
                waiting.append(row)
        yield from self._advance(waiting, END_OF_TIME)

    def _advance(self, waiting: list[Row], to: int) -> Iterator[Firing]:
        while (time := self._next_time(waiting)) is not None and time <= to:
            self.watermark = time
            for row in [row for row in waiting if row.t == time]:
                waiting.remove(row)
                yield from self._process(row, time)
            for span, state in sorted(self.states.items()):
                if time in state.timers:
                    state.timers.remove(time)
                    yield from self._fire_and_purge(span, time)
        self.watermark = to

    def _next_time(self, waiting: list[Row]) -> int | None:
        timers = [time for state in self.states.values() for time in state.timers]
        return min([*timers, *(row.t for row in waiting)], default=None)

    def _process(self, row: Row, at: int) -> Iterator[Firing]:
        for start, end in windows_at(self.window, row.t):
            if end - 1 + self.lateness < at:
                continue
            state = self.states.setdefault((start, end), _State())
            state.contents.append(row.id)
            if at > end - 1:  # late, but allowed
                state.timers.add(at)
                continue
            state.timers.add(end - 1)
            if isinstance(self.trigger, EveryInterval):
                state.timers.add(-(-at // self.trigger.interval_ms) * self.trigger.interval_ms)
                continue
            state.count += 1
            if state.count == self.trigger.rows:
                yield from self._fire_and_purge((start, end), at)

    def _fire_and_purge(self, span: Span, at: int) -> Iterator[Firing]:
        state = self.states[span]
        if state.contents:
            state.firings += 1
            yield Firing(span, state.firings, at, tuple(sorted(state.contents)))
        state.contents, state.count = [], 0
