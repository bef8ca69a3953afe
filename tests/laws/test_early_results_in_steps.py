"""Early results of open windows in steps: each trigger shows the windows that a naive model of the trigger shows."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import functions as F

from assets.contracts import DerivedAsset
from operators import EveryInterval, EveryRows, EveryStep, Tumbling, WindowedAggregate
from operators.triggers import Trigger
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.clock import Clock
from tests.support.json_rows import values_of
from tests.support.small_sources import MINUTE, START, Event, replay, source

BATCHES, SIZE = 3, 5 * MINUTE
TRIGGERS: dict[str, Trigger] = {
    "step": EveryStep(),
    "two_rows": EveryRows(2),
    "event_time": EveryInterval("4 minutes"),
    "clock": EveryInterval("10 minutes", by="processing"),
}
Window = tuple[str, int]
"""A key, and the start of its window in ms."""


@dataclass
class Model:
    """What a trigger shows of the windows that are open, by its definition.

    Args:
        trigger: the trigger.
        shown: the number of rows with which each open window was last shown.
        watermark: the watermark at the last advance; None before the first.
        clock: the clock at the last advance; None before the first.
    """

    trigger: Trigger
    shown: dict[Window, int] = field(default_factory=dict)
    watermark: int | None = None
    clock: int | None = None

    def advance(self, open_windows: Counter[Window], watermark: int, clock: int) -> None:
        """Show the windows for which the trigger fires; windows that are no longer open show nothing."""
        self.shown = {window: rows for window, rows in self.shown.items() if window in open_windows}
        for window, rows in open_windows.items():
            if self._fires(rows, self.shown.get(window, 0), watermark, clock):
                self.shown[window] = rows
        self.watermark, self.clock = watermark, clock

    def _fires(self, rows: int, rows_shown: int, watermark: int, clock: int) -> bool:
        match self.trigger:
            case EveryRows(count):
                return rows // count > rows_shown // count
            case EveryInterval(by="event") as trigger:
                return self.watermark is None or watermark // trigger.interval_ms > self.watermark // trigger.interval_ms
            case EveryInterval() as trigger:
                return self.clock is None or clock // trigger.interval_ms > self.clock // trigger.interval_ms
            case _:
                return True


def _rows(rng: random.Random, keys: int, newest: int) -> list[Event]:
    """Up to three rows of each key, up to ten minutes behind the newest; some are late."""
    first = Event("0", 1, newest)
    return [first, *(Event(str(case), 1, newest - rng.randrange(10 * MINUTE)) for case in range(keys) for _ in range(rng.randrange(4)))]


def _window(event: Event) -> Window:
    return str(event.k), (START + event.at) // SIZE * SIZE


def _shown(engine: Engine) -> dict[str, dict[Window, int]]:
    """By table, the number of rows with which each open window is shown."""
    frames = {name: engine.views.with_early(name).where("NOT is_final") for name in TRIGGERS}
    columns = ["k", F.unix_millis("window_start").alias("start"), "n"]
    found = values_of({name: rows.select(*columns) for name, rows in frames.items()})
    shown: dict[str, dict[Window, int]] = {name: {(k, start): n for k, start, n in rows} for name, rows in found.items()}
    assert [name for name, rows in found.items() if len(rows) != len(shown[name])] == [], "each window is shown once"
    return shown


@pytest.mark.parametrize("keys", [100, pytest.param(1_000, marks=pytest.mark.soak)])
def test_each_trigger_shows_the_windows_of_its_definition(make_engine: MakeEngine, clock: Clock, keys: int) -> None:
    rng, newest, seen = random.Random(5), 20 * MINUTE, Counter[Window]()
    operator: dict[str, Any] = {"by": "k", "window": Tumbling(size=SIZE), "aggregates": {"n": "count(*)"}}
    tables = [DerivedAsset(name=n, inputs=("l",), operator=WindowedAggregate(**operator, early=t)) for n, t in TRIGGERS.items()]
    engine, models, watermark = make_engine([source("l")], tables), {name: Model(trigger) for name, trigger in TRIGGERS.items()}, None
    steps_with_older_results: dict[str, list[int]] = {name: [] for name in TRIGGERS}
    for number in range(BATCHES):
        newest += rng.randrange(3 * MINUTE)
        clock.pass_ms(rng.randrange(8 * MINUTE))
        events = _rows(rng, keys, newest)
        on_time = [event for event in events if watermark is None or _window(event)[1] + SIZE - 1 > watermark]
        seen.update(map(_window, on_time))
        replay(engine, [{"l": events}])
        watermark = START + newest - MINUTE - 1
        open_windows = Counter({window: rows for window, rows in seen.items() if window[1] + SIZE - 1 > watermark})
        for name, model in models.items():
            model.advance(open_windows, watermark, clock())
            engine.advance(name)
        for name, shown in _shown(engine).items():
            assert shown == models[name].shown, name
            steps_with_older_results[name] += [number] if shown != open_windows else []
    # the intervals of both clocks end in the last step
    assert steps_with_older_results == {"step": [], "two_rows": [0, 1, 2], "event_time": [1], "clock": [1]}
