"""Count windows in steps: windows depend on the order of arrival only, not on batches, and equal those of a backfill."""

import random

from assets.contracts import DerivedAsset
from operators import CountWindowAggregate
from platform_defs.engine import Engine
from tests.conftest import MakeEngine
from tests.support.kills import run_and_die
from tests.support.small_sources import Event, law_violations, replay, rows_of, source

AGGREGATES = {"n": "count(*)", "total": "sum(v)", "first": "min_by(v, struct(seq, arrival))"}
OPERATORS = {
    "tumbling": CountWindowAggregate(by="k", size=3, aggregates=AGGREGATES),
    "sliding": CountWindowAggregate(by="k", size=4, slide=2, aggregates=AGGREGATES),
}
COLUMNS = ["k", "window_number", *AGGREGATES]


def _engine(make: MakeEngine) -> Engine:
    names = {f"{name}{again}": o for name, o in OPERATORS.items() for again in ("", "_again")}
    return make([source("l")], [DerivedAsset(name=n, inputs=("l",), operator=o) for n, o in names.items()])


def _advance(engine: Engine, cuts: list[int], events: list[Event], kill: str | None = None) -> None:
    for first, end in zip(cuts, [*cuts[1:], len(events)], strict=True):
        replay(engine, [{"l": events[first:end]}])
        for name in OPERATORS:
            if kill:
                run_and_die(lambda name=name: engine.advance(name), kill)
            engine.advance(name)
    for name in OPERATORS:
        engine.advance(f"{name}_again")


def test_windows_depend_only_on_the_order_of_arrival(make_module_engine: MakeEngine, make_engine: MakeEngine) -> None:
    rng = random.Random(4)
    events = [Event(rng.choice(["a", "b", None]), rng.randrange(-3, 9), rng.randrange(10**7)) for _ in range(40)]
    in_steps, at_once = _engine(make_module_engine), _engine(make_engine)
    _advance(in_steps, [0, 7, 8, 25], events, "advance.after_changelog")
    _advance(at_once, [0], events)
    for name, operator in OPERATORS.items():
        wanted: list[tuple[object, ...]] = []
        for key in ("a", "b", None):
            values, slide = [e.v for e in events if e.k == key], operator.slide or operator.size
            for end in range(slide, len(values) + 1, slide):
                inside = values[max(0, end - operator.size) : end]
                wanted.append((key, end // slide, len(inside), sum(inside), inside[0]))
        for engine in (in_steps, at_once):
            assert rows_of(engine.views.table(name), *COLUMNS) == sorted(wanted, key=repr)
            assert rows_of(engine.views.table(name)) == rows_of(engine.views.table(f"{name}_again"))
            assert law_violations(engine, name) == set()
        changes = in_steps.views.table(f"changelog/{name}")
        assert {kind for (kind,) in rows_of(changes, "change")} == {"+I"}, "a window never changes"
