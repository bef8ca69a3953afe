"""Early pairs of interval joins in steps: each trigger shows the pairs that a naive model shows, and changes no result.

Each key is a generated case, so that one stream compares many of them.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from operators import EveryInterval, EveryStep, IntervalJoin
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.clock import Clock
from tests.support.late_rows_model import Arrival, JoinModel
from tests.support.small_sources import MINUTE, START, Event, join, replay, source

BATCHES = 3
VARIANTS: dict[str, dict[str, Any]] = {
    "full": {"how": "full", "early": EveryStep(), "allowed_lateness": "2 minutes"},
    "event_time": {"how": "inner", "early": EveryInterval("8 minutes"), "residual": "left_v <= right_v"},
    "clock": {"how": "left", "early": EveryInterval("10 minutes", by="processing")},
    "semi": {"how": "semi", "early": EveryStep()},
}
Results = Counter[tuple[Any, ...]]
"""Key, values of both rows (for a semi join, of the left one) and result time in ms after `START`."""


@dataclass
class Model:
    """What a join and its trigger show, by their definitions.

    Args:
        join: the join without a trigger.
        trigger: the trigger.
        arrivals: the rows of each key so far.
        shown: the results that are shown early.
        times: the watermark and the clock at the last advance, in ms; None before the first.
    """

    join: JoinModel
    trigger: EveryStep | EveryInterval
    arrivals: dict[str, list[Arrival]] = field(default_factory=lambda: defaultdict(list))
    shown: Results = field(default_factory=Counter)
    times: tuple[int, int] | None = None

    @classmethod
    def of(cls, operator: Any) -> "Model":
        """The model of an operator."""
        assert isinstance(operator, IntervalJoin)
        join = JoinModel(operator.interval, operator.how, operator.lateness.ms, residual=operator.residual is not None)
        return cls(join, operator.early)  # pyright: ignore[reportArgumentType]

    def add(self, batch: Sequence[Sequence[Event]], watermark: int | None) -> None:
        """Add the left and right rows of a batch, given the watermark before it."""
        for side, events in enumerate(batch):
            for event in events:
                self.arrivals[str(event.k)].append(Arrival(side, event.v, event.k, event.at, watermark, event.v))

    def advance(self, watermark: int, clock: int) -> None:
        """Show the results that are not final if the trigger fires; otherwise keep those that were shown. Final results are removed."""
        self.shown = self.pairs_after(watermark) if self._fires(START + watermark, clock) else self.shown
        self.shown = Counter({pair: n for pair, n in self.shown.items() if pair[-1] + 1 > watermark})
        self.times = START + watermark, clock

    def pairs_after(self, watermark: int) -> Results:
        """The pairs so far that are not final, or for a semi join the left rows with a match."""
        join = self.join if self.join.how == "semi" else replace(self.join, how="inner")
        return Counter({pair: n for pair, n in self.results(join).items() if pair[-1] + 1 > watermark})

    def results(self, join: JoinModel) -> Results:
        """The results of a join of all rows."""
        return Counter((key, *result) for key, rows in self.arrivals.items() for result in join(rows).elements())

    def _fires(self, watermark: int, clock: int) -> bool:
        if isinstance(self.trigger, EveryStep) or self.times is None:
            return True
        time, before = (watermark, self.times[0]) if self.trigger.by == "event" else (clock, self.times[1])
        return time // self.trigger.interval_ms > before // self.trigger.interval_ms


def _batch(rng: random.Random, newest: int, numbers: Counter[str], cases: int) -> dict[str, list[Event]]:
    """Up to two rows of each case and side, some late, and one row at the newest time. Each row of a case has another value."""
    events: dict[str, list[Event]] = {side: [_event(rng, "newest", newest, numbers)] for side in "lr"}
    for case in map(str, range(cases)):
        for rows in events.values():
            for _ in range(rng.randrange(3)):
                rows.append(_event(rng, case, newest - rng.randrange(rng.choice([1, 3, 10]) * MINUTE), numbers))
    return events


def _event(rng: random.Random, case: str, at: int, numbers: Counter[str]) -> Event:
    numbers[case] += 1
    return Event(case, rng.choice([numbers[case], 100 - numbers[case]]), at)


def _results(engine: Engine) -> tuple[dict[str, Results], dict[str, Results]]:
    """The early results of all tables, and the final ones, read by one query."""
    frames, early, final = list[DataFrame](), {name: Results() for name in VARIANTS}, {name: Results() for name in VARIANTS}
    for name in VARIANTS:
        values = ("v", "CAST(NULL AS INT)") if name == "semi" else ("left_v", "right_v")
        time = F.unix_millis("result_time") - START
        frames.append(engine.views.with_early(name).select("is_final", F.lit(name), "k", *map(F.expr, values), time))
    for is_final, name, *result in reduce(DataFrame.union, frames).collect():
        (final if is_final else early)[name][tuple(result)] += 1
    return early, final


@pytest.mark.parametrize("cases", [300, pytest.param(1_000, marks=pytest.mark.soak)])
def test_each_trigger_shows_the_pairs_of_its_definition(make_engine: MakeEngine, clock: Clock, cases: int) -> None:
    rng, newest, numbers = random.Random(3), 30 * MINUTE, Counter[str]()
    tables = [join(name, **spec) for name, spec in VARIANTS.items()]
    engine, models = make_engine([source("l"), source("r")], tables), {table.name: Model.of(table.operator) for table in tables}
    watermark, shown, older = None, Counter[str](), Counter[str]()
    for _ in range(BATCHES):
        newest += rng.randrange(4 * MINUTE)
        clock.pass_ms(rng.randrange(8 * MINUTE))
        batch = _batch(rng, newest, numbers, cases)
        replay(engine, [batch])
        before, watermark = watermark, newest - MINUTE - 1
        for name, model in models.items():
            model.add([*batch.values()], before)
            model.advance(watermark, clock())
            engine.advance(name)
        for name, found in _results(engine)[0].items():
            assert found == models[name].shown, name
            shown[name] += found.total()
            older[name] += found != models[name].pairs_after(watermark)
    assert all(shown[name] > cases for name in models)
    assert {name for name in models if older[name]} == {"event_time", "clock"}, "these triggers did not fire in each step"
    engine.drain()
    for name in models:
        engine.advance(name)
    early, final = _results(engine)
    assert not any(early.values())
    for name, found in final.items():
        assert found == models[name].results(models[name].join), name
